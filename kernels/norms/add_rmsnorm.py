"""Residual add and RMSNorm in one kernel: new_residual = x + residual, y = rmsnorm(new_residual).

Minimum traffic: read x and residual once, write new_residual and y once, read the weight once: 4 * rows * cols *
itemsize + weight. Unfused, an add and a norm move 5 * rows * cols * itemsize + weight. The sum is rounded to x's dtype
before it is normalized, as in two ops.

RMSNorm comes from Zhang and Sennrich (2019).
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.norms.rmsnorm import check_norm, rmsnorm_reference, rmsnorm_traffic
from kernels.norms.rmsnorm_backward import rmsnorm_backward
from kernels.shared.arguments import check_tensor, wants_grad
from kernels.shared.rows import (
    MAX_COLS,
    NARROW_TILE,
    RESIDENT_COLS,
    RowPath,
    always,
    as_rows,
    is_narrow,
    narrow_layout,
    passes_and_programs,
    resident_layout,
    row_plan,
    streaming_layout,
)


def add_rmsnorm_reference(x, residual, weight, eps: float = 1e-6):
    """(norm of the sum, sum) in plain PyTorch; the sum is rounded to the dtype of x before it is normalized."""
    new_residual = x + residual
    return rmsnorm_reference(new_residual, weight, eps), new_residual


@triton.jit
def add_rmsnorm_resident_kernel(
    x_ptr, residual_ptr, weight_ptr, y_ptr, new_residual_ptr,
    x_row_stride, x_col_stride, residual_row_stride, residual_col_stride,
    cols, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One row per program, in registers: weight [cols], the rest [rows, cols]; x and residual of any strides, y and
    new_residual contiguous."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = col < cols
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    residual_ptr += row * residual_row_stride + col * residual_col_stride
    residual = tl.load(residual_ptr, mask=mask, other=0.0).to(tl.float32)
    stored = (x + residual).to(new_residual_ptr.dtype.element_ty)
    tl.store(new_residual_ptr + row * cols + col, stored, mask=mask)
    rounded = stored.to(tl.float32)  # normalize exactly what the next layer will read
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(rounded * rounded) / cols + eps)
    tl.store(y_ptr + row * cols + col, (rounded * scale * weight).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def add_rmsnorm_narrow_kernel(
    x_ptr, residual_ptr, weight_ptr, y_ptr, new_residual_ptr,
    x_row_stride, x_col_stride, residual_row_stride, residual_col_stride,
    rows, cols, eps,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Several rows per program, held in one tile [ROWS, BLOCK]; tensors as in the resident kernel."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    col = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK], BLOCK >= cols
    mask = (row < rows) & (col < cols)
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    residual_ptr += row * residual_row_stride + col * residual_col_stride
    residual = tl.load(residual_ptr, mask=mask, other=0.0).to(tl.float32)
    stored = (x + residual).to(new_residual_ptr.dtype.element_ty)
    tl.store(new_residual_ptr + row * cols + col, stored, mask=mask)
    rounded = stored.to(tl.float32)
    weight = tl.load(weight_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(rounded * rounded, axis=1, keep_dims=True) / cols + eps)  # [ROWS, 1]
    tl.store(y_ptr + row * cols + col, (rounded * scale * weight).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def add_rmsnorm_streaming_kernel(
    x_ptr, residual_ptr, weight_ptr, y_ptr, new_residual_ptr,
    x_row_stride, x_col_stride, residual_row_stride, residual_col_stride,
    cols, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One row per program in steps of [BLOCK]; the second pass reads the sum, backwards. Tensors as in the resident
    kernel."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    residual_ptr += row * residual_row_stride
    y_ptr += row * cols
    new_residual_ptr += row * cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        residual = tl.load(residual_ptr + col * residual_col_stride, mask=mask, other=0.0).to(tl.float32)
        stored = (x + residual).to(new_residual_ptr.dtype.element_ty)
        tl.store(new_residual_ptr + col, stored, mask=mask)
        squares += stored.to(tl.float32) * stored.to(tl.float32)
    scale = tl.rsqrt(tl.sum(squares) / cols + eps)  # a sum over all threads also orders their stores before the loads
    tl.debug_barrier()
    last = (tl.cdiv(cols, BLOCK) - 1) * BLOCK
    for back in tl.range(0, cols, BLOCK):
        col = last - back + tl.arange(0, BLOCK)
        mask = col < cols
        rounded = tl.load(new_residual_ptr + col, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)
        tl.store(y_ptr + col, (rounded * scale * weight).to(y_ptr.dtype.element_ty), mask=mask, cache_modifier=".cs")


#: Wider rows are resident than in `rmsnorm`: here a second pass reads what was only just written.
PATHS = (
    # name, max_cols, applies, layout, passes
    RowPath("narrow", NARROW_TILE // 2, is_narrow, narrow_layout, 1),
    RowPath("resident", RESIDENT_COLS, lambda cols, nbytes: nbytes <= 16_384, resident_layout, 1),
    RowPath("streaming", MAX_COLS, always, streaming_layout, 2),
)


def _forward(x, residual, weight, eps):
    y, new_residual = (torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(2))
    if not x.numel():
        return y, new_residual
    x, residual = as_rows(x), as_rows(residual)
    rows, cols = x.shape
    plan = row_plan(PATHS, cols, x.itemsize)
    grid = (plan.programs(rows),)
    tensors = (x, residual, weight, y, new_residual, *x.stride(), *residual.stride())
    if plan.path == "narrow":
        add_rmsnorm_narrow_kernel[grid](*tensors, rows, cols, eps, **plan.config)
    else:
        kernel = add_rmsnorm_resident_kernel if plan.path == "resident" else add_rmsnorm_streaming_kernel
        kernel[grid](*tensors, cols, eps, **plan.config)
    return y, new_residual


class _AddRMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        y, new_residual = _forward(x, residual, weight, eps)
        ctx.save_for_backward(new_residual, weight)
        ctx.eps = eps
        return y, new_residual

    @staticmethod
    @once_differentiable
    def backward(ctx, dy, dnew_residual):
        new_residual, weight = ctx.saved_tensors
        dsum, dweight = rmsnorm_backward(dy, new_residual, weight, ctx.eps, dnew_residual)
        return dsum, dsum, dweight, None


def add_rmsnorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Residual add and RMSNorm, rmsnorm(x + residual); differentiable in x, residual and weight.

    Args:
        x: [..., cols], fp16, bf16 or fp32, cols 1 to 1,048,576 (to 131,072 with a gradient), any strides.
        residual: [..., cols], the shape and dtype of x, any strides.
        weight: [cols], the dtype of x or fp32.
        eps: added to the mean square; at least 0.

    Returns:
        y and new_residual = x + residual: [..., cols] each, the dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        The sum is rounded to the dtype of x and normalized as stored, as two separate ops would do.
    """
    backward = wants_grad(x, residual, weight)
    check_norm(x, weight, eps, backward)
    check_tensor("residual", residual, shape=x.shape, like=x, dtypes=(x.dtype,), why=", the shape of x")
    weight = weight.contiguous()
    return _AddRMSNorm.apply(x, residual, weight, eps) if backward else _forward(x, residual, weight, eps)


def add_rmsnorm_traffic(
    rows: int, cols: int, dtype: torch.dtype, path: str | None = "minimum", cached: bool = True
) -> Traffic:
    """The traffic of a residual add and RMSNorm.

    Args:
        rows: rows of x.
        cols: columns of x.
        dtype: dtype of all tensors.
        path: 'minimum' (each byte once), 'unfused' (an add, then an RMSNorm at its minimum), 'narrow', 'resident' or
            'streaming'; None for the one that `add_rmsnorm` picks.
        cached: as for `rmsnorm_traffic`.

    Returns:
        Bytes per tensor, FLOPs and launches.

    Raises:
        ValueError: for a path that takes no rows of this width.
    """
    full = rows * cols * dtype.itemsize
    if path == "unfused":
        add = Traffic({"x": full, "residual": full}, {"new_residual": full}, rows * cols, launches=1)
        norm = rmsnorm_traffic(rows, cols, dtype)
        read = {"new_residual": norm.read["x"], "weight": norm.read["weight"]}
        return add + Traffic(read, norm.written, norm.flops, launches=1)
    passes, programs = passes_and_programs(PATHS, rows, cols, dtype.itemsize, path)
    read = {"x": full, "residual": full, "weight": cols * dtype.itemsize * (1 if cached else programs)}
    if passes == 2:
        read["new_residual"] = full
    return Traffic(read, {"new_residual": full, "y": full}, flops=5 * rows * cols + 4 * rows, launches=1)
