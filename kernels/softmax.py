"""Softmax: y = exp(x - max(x)) / sum(exp(x - max(x))) over the last dimension.

Minimum traffic: x read once, y written once: 2 * rows * cols * itemsize. A row that stays in registers is read once. A
wider one is read twice: for its maximum and its sum together, by Milakov and Gimelshein's online recurrence (2018), and
again for the output.

Everything is computed in fp32, rounded once at the store. exp(d) is exp2(d * log2(e)), with the difference d = x - max
formed first: x * log2(e) overflows where x does not.
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_tensor, check_width, wants_grad
from kernels.causal_softmax import causal_softmax, causal_softmax_reference, causal_softmax_traffic
from kernels.online_softmax import LOWEST, absorb, merge, streaming
from kernels.rows import (
    MAX_COLS,
    NARROW_TILE,
    RESIDENT_COLS,
    TILED_COLS,
    Path,
    always,
    as_rows,
    is_narrow,
    narrow,
    plan,
    reads,
    resident,
    tiled,
)
from kernels.softmax_backward import softmax_backward
from kernels.tiles import LOG2E

__all__ = [
    "PATHS",
    "causal_softmax",
    "causal_softmax_reference",
    "causal_softmax_traffic",
    "softmax",
    "softmax_ops",
    "softmax_reference",
    "softmax_traffic",
]


def softmax_reference(x: torch.Tensor) -> torch.Tensor:
    """Softmax in plain PyTorch, in the precision of its argument: give it fp64 for a reference."""
    exponentials = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@triton.jit
def softmax_resident_kernel(x_ptr, y_ptr, x_row_stride, x_col_stride, cols, BLOCK: tl.constexpr):
    """One row, kept: x [rows, cols] of any strides, y [rows, cols] contiguous."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = col < cols
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=float("-inf")).to(tl.float32)
    exponentials = tl.exp2((x - tl.max(x)) * LOG2E)
    y = exponentials * (1.0 / tl.sum(exponentials))
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_tiled_kernel(x_ptr, y_ptr, x_row_stride, x_col_stride, cols, TILES: tl.constexpr, BLOCK: tl.constexpr):
    """One row, kept in TILES tiles [BLOCK], of which the last may be ragged; tensors as for the resident kernel."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * cols
    largest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    tiles = ()
    for i in tl.static_range(TILES):
        col = i * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=float("-inf")).to(tl.float32)
        largest = tl.maximum(largest, x)
        tiles = tiles + (x,)
    row_largest = tl.max(largest)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    exponentials = ()
    for i in tl.static_range(TILES):
        exponentials = exponentials + (tl.exp2((tiles[i] - row_largest) * LOG2E),)
        total += exponentials[i]
    scale = 1.0 / tl.sum(total)
    for i in tl.static_range(TILES):
        col = i * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + col, (exponentials[i] * scale).to(y_ptr.dtype.element_ty), mask=col < cols)


@triton.jit
def softmax_narrow_kernel(
    x_ptr, y_ptr, x_row_stride, x_col_stride, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Several rows, kept in one tile [ROWS, BLOCK]; tensors as for the resident kernel."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    col = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK], BLOCK >= cols
    mask = (row < rows) & (col < cols)
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=float("-inf")).to(tl.float32)
    exponentials = tl.exp2((x - tl.max(x, axis=1, keep_dims=True)) * LOG2E)
    y = exponentials * (1.0 / tl.sum(exponentials, axis=1, keep_dims=True))
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_streaming_kernel(x_ptr, y_ptr, x_row_stride, x_col_stride, cols, VECTOR: tl.constexpr, BLOCK: tl.constexpr):
    """One row, read twice in steps of [LANES, VECTOR], the second time backwards; tensors as for the resident kernel.

    Each lane has a running maximum and sum of its own, so that no lane waits for another before the row's end.
    """
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * cols
    LANES: tl.constexpr = BLOCK // VECTOR
    step = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]  # [LANES, VECTOR]
    largest = tl.full([LANES], LOWEST, dtype=tl.float32)
    total = tl.zeros([LANES], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + step
        x = tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=float("-inf"), eviction_policy="evict_last")
        largest, total = absorb(largest, total, x.to(tl.float32))
    largest, total = merge(largest, total)
    last = (tl.cdiv(cols, BLOCK) - 1) * BLOCK
    for back in tl.range(0, cols, BLOCK):  # backwards: what was read last is still in the nearest cache
        col = last - back + step
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.exp2((x - largest) * LOG2E) * (1.0 / total)
        tl.store(y_ptr + col, y.to(y_ptr.dtype.element_ty), mask=mask, cache_modifier=".cs")


def _fits_a_tile(cols: int, nbytes: int) -> bool:
    return cols == triton.next_power_of_2(cols) and nbytes <= 16_384


PATHS = (
    # path, takes, chosen, layout, passes
    Path("narrow", NARROW_TILE // 2, is_narrow, narrow, 1),
    Path("resident", RESIDENT_COLS, _fits_a_tile, resident, 1),
    Path("tiled", RESIDENT_COLS, lambda cols, nbytes: cols <= TILED_COLS, tiled, 1),
    Path("streaming", MAX_COLS, always, streaming, 2),
)
ONE_ROW = {"resident": softmax_resident_kernel, "tiled": softmax_tiled_kernel, "streaming": softmax_streaming_kernel}


def _forward(x: torch.Tensor, path: str | None = None) -> torch.Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not x.numel():
        return y
    x = as_rows(x)
    rows, cols = x.shape
    chosen = plan(PATHS, cols, x.itemsize, path)
    grid = (chosen.programs(rows),)
    if chosen.path == "narrow":
        softmax_narrow_kernel[grid](x, y, *x.stride(), rows, cols, **chosen.config)
    else:
        ONE_ROW[chosen.path][grid](x, y, *x.stride(), cols, **chosen.config)
    return y


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, path):
        y = _forward(x, path)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return softmax_backward(dy, *ctx.saved_tensors), None


def softmax(x: torch.Tensor, *, path: str | None = None) -> torch.Tensor:
    """exp(x - max(x)) / sum(exp(x - max(x))) over the last dimension; differentiable.

    x: [..., cols], fp16, bf16 or fp32, cols to 1,048,576, any strides; copied only where its rows cannot be addressed
    by one stride. A row that is all -inf, or holds +inf or NaN, comes out NaN. path: which kernel runs, chosen by the
    width unless given: 'narrow' (several rows per program), 'resident' (one row, kept), 'tiled' (one row, kept in
    several tiles) or 'streaming' (read twice, backwards the second time). Returns a contiguous tensor of x's shape and
    dtype; empty for empty x. Raises ValueError naming the argument.
    """
    check_tensor("x", x)
    check_width("x", x, MAX_COLS)
    return _Softmax.apply(x, path) if wants_grad(x) else _forward(x, path)


def softmax_ops(rows: int, cols: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """What each op of `softmax_reference`, run eagerly in `dtype`, reads and writes, in order: five kernels."""
    full, per_row, n = rows * cols * dtype.itemsize, rows * dtype.itemsize, rows * cols

    def op(read, written):
        return Traffic(read, written, flops=n, launches=1)

    return {
        "amax": op({"x": full}, {"max": per_row}),
        "x - max": op({"x": full, "max": per_row}, {"shifted": full}),
        "exp": op({"shifted": full}, {"exponentials": full}),
        "sum": op({"exponentials": full}, {"total": per_row}),
        "/ sum": op({"exponentials": full, "total": per_row}, {"y": full}),
    }


def softmax_traffic(rows: int, cols: int, dtype: torch.dtype, path: str | None = "minimum") -> Traffic:
    """What softmax forward moves: the 'minimum', each byte once; 'naive', five eager ops; or a path of `softmax`'s,
    None for the one that it chooses. Raises ValueError for a path that takes no such rows.
    """
    if path == "naive":
        return sum(softmax_ops(rows, cols, dtype).values())
    passes, _ = reads(PATHS, rows, cols, dtype.itemsize, path)
    full = rows * cols * dtype.itemsize
    return Traffic({"x": full * passes}, {"y": full}, flops=5 * rows * cols, launches=1)
