"""Matrix multiplication: c = a @ b, as a ladder from one dot product per program to a persistent, warp-specialised kernel.

Minimum traffic: a and b read once, c written once, (M*K + K*N + M*N) * itemsize; 2*M*N*K FLOPs. A program that owns a
BLOCK_M x BLOCK_N tile of c reads K * (BLOCK_M + BLOCK_N) elements, so tiles decide the intensity towards L2; the order in
which programs walk over c decides how much of that reaches DRAM.

Grouped ordering and the persistent kernel with tensor descriptors follow Triton's matmul tutorials (2019 to 2025), warp
specialisation is Triton's own (2025). Products are accumulated in fp32. fp32 operands are multiplied exactly unless TF32
is asked for.
"""

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_tensor
from kernels.rows import multiprocessors

GROUP_M = 8  # rows of tiles that programs walk over together, column by column


def matmul_reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b by torch: give it fp64 for a reference."""
    return a @ b


@triton.jit
def matmul_dot_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a_row_stride, a_col_stride, b_row_stride, b_col_stride, BLOCK_K: tl.constexpr
):
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
    """One tile of c: BLOCK_K columns of a times BLOCK_K rows of b, added up over K."""
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


@triton.jit
def grouped_tile(program, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """(tile_m, tile_n) of a program: GROUP_M rows of tiles are walked over column by column, so that they share b."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = program // (GROUP_M * tiles_n)
    first = group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)  # the last group may be lower
    within = program - group * GROUP_M * tiles_n
    return first + within % height, within // height


#: Tiles that the grouped kernel is tuned over. The first is what the interpreter and the compiler's tests use.
GROUPED_CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=warps, num_stages=stages)
    for m, n, k, warps, stages in (
        (64, 64, 32, 4, 3),
        (64, 128, 64, 4, 3),
        (128, 128, 32, 4, 3),
        (128, 128, 64, 8, 3),
        (128, 256, 64, 8, 3),
    )
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


def _shape_descriptors(arguments: dict):
    """Before a launch: give the descriptors the tiles of the configuration that is about to run."""
    m, n, k = arguments["BLOCK_M"], arguments["BLOCK_N"], arguments["BLOCK_K"]
    arguments["a"].block_shape = [m, k]
    arguments["b"].block_shape = [n, k] if arguments["B_TRANSPOSED"] else [k, n]
    if arguments["C_DESCRIBED"]:
        arguments["c"].block_shape = [m, n // 2]


#: What the persistent kernel is tuned over; warp specialisation is tried where Triton has it.
PERSISTENT_CONFIGS = [
    triton.Config(
        {"BLOCK_M": 128, "BLOCK_N": n, "BLOCK_K": 64, "GROUP_M": group, "SPECIALIZE": specialize},
        num_warps=8,
        num_stages=stages,
        pre_hook=_shape_descriptors,
    )
    for n, group, stages, specialize in (
        (256, 8, 3, False),
        (256, 16, 3, False),
        (256, 16, 3, True),
        (128, 8, 4, False),
    )
]


@triton.autotune(PERSISTENT_CONFIGS, key=["M", "N", "K", "B_TRANSPOSED"])
@triton.jit
def matmul_persistent_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    B_TRANSPOSED: tl.constexpr,
    C_DESCRIBED: tl.constexpr,
    SPECIALIZE: tl.constexpr,
    GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    FLATTEN: tl.constexpr = (
        not SPECIALIZE
    )  # one loop over tiles and K: the next tile's loads start under this one's store
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN, warp_specialize=SPECIALIZE):
        tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
        total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        for k in tl.range(0, K, BLOCK_K):
            a_tile = a.load([row, k])  # [BLOCK_M, BLOCK_K]; what lies outside the matrix is zero
            if B_TRANSPOSED:
                b_tile = b.load([col, k]).T  # [BLOCK_K, BLOCK_N]
            else:
                b_tile = b.load([k, col])
            total = tl.dot(a_tile, b_tile, total)
        if C_DESCRIBED:  # in two halves, so that half the shared memory is enough to stage them
            left, right = tl.split(tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
            c.store([row, col], left.to(c.dtype))
            c.store([row, col + BLOCK_N // 2], right.to(c.dtype))
        else:
            rows = row.to(tl.int64) + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
            cols = col + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
            tl.store(c + rows * N + cols, total.to(c.dtype.element_ty), mask=(rows < M) & (cols < N))


def describable(matrix: torch.Tensor) -> bool:
    """Whether a tensor descriptor can address a matrix: unit last stride, base and rows on 16 bytes."""
    return matrix.stride(1) == 1 and matrix.stride(0) * matrix.element_size() % 16 == 0 and matrix.data_ptr() % 16 == 0


def _described(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix itself where a descriptor can address it, else a copy whose rows begin on 16 bytes."""
    if describable(matrix):
        return matrix
    per_16_bytes = 16 // matrix.element_size()
    rows, cols = matrix.shape
    padded = torch.empty((rows, -(-cols // per_16_bytes) * per_16_bytes), dtype=matrix.dtype, device=matrix.device)
    padded[:, :cols] = matrix
    return padded[:, :cols]


def _persistent(a, b, c):
    from triton.tools.tensor_descriptor import TensorDescriptor

    M, K = a.shape
    N = b.shape[1]
    transposed = b.stride(0) == 1 and b.stride(1) != 1 or not describable(b) and describable(b.T)
    b = _described(b.T if transposed else b)
    a = _described(a)
    described = describable(c)
    tile = [1, 1]  # replaced by _shape_descriptors
    operands = [TensorDescriptor(m, list(m.shape), list(m.stride()), tile) for m in (a, b)]
    output = TensorDescriptor(c, list(c.shape), list(c.stride()), tile) if described else c
    matmul_persistent_kernel[
        lambda meta: (min(multiprocessors(), triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)
    ](*operands, output, M, N, K, B_TRANSPOSED=transposed, C_DESCRIBED=described)


def _tiles(M, N):
    return lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)


PATHS = ("dot", "tiled", "grouped", "persistent")


def _choose(a: torch.Tensor) -> str:
    """The persistent kernel where the GPU has tensor descriptors and operands are 16-bit, else the grouped one."""
    hopper = a.is_cuda and torch.cuda.get_device_capability(a.device)[0] >= 9
    return "persistent" if hopper and a.dtype.itemsize == 2 else "grouped"


def matmul(a: torch.Tensor, b: torch.Tensor, *, precision: str = "ieee", path: str | None = None) -> torch.Tensor:
    """a @ b, accumulated in fp32 and rounded once.

    a: [M, K], b: [K, N], of one dtype, fp16, bf16 or fp32, any strides. precision: for fp32 only: 'ieee' multiplies
    exactly, 'tf32' on the matrix units with 10 bits of mantissa. path: which rung of the ladder runs, chosen by the GPU
    unless given: 'dot', 'tiled', 'grouped' or 'persistent' (16-bit only; operands that a tensor descriptor cannot address
    are first copied to rows on 16 bytes). Returns a contiguous [M, N] of their dtype. Raises ValueError naming the argument.
    """
    check_tensor("a", a)
    check_tensor("b", b, like=a, dtypes=(a.dtype,))
    if a.dim() != 2:
        raise ValueError(f"a: got {a.dim()} dimensions, expected 2")
    if b.dim() != 2 or b.shape[0] != a.shape[1]:
        raise ValueError(f"b: got shape {tuple(b.shape)}, expected ({a.shape[1]}, N), after a of {tuple(a.shape)}")
    if precision not in ("ieee", "tf32"):
        raise ValueError(f"precision: got {precision!r}, expected 'ieee' or 'tf32'")
    path = _choose(a) if path is None else path
    if path not in PATHS or path == "persistent" and a.dtype.itemsize != 2:
        raise ValueError(
            f"path: got {path!r} for {a.dtype}, expected None or one of {', '.join(PATHS)}, the last of them "
            f"for 16-bit operands only"
        )
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    if not c.numel():
        return c
    if not K:
        return c.zero_()
    if path == "persistent":
        _persistent(a, b, c)
        return c
    shared = (a, b, c, M, N, K, *a.stride(), *b.stride())
    if path == "dot":
        matmul_dot_kernel[(M, N)](*shared, BLOCK_K=min(1024, triton.next_power_of_2(K)), num_warps=4)
    elif path == "tiled":
        matmul_tiled_kernel[_tiles(M, N)](*shared, precision, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_warps=4)
    else:
        matmul_grouped_kernel[_tiles(M, N)](*shared, precision, GROUP_M)
    return c


def matmul_traffic(M: int, N: int, K: int, dtype: torch.dtype, tile: tuple[int, int] | None = None) -> Traffic:
    """What a matmul moves: a and b read once and c written once, or, with tile=(BLOCK_M, BLOCK_N), what programs ask for.

    A column of tiles of b is asked for by each row of tiles of c, and the other way round; ragged edges count what is inside.
    """
    down, across = (triton.cdiv(M, tile[0]), triton.cdiv(N, tile[1])) if tile else (1, 1)
    return Traffic(
        {"a": M * K * across * dtype.itemsize, "b": K * N * down * dtype.itemsize},
        {"c": M * N * dtype.itemsize},
        flops=2 * M * N * K,
        launches=1,
    )
