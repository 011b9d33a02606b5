"""Matrix times vector (GEMV): the matmul of one row, as every linear layer in decode with one sequence.

Minimum traffic: b read once, K*N*itemsize bytes, and next to nothing else; 2*K*N FLOPs, so 1 FLOP/byte in 16 bits. A
tensor core would multiply 15 rows of padding along. This kernel uses CUDA cores instead: a program keeps a tile of
partial sums in registers, one per element of the tile that it loads, and reduces it once at the end. Long K is split
over programs where the columns alone would not fill the GPU, and a second launch adds the parts (split_k.py).

b may lie by rows or by columns, as the transpose of a linear layer's weight [N, K] does. The compiler sees which of the
two strides is 1, gives neighboring threads neighboring addresses, and reduces across threads or within one.

GEMV by tiles of partial sums is BLAS practice; the loop is that of `row_sum`, with a weight for each element.
"""

from dataclasses import dataclass

import torch

from instruments.backend import cdiv, tl, triton
from instruments.traffic import Traffic
from kernels.matmul.split_k import sum_parts
from kernels.shared.arguments import check_no_grad, check_tensor
from kernels.shared.device import Device, device_of
from kernels.shared.metadata import by_metadata

#: Tiles by the direction in which b is contiguous: wide along it, so that a warp reads whole lines.
BY_ROWS = {"BLOCK_K": 16, "BLOCK_N": 512, "num_warps": 4, "num_stages": 4}
BY_COLUMNS = {"BLOCK_K": 1024, "BLOCK_N": 4, "num_warps": 8, "num_stages": 4}
PROGRAMS_PER_SM = 8
PART_K = 512  # the fewest elements of K in a part


@dataclass(frozen=True)
class GemvPlan:
    """How the columns and the K of b are distributed.

    Args:
        tile: tile constants, num_warps and num_stages, by the kernel's names for them.
        columns: programs across N.
        parts: programs along K.
        part_k: elements of K in a part, a multiple of BLOCK_K.
    """

    tile: dict
    columns: int
    parts: int
    part_k: int


def gemv_plan(N: int, K: int, by_columns: bool, device: Device) -> GemvPlan:
    """The plan for b [K, N]. by_columns: whether b is contiguous along K."""
    tile = BY_COLUMNS if by_columns else BY_ROWS
    columns = cdiv(N, tile["BLOCK_N"])
    parts = max(1, min(cdiv(device.sms * PROGRAMS_PER_SM, columns), K // PART_K))
    part_k = cdiv(cdiv(K, parts), tile["BLOCK_K"]) * tile["BLOCK_K"]
    return GemvPlan(tile, columns, cdiv(K, part_k), part_k)


@triton.jit
def gemv_kernel(
    x_ptr, b_ptr, y_ptr,
    N, K,
    x_stride, b_row_stride, b_col_stride,
    part_k,
    BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """BLOCK_N elements of one part of y per program: x [K], b [K, N] of any strides; y [parts, N]. A tile [BLOCK_K,
    BLOCK_N] of b at a time."""
    col = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
    part = tl.program_id(1).to(tl.int64)
    first = part * part_k
    last = tl.minimum(first + part_k, K)
    acc = tl.zeros([BLOCK_K, BLOCK_N], dtype=tl.float32)
    for start in tl.range(first, last, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)[:, None]  # [BLOCK_K, 1]
        x = tl.load(x_ptr + k * x_stride, mask=k < last, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + k * b_row_stride + col * b_col_stride, mask=(k < last) & (col < N), other=0.0)
        acc += x * b.to(tl.float32)
    total = tl.sum(acc, axis=0, keep_dims=True)  # [1, BLOCK_N]
    tl.store(y_ptr + part * N + col, total.to(y_ptr.dtype.element_ty), mask=col < N)


@by_metadata
def _plan(x, b) -> GemvPlan:
    check_no_grad("gemv", x=x, b=b)
    check_tensor("x", x)
    check_tensor("b", b, like=x, dtypes=(x.dtype,))
    if x.dim() != 1:
        raise ValueError(f"x: got {x.dim()} dimensions, expected 1")
    if b.dim() != 2 or b.shape[0] != x.shape[0]:
        raise ValueError(f"b: got shape {tuple(b.shape)}, expected ({x.shape[0]}, N), after x of {x.shape[0]} elements")
    by_columns = b.stride(0) == 1 and b.stride(1) != 1
    return gemv_plan(max(1, b.shape[1]), max(1, b.shape[0]), by_columns, device_of(x.device))


def gemv(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """x @ b for a vector x, accumulated in fp32 and rounded once; the same bits in every run.

    Args:
        x: [K], fp16, bf16 or fp32, any stride.
        b: [K, N], the dtype of x, any strides. `weight.T` of a linear layer's weight [N, K] is read as it lies.

    Returns:
        [N], the dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.
    """
    plan = _plan(x, b)
    K, N = b.shape
    y = torch.empty(N, dtype=x.dtype, device=x.device)
    if not N:
        return y
    if not K:
        return y.zero_()
    out = y if plan.parts == 1 else torch.empty((plan.parts, N), dtype=torch.float32, device=x.device)
    gemv_kernel[(plan.columns, plan.parts)](x, b, out, N, K, *x.stride(), *b.stride(), plan.part_k, **plan.tile)
    if out is not y:
        sum_parts(out, y)
    return y


def gemv_traffic(N: int, K: int, dtype: torch.dtype, plan: GemvPlan | None = None) -> Traffic:
    """The traffic of a GEMV.

    Args:
        N: columns of b.
        K: rows of b.
        dtype: dtype of x, b and y.
        plan: for the requested bytes of this plan's programs; None counts each byte once.

    Returns:
        Bytes per tensor, FLOPs and launches.
    """
    size, parts = dtype.itemsize, plan.parts if plan else 1
    read = {"x": K * (plan.columns if plan else 1) * size, "b": K * N * size}
    written = {"y": N * size}
    if parts > 1:
        read["partial"] = written["partial"] = parts * N * 4
    return Traffic(read, written, flops=2 * K * N, launches=1 + (parts > 1))
