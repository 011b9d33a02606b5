"""Matrix multiplication: c = a @ b, as a ladder from one dot product per program to tiles in an order that L2 likes.

Minimum traffic: a and b read once, c written once, (M*K + K*N + M*N) * itemsize; 2*M*N*K FLOPs. A program that owns a
BLOCK_M x BLOCK_N tile of c reads K * (BLOCK_M + BLOCK_N) elements, so tiles decide the intensity towards L2; the order
in which programs walk over c decides how much of that reaches DRAM.

Tiles in groups are those of Triton's matmul tutorial (2019). Products are accumulated in fp32. fp32 operands are
multiplied exactly unless TF32 is asked for. The last rung, with tensor descriptors, is in matmul_persistent.py.
"""

from dataclasses import dataclass

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels import matmul_persistent
from kernels.arguments import check_tensor
from kernels.matmul_order import grouped_tile

GROUP_M = 8  # rows of tiles that programs walk over together, column by column
TILED = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4}


def matmul_reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b by torch: give it fp64 for a reference."""
    return a @ b


@triton.jit
def matmul_dot_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a_row_stride, a_col_stride, b_row_stride, b_col_stride, BLOCK_K: tl.constexpr
):
    """One element of c: a row of a times a column of b, BLOCK_K elements at a time."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1).to(tl.int64)
    products = tl.zeros([BLOCK_K], dtype=tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K).to(tl.int64)  # [BLOCK_K]
        a = tl.load(a_ptr + row * a_row_stride + k * a_col_stride, mask=k < K, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + k * b_row_stride + col * b_col_stride, mask=k < K, other=0.0).to(tl.float32)
        products += a * b
    tl.store(c_ptr + row * N + col, tl.sum(products).to(c_ptr.dtype.element_ty))


@triton.jit
def multiply_tile(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    a_row_stride,
    a_col_stride,
    b_row_stride,
    b_col_stride,
    tile_m,
    tile_n,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One tile [BLOCK_M, BLOCK_N] of c: BLOCK_K columns of a times BLOCK_K rows of b, added up over K."""
    row = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    col = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
    k = tl.arange(0, BLOCK_K).to(tl.int64)  # [BLOCK_K]
    a_ptrs = a_ptr + row * a_row_stride + k[None, :] * a_col_stride  # [BLOCK_M, BLOCK_K]
    b_ptrs = b_ptr + k[:, None] * b_row_stride + col * b_col_stride  # [BLOCK_K, BLOCK_N]
    c = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(row < M) & (k[None, :] < K - start), other=0.0)
        b = tl.load(b_ptrs, mask=(k[:, None] < K - start) & (col < N), other=0.0)
        c = tl.dot(a, b, c, input_precision=PRECISION)
        a_ptrs += BLOCK_K * a_col_stride
        b_ptrs += BLOCK_K * b_row_stride
    tl.store(c_ptr + row * N + col, c.to(c_ptr.dtype.element_ty), mask=(row < M) & (col < N))


@triton.jit
def matmul_tiled_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    a_row_stride,
    a_col_stride,
    b_row_stride,
    b_col_stride,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """a [M, K] and b [K, N] of any strides, c [M, N] contiguous: a tile per program, row by row."""
    multiply_tile(
        a_ptr,
        b_ptr,
        c_ptr,
        M,
        N,
        K,
        a_row_stride,
        a_col_stride,
        b_row_stride,
        b_col_stride,
        tl.program_id(0) // tl.cdiv(N, BLOCK_N),
        tl.program_id(0) % tl.cdiv(N, BLOCK_N),
        PRECISION,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
    )


#: (BLOCK_M, BLOCK_N, BLOCK_K, warps, stages) that the grouped kernel is tuned over. The interpreter takes the first.
TUNED = ((64, 64, 32, 4, 3), (64, 128, 64, 4, 3), (128, 128, 32, 4, 3), (128, 128, 64, 8, 3), (128, 256, 64, 8, 3))
GROUPED_CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=warps, num_stages=stages)
    for m, n, k, warps, stages in TUNED
]


@triton.autotune(GROUPED_CONFIGS, key=["M", "N", "K", "PRECISION"])
@triton.jit
def matmul_grouped_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    a_row_stride,
    a_col_stride,
    b_row_stride,
    b_col_stride,
    PRECISION: tl.constexpr,
    GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The same, the tiles in groups of GROUP_M rows."""
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    multiply_tile(
        a_ptr,
        b_ptr,
        c_ptr,
        M,
        N,
        K,
        a_row_stride,
        a_col_stride,
        b_row_stride,
        b_col_stride,
        tile_m,
        tile_n,
        PRECISION,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
    )


@dataclass(frozen=True)
class Path:
    """A rung of the ladder: bytes of the widest elements that it multiplies, and the tiles of c that a program may own.

    Of several tiles, (BLOCK_M, BLOCK_N) each: of the grouped kernel's the interpreter takes the first and a GPU the
    fastest; of the persistent one's, the product's size decides.
    """

    itemsize: int
    tiles: list


PATHS = {
    "dot": Path(4, [(1, 1)]),
    "tiled": Path(4, [(TILED["BLOCK_M"], TILED["BLOCK_N"])]),
    "grouped": Path(4, [config[:2] for config in TUNED]),
    "persistent": Path(2, [(tile["BLOCK_M"], tile["BLOCK_N"]) for tile in matmul_persistent.TILES]),
}


def _plan(a: torch.Tensor, path: str | None) -> str:
    """The path that multiplies a: the one asked for if it can, else persistent where a GPU can, grouped elsewhere."""
    persistent = a.itemsize <= PATHS["persistent"].itemsize and matmul_persistent.runs_on(a.device)
    if path is None:
        return "persistent" if persistent and a.is_cuda else "grouped"
    if path not in PATHS or path == "persistent" and not persistent:
        raise ValueError(
            f"path: got {path!r} for {a.dtype} on {a.device}, expected None or one of dot, tiled, grouped (any dtype), "
            f"persistent (16 bits; tensor descriptors and {matmul_persistent.SHARED:,} B of shared memory per program)"
        )
    return path


def _tiles(M: int, N: int):
    """The grid: a program for each tile of c."""
    return lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)


def matmul(a: torch.Tensor, b: torch.Tensor, *, precision: str = "ieee", path: str | None = None) -> torch.Tensor:
    """a @ b, accumulated in fp32 and rounded once.

    a: [M, K], b: [K, N], of one dtype, fp16, bf16 or fp32, any strides. precision: for fp32 only: 'ieee' multiplies
    exactly, 'tf32' on the matrix units with 10 bits of mantissa. path: which rung of the ladder runs, chosen by the GPU
    unless given: 'dot', 'tiled', 'grouped' or 'persistent' (16-bit only; operands that a tensor descriptor cannot
    address are copied first, and a b whose rows lie badly for it where a is tall). Returns a contiguous [M, N] of their
    dtype. Raises ValueError naming the argument.
    """
    check_tensor("a", a)
    check_tensor("b", b, like=a, dtypes=(a.dtype,))
    if a.dim() != 2:
        raise ValueError(f"a: got {a.dim()} dimensions, expected 2")
    if b.dim() != 2 or b.shape[0] != a.shape[1]:
        raise ValueError(f"b: got shape {tuple(b.shape)}, expected ({a.shape[1]}, N), after a of {tuple(a.shape)}")
    if precision not in ("ieee", "tf32"):
        raise ValueError(f"precision: got {precision!r}, expected 'ieee' or 'tf32'")
    path = _plan(a, path)
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    if not c.numel():
        return c
    if not K:
        return c.zero_()
    shared = (a, b, c, M, N, K, *a.stride(), *b.stride())
    if path == "persistent":
        matmul_persistent.launch(a, b, c)
    elif path == "dot":
        matmul_dot_kernel[(M, N)](*shared, BLOCK_K=min(1024, triton.next_power_of_2(K)), num_warps=4)
    elif path == "tiled":
        matmul_tiled_kernel[_tiles(M, N)](*shared, precision, **TILED)
    else:
        matmul_grouped_kernel[_tiles(M, N)](*shared, precision, GROUP_M)
    return c


def matmul_traffic(M: int, N: int, K: int, dtype: torch.dtype, tile: tuple[int, int] | None = None) -> Traffic:
    """What a matmul moves: a and b read once, c written once, or, with tile=(BLOCK_M, BLOCK_N), what programs ask for.

    A column of tiles of b is asked for by each row of tiles of c, and the other way round; edges count what is inside.
    """
    down, across = (triton.cdiv(M, tile[0]), triton.cdiv(N, tile[1])) if tile else (1, 1)
    size = dtype.itemsize
    read = {"a": M * K * across * size, "b": K * N * down * size}
    return Traffic(read, {"c": M * N * size}, flops=2 * M * N * K, launches=1)
