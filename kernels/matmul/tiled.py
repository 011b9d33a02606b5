"""Matmul: c = a @ b, improved step by step from one dot product per program to tiles in an order that reuses L2.

Minimum traffic: read a and b once, write c once, (M*K + K*N + M*N) * itemsize; 2*M*N*K FLOPs. A program with a BLOCK_M
x BLOCK_N tile of c reads K * (BLOCK_M + BLOCK_N) elements, so the tile decides the arithmetic intensity towards L2. The
order in which programs compute the tiles decides how much of that traffic reaches DRAM.

The grouped order comes from Triton's matmul tutorial (2021). All paths accumulate in fp32. fp32 operands are multiplied
exactly unless precision is 'tf32'. The fastest path, persistent with tensor descriptors, is in persistent.py. Shapes
with fewer tiles than SMs go to gemv.py and split_k.py: `regime` is the table.
"""

from dataclasses import dataclass

import torch

from instruments.backend import cdiv, next_power_of_2, tl, triton
from instruments.traffic import Traffic
from kernels.matmul import persistent
from kernels.matmul.gemv import gemv
from kernels.matmul.split_k import matmul_split_k
from kernels.matmul.tile_order import grouped_tile
from kernels.shared.arguments import check_matrices
from kernels.shared.device import device_of, has_descriptors
from kernels.shared.metadata import by_metadata

GROUP_M = 8  # rows of tiles in a group, which is computed column by column
TILED = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4}


def matmul_reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b by torch: pass fp64 for a reference."""
    return a @ b


@triton.jit
def matmul_dot_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    a_row_stride, a_col_stride, b_row_stride, b_col_stride,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One element of c per program: the dot product of a row of a and a column of b, BLOCK_K elements at a time."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1).to(tl.int64)
    acc = tl.zeros([BLOCK_K], dtype=tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K).to(tl.int64)  # [BLOCK_K]
        a = tl.load(a_ptr + row * a_row_stride + k * a_col_stride, mask=k < K, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + k * b_row_stride + col * b_col_stride, mask=k < K, other=0.0).to(tl.float32)
        acc += a * b
    tl.store(c_ptr + row * N + col, tl.sum(acc).to(c_ptr.dtype.element_ty))


@triton.jit
def multiply_tile(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    a_row_stride, a_col_stride, b_row_stride, b_col_stride,
    tile_m, tile_n,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile [BLOCK_M, BLOCK_N] of c: the sum over K of BLOCK_K columns of a times BLOCK_K rows of b."""
    row = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    col = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
    k = tl.arange(0, BLOCK_K).to(tl.int64)  # [BLOCK_K]
    a_ptrs = a_ptr + row * a_row_stride + k[None, :] * a_col_stride  # [BLOCK_M, BLOCK_K]
    b_ptrs = b_ptr + k[:, None] * b_row_stride + col * b_col_stride  # [BLOCK_K, BLOCK_N]
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(row < M) & (k[None, :] < K - start), other=0.0)
        b = tl.load(b_ptrs, mask=(k[:, None] < K - start) & (col < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_ptrs += BLOCK_K * a_col_stride
        b_ptrs += BLOCK_K * b_row_stride
    tl.store(c_ptr + row * N + col, acc.to(c_ptr.dtype.element_ty), mask=(row < M) & (col < N))


@triton.jit
def matmul_tiled_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    a_row_stride, a_col_stride, b_row_stride, b_col_stride,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile per program, row by row: a [M, K] and b [K, N] of any strides, c [M, N] contiguous."""
    multiply_tile(
        a_ptr, b_ptr, c_ptr,
        M, N, K,
        a_row_stride, a_col_stride, b_row_stride, b_col_stride,
        tl.program_id(0) // tl.cdiv(N, BLOCK_N), tl.program_id(0) % tl.cdiv(N, BLOCK_N),
        PRECISION,
        BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip


#: (BLOCK_M, BLOCK_N, BLOCK_K, warps, stages) to autotune the grouped kernel over; the interpreter takes the first.
TUNED = ((64, 64, 32, 4, 3), (64, 128, 64, 4, 3), (128, 128, 32, 4, 3), (128, 128, 64, 8, 3), (128, 256, 64, 8, 3))
GROUPED_CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=warps, num_stages=stages)
    for m, n, k, warps, stages in TUNED
]


@triton.autotune(GROUPED_CONFIGS, key=["M", "N", "K", "PRECISION"])
@triton.jit
def matmul_grouped_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    a_row_stride, a_col_stride, b_row_stride, b_col_stride,
    PRECISION: tl.constexpr,
    GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile per program, in groups of GROUP_M rows of tiles; tensors as in the tiled kernel."""
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    multiply_tile(
        a_ptr, b_ptr, c_ptr,
        M, N, K,
        a_row_stride, a_col_stride, b_row_stride, b_col_stride,
        tile_m, tile_n,
        PRECISION,
        BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip


@dataclass(frozen=True)
class MatmulPath:
    """What one kernel can do.

    Args:
        itemsize: bytes of the widest elements that it multiplies.
        tiles: the tiles (BLOCK_M, BLOCK_N) that it may use. The grouped kernel takes the fastest on a GPU and the first
            in the interpreter; in the persistent kernel M, N and K decide.
    """

    itemsize: int
    tiles: list


PATHS = {
    "dot": MatmulPath(4, [(1, 1)]),
    "tiled": MatmulPath(4, [(TILED["BLOCK_M"], TILED["BLOCK_N"])]),
    "grouped": MatmulPath(4, [config[:2] for config in TUNED]),
    "persistent": MatmulPath(2, [(tile["BLOCK_M"], tile["BLOCK_N"]) for tile in persistent.TILES]),
}


def regime(M: int, N: int, K: int, by_columns: bool, sms: int) -> str:
    """Which kernel suits a shape on a GPU with `sms` SMs, measured on an H200 (bench/results/experiments/
    matmul_plan_h200.json).

    Args:
        M: rows of a.
        N: columns of b.
        K: columns of a.
        by_columns: whether b is contiguous along K.
        sms: SMs of the GPU.

    Returns:
        'gemv' or 'split_k' where tiles would be too few to keep all SMs loading, else 'tiles'.
    """
    if M == 1 and by_columns:
        return "gemv"
    if M <= 32 or K >= 8192 and 8 * cdiv(M, 128) * cdiv(N, 128) <= sms:
        return "split_k"
    return "tiles"


def _choose_path(a: torch.Tensor, path: str | None) -> str:
    """The path for a: `path` if it can run, or by default persistent on a GPU that can run it, else grouped."""
    able = a.itemsize <= PATHS["persistent"].itemsize and has_descriptors(a.device, persistent.SHARED)
    if path is None:
        return "persistent" if able and a.is_cuda else "grouped"
    if path not in PATHS or path == "persistent" and not able:
        raise ValueError(
            f"path: got {path!r} for {a.dtype} on {a.device}, expected None or one of dot, tiled, grouped (any dtype), "
            f"persistent (16 bits; tensor descriptors and {persistent.SHARED:,} B of shared memory per program)"
        )
    return path


def _grid(M: int, N: int):
    """The launch grid: a program per tile of c."""
    return lambda meta: (cdiv(M, meta["BLOCK_M"]) * cdiv(N, meta["BLOCK_N"]),)


@by_metadata
def _plan(a, b, precision, path) -> tuple[str, persistent.PersistentCall | None]:
    """(path, the plan of persistent.py on its path) of a call, whose arguments it checks."""
    check_matrices(a, b)
    if precision not in ("ieee", "tf32"):
        raise ValueError(f"precision: got {precision!r}, expected 'ieee' or 'tf32'")
    if path is None and a.is_cuda and a.numel() and b.numel():
        by_columns = b.stride(0) == 1 and b.stride(1) != 1
        kernel = regime(a.shape[0], b.shape[1], a.shape[1], by_columns, device_of(a.device).sms)
        if kernel != "tiles":
            return kernel, None
    path = _choose_path(a, path)
    return path, persistent.plan_call(a, b) if path == "persistent" and a.numel() and b.numel() else None


def matmul(a: torch.Tensor, b: torch.Tensor, *, precision: str = "ieee", path: str | None = None) -> torch.Tensor:
    """a @ b, accumulated in fp32 and rounded once.

    Args:
        a: [M, K], fp16, bf16 or fp32, any strides.
        b: [K, N], the dtype of a, any strides.
        precision: for fp32 operands only: 'ieee' multiplies exactly, 'tf32' uses tensor cores with 10 bits of mantissa.
        path: the kernel to run: 'dot', 'tiled', 'grouped' or 'persistent' (16 bits, and a GPU with tensor descriptors).
            None picks by the GPU, and where there are too few tiles for it runs `gemv` or `matmul_split_k`.

    Returns:
        [M, N], the dtype of a, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        The persistent path first copies an operand that a tensor descriptor cannot address, and, if a has many rows, a
        b whose rows do not begin on a sector.
    """
    path, plan = _plan(a, b, precision, path)
    if path == "gemv":
        return gemv(a.detach()[0], b.detach())[None]
    if path == "split_k":
        return matmul_split_k(a.detach(), b.detach(), precision=precision)
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    if not c.numel():
        return c
    if not K:
        return c.zero_()
    if path == "persistent":
        plan(a, b, c)
        return c
    shared = (a, b, c, M, N, K, *a.stride(), *b.stride())
    if path == "dot":
        matmul_dot_kernel[(M, N)](*shared, BLOCK_K=min(1024, next_power_of_2(K)), num_warps=4)
    elif path == "tiled":
        matmul_tiled_kernel[_grid(M, N)](*shared, precision, **TILED)
    else:
        matmul_grouped_kernel[_grid(M, N)](*shared, precision, GROUP_M)
    return c


def matmul_traffic(M: int, N: int, K: int, dtype: torch.dtype, tile: tuple[int, int] | None = None) -> Traffic:
    """The traffic of a matmul.

    Args:
        M: rows of a and c.
        N: columns of b and c.
        K: columns of a, rows of b.
        dtype: dtype of a, b and c.
        tile: (BLOCK_M, BLOCK_N) for the requested bytes of programs with this tile; None counts each byte once.

    Returns:
        Bytes per tensor, FLOPs and launches.

    Note:
        Each row of tiles of c reads all of b, and each column of tiles all of a; padding is not counted.
    """
    down, across = (cdiv(M, tile[0]), cdiv(N, tile[1])) if tile else (1, 1)
    size = dtype.itemsize
    read = {"a": M * K * across * size, "b": K * N * down * size}
    return Traffic(read, {"c": M * N * size}, flops=2 * M * N * K, launches=1)
