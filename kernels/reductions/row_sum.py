"""Row sum: y = sum(x) over the last dimension, in fp32.

Minimum traffic: read x once, rows * cols * itemsize, and write four bytes per row. A row of up to 16 KiB is loaded
whole and summed. A wider one is streamed, with one fp32 sum per element of the tile until the end. A row of more than
1,048,576 columns is split into pieces of PIECE columns: a program per piece writes a partial sum, and a second launch
sums the partial sums like rows, the two-stage reduction of Harris's "Optimizing Parallel Reduction in CUDA" (2007).
There are no atomics, so the order of the additions is fixed and every run on every GPU gives the same bits.
"""

import torch

from instruments.backend import cdiv, tl, triton
from instruments.traffic import Traffic
from kernels.shared.arguments import check_tensor, check_width, wants_grad
from kernels.shared.rows import (
    MAX_COLS,
    NARROW_TILE,
    RESIDENT_COLS,
    RowPath,
    always,
    as_rows,
    few_warps_layout,
    is_narrow,
    long_steps_layout,
    narrow_layout,
    row_plan,
)

PIECE = 1 << 15  # columns: already a row of MAX_COLS has enough pieces to occupy a good part of a GPU
MAX_COLS_IN_PIECES = 1 << 31


def row_sum_reference(x: torch.Tensor) -> torch.Tensor:
    """The sum over the last dimension in plain PyTorch, in the precision of x: pass fp64 for a reference."""
    return x.sum(dim=-1)


@triton.jit
def row_sum_resident_kernel(x_ptr, y_ptr, x_row_stride, x_col_stride, cols, BLOCK: tl.constexpr):
    """One row per program, loaded whole: x [rows, cols] of any strides, y [rows]."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(x))


@triton.jit
def row_sum_narrow_kernel(
    x_ptr, y_ptr,
    x_row_stride, x_col_stride,
    rows, cols,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Several rows per program, in one tile [ROWS, BLOCK]: x [rows, cols] of any strides, y [rows]."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = (row < rows)[:, None] & (col < cols)[None, :]  # [ROWS, BLOCK]
    x = tl.load(x_ptr + row[:, None] * x_row_stride + col[None, :] * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(x, axis=1), mask=row < rows)


@triton.jit
def row_sum_streaming_kernel(x_ptr, y_ptr, x_row_stride, x_col_stride, cols, BLOCK: tl.constexpr):
    """One row per program, in steps of [BLOCK]: x [rows, cols] of any strides, y [rows]."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        acc += tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(acc))


@triton.jit
def row_sum_pieces_kernel(
    x_ptr, partial_ptr,
    x_row_stride, x_col_stride,
    cols, pieces,
    PIECE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One piece of a row per program, in steps of [BLOCK]: x [rows, cols] of any strides, partial [rows, pieces]."""
    program = tl.program_id(0).to(tl.int64)
    row, first = program // pieces, program % pieces * PIECE
    x_ptr += row * x_row_stride
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, PIECE, BLOCK):
        col = first + start + tl.arange(0, BLOCK)  # [BLOCK], int64
        acc += tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(partial_ptr + program, tl.sum(acc))


def _pieces(cols: int, itemsize: int) -> dict:
    """A program per piece, in steps as long as a whole row's."""
    config = long_steps_layout(cols, itemsize)["config"]
    return {"config": {**config, "PIECE": PIECE}, "blocks": cdiv(cols, PIECE)}


#: A sum reads a lot and writes little: few warps, each with many bytes in flight.
PATHS = (
    # name, max_cols, applies, layout, passes
    RowPath("narrow", NARROW_TILE // 2, is_narrow, narrow_layout, 1),
    RowPath("resident", RESIDENT_COLS, lambda cols, nbytes: nbytes <= 16_384, few_warps_layout, 1),
    RowPath("streaming", MAX_COLS, always, long_steps_layout, 1),
    RowPath("pieces", MAX_COLS_IN_PIECES, always, _pieces, 1),
)


def _forward(x: torch.Tensor, path: str | None = None) -> torch.Tensor:
    shape = x.shape[:-1]
    if not x.numel():
        return torch.zeros(shape, dtype=torch.float32, device=x.device)
    x = as_rows(x)
    rows, cols = x.shape
    plan = row_plan(PATHS, cols, x.itemsize, path)
    grid = (plan.programs(rows) * plan.blocks,)
    if plan.path == "pieces":
        partial = torch.empty((rows, plan.blocks), dtype=torch.float32, device=x.device)
        row_sum_pieces_kernel[grid](x, partial, *x.stride(), cols, plan.blocks, **plan.config)
        return _forward(partial).view(shape)
    y = torch.empty(shape, dtype=torch.float32, device=x.device)
    if plan.path == "narrow":
        row_sum_narrow_kernel[grid](x, y, *x.stride(), rows, cols, **plan.config)
    else:
        kernel = row_sum_resident_kernel if plan.path == "resident" else row_sum_streaming_kernel
        kernel[grid](x, y, *x.stride(), cols, **plan.config)
    return y


class _RowSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, path):
        ctx.shape, ctx.dtype = x.shape, x.dtype
        return _forward(x, path)

    @staticmethod
    def backward(ctx, dy):
        return dy.to(ctx.dtype).unsqueeze(-1).expand(ctx.shape), None


def row_sum(x: torch.Tensor, *, path: str | None = None) -> torch.Tensor:
    """The sum over the last dimension, in fp32; differentiable.

    Args:
        x: [..., cols], fp16, bf16 or fp32, cols up to 2^31, any strides.
        path: the kernel to run: 'narrow' (several rows per program), 'resident' (one row, loaded whole), 'streaming'
            (one row in steps) or 'pieces' (several programs per row). None picks by the width.

    Returns:
        [...], fp32, contiguous; zeros if cols is 0.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        x is copied only if no single stride can address its rows.
    """
    check_tensor("x", x)
    check_width("x", x, MAX_COLS_IN_PIECES)
    return _RowSum.apply(x, path) if wants_grad(x) else _forward(x, path)


def row_sum_traffic(rows: int, cols: int, dtype: torch.dtype, path: str | None = "minimum") -> Traffic:
    """The traffic of the row sum.

    Args:
        rows: rows of x.
        cols: columns of x.
        dtype: dtype of x.
        path: 'minimum' (each byte once), or a path of `row_sum`; None for the one it picks. Only 'pieces' moves more
            than the minimum.

    Returns:
        Bytes per tensor, FLOPs and launches.

    Raises:
        ValueError: for a path that takes no rows of this width.
    """
    once = Traffic({"x": rows * cols * dtype.itemsize}, {"y": rows * 4}, rows * max(0, cols - 1), launches=1)
    if path == "minimum":
        return once
    plan = row_plan(PATHS, cols, dtype.itemsize, path)
    if plan.path != "pieces":
        return once
    partial = {"partial": plan.programs(rows) * plan.blocks * 4}
    return once + Traffic(partial, partial, launches=1)
