"""Split-K: a matmul with few tiles and a long K, whose programs share the K of one tile.

Minimum traffic as in tiled.py. Where c has fewer tiles than the GPU has SMs, a program per tile leaves SMs idle, and
one program reads its rows and columns at the rate of one SM. Split-K gives every tile to several programs, each with a
part of K. Their partial tiles have to be added up, and there are two ways:

    two launches  every part is stored in fp32, and a second kernel adds the parts in their order: the same bits in
                  every run, for 4 bytes written and read per element of c and part
    atomics       every part is added to c in fp32 by atomic adds: no second pass over the parts, but the order of the
                  additions, and so the last bits, change from run to run; c has to be zero beforehand

The matmul of few rows, as in decode, is the same kernel with tiles 16 rows high: what it reads is nearly all b, and
parts only have to be many enough to keep all SMs loading. For a single row, gemv.py needs no tensor cores.

Split-K is as old as GPU BLAS libraries; CUTLASS documents both reductions ("parallel split-K", 2018). Fixed-order
second passes are what deterministic libraries use. Reference and arguments are `matmul`'s.
"""

from dataclasses import dataclass

import torch

from instruments.backend import cdiv, next_power_of_2, tl, triton
from instruments.traffic import Traffic
from kernels.matmul.tile_order import grouped_tile
from kernels.shared.arguments import check_matrices, check_no_grad
from kernels.shared.device import Device, device_of
from kernels.shared.metadata import by_metadata

GROUP_M = 8
REDUCTIONS = ("two launches", "atomics")
#: Up to 16 rows of a: wide along the direction in which b is contiguous. Constants of the kernel by its names for them.
BY_ROWS = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4, "num_stages": 4}
BY_COLUMNS = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 128, "num_warps": 4, "num_stages": 6}
#: The tile of more rows of a, up to the number beside it.
TILES = (
    (64, {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128, "num_warps": 4, "num_stages": 4}),
    (None, {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3}),
)
PROGRAMS_PER_SM = 2  # of 16 rows; of the others one
PART_K = 256  # the fewest elements of K in a part
SUM = {"BLOCK_PARTS": 16, "BLOCK": 64, "num_warps": 4}


@dataclass(frozen=True)
class SplitPlan:
    """How the K of each tile is split.

    Args:
        tile: tile constants, num_warps and num_stages, by the kernel's names for them.
        tiles: tiles of c.
        parts: programs per tile.
        part_k: elements of K in a part, a multiple of BLOCK_K.
    """

    tile: dict
    tiles: int
    parts: int
    part_k: int


def split_plan(M: int, N: int, K: int, device: Device, parts: int | None = None, by_columns: bool = False) -> SplitPlan:
    """The plan for a matmul of these sizes.

    Args:
        M: rows of a.
        N: columns of b.
        K: columns of a.
        device: the GPU's properties.
        parts: the most parts per tile; None takes as many as fill the GPU.
        by_columns: whether b is contiguous along K.
    """
    few = BY_COLUMNS if by_columns else BY_ROWS
    tile = few if M <= few["BLOCK_M"] else next(tile for rows, tile in TILES if rows is None or M <= rows)
    tiles = cdiv(M, tile["BLOCK_M"]) * cdiv(N, tile["BLOCK_N"])
    if parts is None:
        programs = device.sms * (PROGRAMS_PER_SM if tile is few else 1)
        parts = max(1, min(programs // tiles, K // PART_K))
    part_k = cdiv(cdiv(K, parts), tile["BLOCK_K"]) * tile["BLOCK_K"]
    return SplitPlan(tile, tiles, cdiv(K, part_k), part_k)


@triton.jit
def matmul_split_k_kernel(
    a_ptr, b_ptr, c_ptr, partial_ptr,
    M, N, K,
    a_row_stride, a_col_stride, b_row_stride, b_col_stride,
    part_k,
    ATOMIC: tl.constexpr, PRECISION: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One part of one tile [BLOCK_M, BLOCK_N] per program: a [M, K] and b [K, N] of any strides; c [M, N] contiguous.
    With partial [parts, M, N] in fp32 the part is stored there; ATOMIC adds it to c, in fp32 and zero beforehand;
    else there is one part, and c takes it."""
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(1)
    row = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    col = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
    k = tl.arange(0, BLOCK_K).to(tl.int64)  # [BLOCK_K]
    first = part * part_k
    last = tl.minimum(first + part_k, K)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in tl.range(first, last, BLOCK_K):
        column = start + k
        a_mask, b_mask = (row < M) & (column < last)[None, :], (column < last)[:, None] & (col < N)
        a = tl.load(a_ptr + row * a_row_stride + column[None, :] * a_col_stride, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + column[:, None] * b_row_stride + col * b_col_stride, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    mask = (row < M) & (col < N)
    if partial_ptr is not None:
        tl.store(partial_ptr + part.to(tl.int64) * M * N + row * N + col, acc, mask=mask)
    elif ATOMIC:
        tl.atomic_add(c_ptr + row * N + col, acc, mask=mask, sem="relaxed")
    else:
        tl.store(c_ptr + row * N + col, acc.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def sum_parts_kernel(partial_ptr, c_ptr, size, parts, BLOCK_PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """c [size] = the sum of partial [parts, size], fp32, rounded once. A program loads BLOCK_PARTS parts of BLOCK
    elements at a time, so that their latencies pass together, and adds them in an order that never changes."""
    col = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]  # [1, BLOCK]
    part = tl.arange(0, BLOCK_PARTS)[:, None]  # [BLOCK_PARTS, 1]
    acc = tl.zeros([BLOCK_PARTS, BLOCK], dtype=tl.float32)
    for start in tl.range(0, parts, BLOCK_PARTS):
        mask = (start + part < parts) & (col < size)
        acc += tl.load(partial_ptr + (start + part).to(tl.int64) * size + col, mask=mask, other=0.0)
    total = tl.sum(acc, axis=0, keep_dims=True)  # [1, BLOCK]
    tl.store(c_ptr + col, total.to(c_ptr.dtype.element_ty), mask=col < size)


def sum_parts(partial: torch.Tensor, c: torch.Tensor):
    """c = the sum over the first dimension of partial [parts, ...], contiguous and fp32, rounded once to c's dtype."""
    block = SUM["BLOCK"]
    parts = min(SUM["BLOCK_PARTS"], next_power_of_2(len(partial)))
    sum_parts_kernel[(cdiv(c.numel(), block),)](
        partial, c, c.numel(), len(partial), BLOCK_PARTS=parts, BLOCK=block, num_warps=SUM["num_warps"]
    )


@by_metadata
def _plan(a, b, reduction, parts, precision) -> SplitPlan:
    check_no_grad("matmul_split_k", a=a, b=b)
    check_matrices(a, b)
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction: got {reduction!r}, expected one of {', '.join(REDUCTIONS)}")
    if precision not in ("ieee", "tf32"):
        raise ValueError(f"precision: got {precision!r}, expected 'ieee' or 'tf32'")
    if parts is not None and (not isinstance(parts, int) or parts < 1):
        raise ValueError(f"parts: got {parts!r}, expected None or an integer of at least 1")
    sizes = max(1, a.shape[0]), max(1, b.shape[1]), max(1, a.shape[1])
    return split_plan(*sizes, device_of(a.device), parts, b.stride(0) == 1 and b.stride(1) != 1)


def matmul_split_k(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    reduction: str = "two launches",
    parts: int | None = None,
    precision: str = "ieee",
) -> torch.Tensor:
    """a @ b with the K of each tile split over programs, accumulated in fp32 and rounded once.

    Args:
        a: [M, K], fp16, bf16 or fp32, any strides.
        b: [K, N], the dtype of a, any strides.
        reduction: 'two launches' gives the same bits in every run; 'atomics' does not.
        parts: the most programs per tile; None takes as many as fill the GPU. One part needs no reduction.
        precision: for fp32 operands only: 'ieee' multiplies exactly, 'tf32' uses tensor cores with 10 bits of mantissa.

    Returns:
        [M, N], the dtype of a, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    plan = _plan(a, b, reduction, parts, precision)
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    if not c.numel():
        return c
    if not K:
        return c.zero_()
    atomic = plan.parts > 1 and reduction == "atomics"
    out, partial = c, None
    if atomic:
        out = torch.zeros((M, N), dtype=torch.float32, device=a.device)
    elif plan.parts > 1:
        partial = torch.empty((plan.parts, M, N), dtype=torch.float32, device=a.device)
    matmul_split_k_kernel[(plan.tiles, plan.parts)](
        a, b, out, partial,
        M, N, K,
        *a.stride(), *b.stride(),
        plan.part_k,
        ATOMIC=atomic, PRECISION=precision, GROUP_M=GROUP_M, **plan.tile,
    )  # fmt: skip
    if partial is not None:
        sum_parts(partial, c)
    return c if out is c else out.to(a.dtype)


def matmul_split_k_traffic(
    M: int, N: int, K: int, dtype: torch.dtype, tile: tuple[int, int] | None = None, parts: int = 1
) -> Traffic:
    """The traffic of a matmul whose parts a second launch adds up.

    Args:
        M: rows of a and c.
        N: columns of b and c.
        K: columns of a, rows of b.
        dtype: dtype of a, b and c.
        tile: (BLOCK_M, BLOCK_N) for the requested bytes of programs with this tile; None counts each byte once.
        parts: programs per tile.

    Returns:
        Bytes per tensor, FLOPs and launches.
    """
    down, across = (cdiv(M, tile[0]), cdiv(N, tile[1])) if tile else (1, 1)
    size, partial = dtype.itemsize, parts * M * N * 4
    read = {"a": M * K * across * size, "b": K * N * down * size}
    written = {"c": M * N * size}
    if parts > 1:
        read["partial"] = written["partial"] = partial
    return Traffic(read, written, flops=2 * M * N * K, launches=1 + (parts > 1))
