"""Row sum: y = sum(x) over the last dimension, in fp32.

Minimum traffic: x read once, rows * cols * itemsize, and four bytes written per row. A row of up to 16 KiB is loaded
whole and summed; a wider one is streamed, each lane keeping its own fp32 sum until the end. A row of more than
1,048,576 columns is cut into pieces of PIECE, which are streamed by programs of their own into partial sums, and these
are summed like rows: two launches, and no atomics. So the order of the additions is fixed, and the result is the same
in every run and on every GPU.
"""

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_tensor, check_width, wants_grad
from kernels.rows import (
    MAX_COLS,
    NARROW_TILE,
    RESIDENT_COLS,
    Path,
    always,
    as_rows,
    few_warps,
    is_narrow,
    long_steps,
    narrow,
    plan,
)

PIECE = 1 << 15  # columns: a row of MAX_COLS makes as many pieces as fill a good part of a GPU
MAX_COLS_IN_PIECES = 1 << 31


def row_sum_reference(x: torch.Tensor) -> torch.Tensor:
    """The sum over the last dimension in plain PyTorch, in the precision of x: give it fp64 for a reference."""
    return x.sum(dim=-1)


@triton.jit
def row_sum_resident_kernel(x_ptr, y_ptr, x_row_stride, x_col_stride, cols, BLOCK: tl.constexpr):
    """One row, loaded whole: x [rows, cols] of any strides, y [rows]."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(x))


@triton.jit
def row_sum_narrow_kernel(
    x_ptr, y_ptr, x_row_stride, x_col_stride, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Several rows in one tile [ROWS, BLOCK]: x [rows, cols] of any strides, y [rows]."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = (row < rows)[:, None] & (col < cols)[None, :]  # [ROWS, BLOCK]
    x = tl.load(x_ptr + row[:, None] * x_row_stride + col[None, :] * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(x, axis=1), mask=row < rows)


@triton.jit
def row_sum_streaming_kernel(x_ptr, y_ptr, x_row_stride, x_col_stride, cols, BLOCK: tl.constexpr):
    """One row in steps of [BLOCK]: x [rows, cols] of any strides, y [rows]."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        total += tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(total))


@triton.jit
def row_sum_pieces_kernel(
    x_ptr, partial_ptr, x_row_stride, x_col_stride, cols, pieces, PIECE: tl.constexpr, BLOCK: tl.constexpr
):
    """One piece of a row in steps of [BLOCK]: x [rows, cols] of any strides, partial [rows, pieces]."""
    program = tl.program_id(0).to(tl.int64)
    row, first = program // pieces, program % pieces * PIECE
    x_ptr += row * x_row_stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, PIECE, BLOCK):
        col = first + start + tl.arange(0, BLOCK)  # [BLOCK], int64
        total += tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(partial_ptr + program, tl.sum(total))


def _pieces(cols: int, itemsize: int) -> dict:
    config = long_steps(cols, itemsize)["config"]
    return {"config": {**config, "PIECE": PIECE}, "blocks": triton.cdiv(cols, PIECE)}


#: A sum reads and hardly writes: few warps, each with much on its way.
PATHS = (
    # path, takes, chosen, layout, passes
    Path("narrow", NARROW_TILE // 2, is_narrow, narrow, 1),
    Path("resident", RESIDENT_COLS, lambda cols, nbytes: nbytes <= 16_384, few_warps, 1),
    Path("streaming", MAX_COLS, always, long_steps, 1),
    Path("pieces", MAX_COLS_IN_PIECES, always, _pieces, 1),
)


def _forward(x: torch.Tensor, path: str | None = None) -> torch.Tensor:
    shape = x.shape[:-1]
    if not x.numel():
        return torch.zeros(shape, dtype=torch.float32, device=x.device)
    x = as_rows(x)
    rows, cols = x.shape
    chosen = plan(PATHS, cols, x.itemsize, path)
    grid = (chosen.programs(rows) * chosen.blocks,)
    if chosen.path == "pieces":
        partial = torch.empty((rows, chosen.blocks), dtype=torch.float32, device=x.device)
        row_sum_pieces_kernel[grid](x, partial, *x.stride(), cols, chosen.blocks, **chosen.config)
        return _forward(partial).view(shape)
    y = torch.empty(shape, dtype=torch.float32, device=x.device)
    if chosen.path == "narrow":
        row_sum_narrow_kernel[grid](x, y, *x.stride(), rows, cols, **chosen.config)
    else:
        kernel = row_sum_resident_kernel if chosen.path == "resident" else row_sum_streaming_kernel
        kernel[grid](x, y, *x.stride(), cols, **chosen.config)
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
    """The sum over the last dimension, in fp32 whatever x's dtype; differentiable.

    x: [..., cols], fp16, bf16 or fp32, cols up to 2^31, any strides; copied only where its rows cannot be addressed by
    one stride. path: which kernel runs, chosen by the width unless given: 'narrow' (several rows per program),
    'resident' (one row, loaded whole), 'streaming' (one row) or 'pieces' (several programs per row). Returns a
    contiguous fp32 tensor of shape x.shape[:-1], zeros where cols is 0. Raises ValueError naming the argument.
    """
    check_tensor("x", x)
    check_width("x", x, MAX_COLS_IN_PIECES)
    return _RowSum.apply(x, path) if wants_grad(x) else _forward(x, path)


def row_sum_traffic(rows: int, cols: int, dtype: torch.dtype, path: str | None = "minimum") -> Traffic:
    """What the row sum moves: the 'minimum', each byte once, which 'narrow', 'resident' and 'streaming' move too, or
    what 'pieces' moves; None for the one that `row_sum` chooses. Raises ValueError for a path that takes no such
    rows.
    """
    once = Traffic({"x": rows * cols * dtype.itemsize}, {"y": rows * 4}, rows * max(0, cols - 1), launches=1)
    if path == "minimum":
        return once
    chosen = plan(PATHS, cols, dtype.itemsize, path)
    if chosen.path != "pieces":
        return once
    partial = {"partial": chosen.programs(rows) * chosen.blocks * 4}
    return once + Traffic(partial, partial, launches=1)
