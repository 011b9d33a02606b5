"""Row sum: y = sum(x) over the last dimension, in fp32.

Minimum traffic: x read once, rows * cols * itemsize, and four bytes written per row. It is a reduction in one pass: a row
up to RESIDENT_BYTES is loaded whole and summed; a wider one is streamed, each lane keeping its own fp32 sum until the
end, so that the order of the additions is fixed and the result is the same in every run.
"""

from functools import cache

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_tensor, check_width, wants_grad
from kernels.rows import MAX_COLS, as_rows, forward_plan, resident_config

PATHS = ("narrow", "resident", "streaming")
RESIDENT_BYTES = 1 << 14  # widest row that is loaded in one go
STREAMING_CONFIG = {"BLOCK": 8192, "num_warps": 16}  # two 16-byte loads of 16-bit values on their way per thread


def row_sum_reference(x: torch.Tensor) -> torch.Tensor:
    """The sum over the last dimension in plain PyTorch, in the precision of x: give it fp64 for a reference."""
    return x.sum(dim=-1)


@triton.jit
def row_sum_resident_kernel(x_ptr, y_ptr, x_row_stride, x_col_stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(x))


@triton.jit
def row_sum_narrow_kernel(
    x_ptr, y_ptr, x_row_stride, x_col_stride, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = (row < rows)[:, None] & (col < cols)[None, :]  # [ROWS, BLOCK]
    x = tl.load(x_ptr + row[:, None] * x_row_stride + col[None, :] * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(x, axis=1), mask=row < rows)


@triton.jit
def row_sum_streaming_kernel(x_ptr, y_ptr, x_row_stride, x_col_stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        total += tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(total))


@cache
def _plan(cols: int, dtype: torch.dtype, path: str | None = None) -> tuple[str, dict]:
    path, config = forward_plan(cols, dtype, RESIDENT_BYTES, path)
    if path == "resident":
        config = resident_config(config["BLOCK"], per_thread=32, most=8)
    return path, STREAMING_CONFIG if path == "streaming" else config


def _forward(x: torch.Tensor, path: str | None = None) -> torch.Tensor:
    if not x.numel():
        return torch.zeros(x.shape[:-1], dtype=torch.float32, device=x.device)
    y = torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
    x = as_rows(x)
    rows, cols = x.shape
    path, config = _plan(cols, x.dtype, path)
    if path == "narrow":
        grid = (triton.cdiv(rows, config["ROWS"]),)
        row_sum_narrow_kernel[grid](x, y, *x.stride(), rows, cols, **config)
    else:
        kernel = row_sum_resident_kernel if path == "resident" else row_sum_streaming_kernel
        kernel[(rows,)](x, y, *x.stride(), cols, **config)
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

    x: [..., cols], fp16, bf16 or fp32, cols up to 1,048,576, any strides; copied only where its rows cannot be addressed
    by one stride. path: which kernel runs, chosen by the width unless given: 'narrow' (several rows per program),
    'resident' (one row, loaded whole) or 'streaming'. Returns a contiguous fp32 tensor of shape x.shape[:-1], zeros where
    cols is 0. Raises ValueError naming the argument.
    """
    check_tensor("x", x)
    check_width("x", x, MAX_COLS)
    if path not in (None, *PATHS):
        raise ValueError(f"path: got {path!r}, expected None or one of {', '.join(PATHS)}")
    return _RowSum.apply(x, path) if wants_grad(x) else _forward(x, path)


def row_sum_traffic(rows: int, cols: int, dtype: torch.dtype) -> Traffic:
    """What the row sum moves, on every path."""
    return Traffic({"x": rows * cols * dtype.itemsize}, {"y": rows * 4}, rows * max(0, cols - 1), launches=1)
