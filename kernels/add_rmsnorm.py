"""Residual add and RMSNorm in one kernel: new_residual = x + residual, y = rmsnorm(new_residual).

Minimum traffic: x and residual read once, new_residual and y written once, the weight read once: 4 * rows * cols *
itemsize + weight, where an add and a norm of its own move 5. The sum is rounded to x's dtype before it is normalised,
as by two ops. RMSNorm is Zhang and Sennrich's (2019).
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_tensor, wants_grad
from kernels.rmsnorm import check_norm, rmsnorm_reference, rmsnorm_traffic
from kernels.rmsnorm_backward import rmsnorm_backward
from kernels.rows import (
    MAX_COLS,
    NARROW_TILE,
    RESIDENT_COLS,
    Path,
    always,
    as_rows,
    is_narrow,
    narrow,
    plan,
    reads,
    resident,
    streaming,
)


def add_rmsnorm_reference(x, residual, weight, eps: float = 1e-6):
    """(normed sum, sum) in plain PyTorch, the sum rounded to the dtype of x before it is normalised."""
    new_residual = x + residual
    return rmsnorm_reference(new_residual, weight, eps), new_residual


@triton.jit
def add_rmsnorm_resident_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    y_ptr,
    new_residual_ptr,
    x_row_stride,
    x_col_stride,
    residual_row_stride,
    residual_col_stride,
    cols,
    eps,
    BLOCK: tl.constexpr,
):
    """One row, kept: weight [cols], the rest [rows, cols]; x, residual of any strides, y, new_residual contiguous."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = col < cols
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    residual_ptr += row * residual_row_stride + col * residual_col_stride
    residual = tl.load(residual_ptr, mask=mask, other=0.0).to(tl.float32)
    stored = (x + residual).to(new_residual_ptr.dtype.element_ty)
    tl.store(new_residual_ptr + row * cols + col, stored, mask=mask)
    total = stored.to(tl.float32)  # what the next layer reads is what is normalised
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(total * total) / cols + eps)
    tl.store(y_ptr + row * cols + col, (total * scale * weight).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def add_rmsnorm_narrow_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    y_ptr,
    new_residual_ptr,
    x_row_stride,
    x_col_stride,
    residual_row_stride,
    residual_col_stride,
    rows,
    cols,
    eps,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Several rows, kept in one tile [ROWS, BLOCK]; tensors as for the resident kernel."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    col = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK], BLOCK >= cols
    mask = (row < rows) & (col < cols)
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    residual_ptr += row * residual_row_stride + col * residual_col_stride
    residual = tl.load(residual_ptr, mask=mask, other=0.0).to(tl.float32)
    stored = (x + residual).to(new_residual_ptr.dtype.element_ty)
    tl.store(new_residual_ptr + row * cols + col, stored, mask=mask)
    total = stored.to(tl.float32)
    weight = tl.load(weight_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(total * total, axis=1, keep_dims=True) / cols + eps)  # [ROWS, 1]
    tl.store(y_ptr + row * cols + col, (total * scale * weight).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def add_rmsnorm_streaming_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    y_ptr,
    new_residual_ptr,
    x_row_stride,
    x_col_stride,
    residual_row_stride,
    residual_col_stride,
    cols,
    eps,
    BLOCK: tl.constexpr,
):
    """One row in steps of [BLOCK], the sum read again backwards; tensors as for the resident kernel."""
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
    scale = tl.rsqrt(tl.sum(squares) / cols + eps)  # the sum across the program's threads also orders stores and loads
    tl.debug_barrier()
    last = (tl.cdiv(cols, BLOCK) - 1) * BLOCK
    for back in tl.range(0, cols, BLOCK):
        col = last - back + tl.arange(0, BLOCK)
        mask = col < cols
        total = tl.load(new_residual_ptr + col, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)
        tl.store(y_ptr + col, (total * scale * weight).to(y_ptr.dtype.element_ty), mask=mask, cache_modifier=".cs")


#: Wider rows are kept than by `rmsnorm`: a second reading is of what was only just written.
PATHS = (
    # path, takes, chosen, layout, passes
    Path("narrow", NARROW_TILE // 2, is_narrow, narrow, 1),
    Path("resident", RESIDENT_COLS, lambda cols, nbytes: nbytes <= 16_384, resident, 1),
    Path("streaming", MAX_COLS, always, streaming, 2),
)


def _forward(x, residual, weight, eps):
    y, new_residual = (torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(2))
    if not x.numel():
        return y, new_residual
    x, residual = as_rows(x), as_rows(residual)
    rows, cols = x.shape
    chosen = plan(PATHS, cols, x.itemsize)
    grid = (chosen.programs(rows),)
    tensors = (x, residual, weight, y, new_residual, *x.stride(), *residual.stride())
    if chosen.path == "narrow":
        add_rmsnorm_narrow_kernel[grid](*tensors, rows, cols, eps, **chosen.config)
    else:
        kernel = add_rmsnorm_resident_kernel if chosen.path == "resident" else add_rmsnorm_streaming_kernel
        kernel[grid](*tensors, cols, eps, **chosen.config)
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
    """(rmsnorm(x + residual), x + residual) in one pass; differentiable in x, residual and weight.

    The sum is rounded to x's dtype and normalised as stored, which is what the two separate ops do. x, residual:
    [..., cols] of one shape and dtype; limits and strides as in `rmsnorm`. Returns (y, new_residual), both contiguous,
    of x's shape and dtype. Raises ValueError naming the argument.
    """
    backward = wants_grad(x, residual, weight)
    check_norm(x, weight, eps, backward)
    check_tensor("residual", residual, shape=x.shape, like=x, dtypes=(x.dtype,), why=", the shape of x")
    weight = weight.contiguous()
    return _AddRMSNorm.apply(x, residual, weight, eps) if backward else _forward(x, residual, weight, eps)


def add_rmsnorm_traffic(
    rows: int, cols: int, dtype: torch.dtype, path: str | None = "minimum", cached: bool = True
) -> Traffic:
    """What residual add and RMSNorm move. path: 'minimum', 'narrow', 'resident', 'streaming', None or cached as for
    `rmsnorm_traffic`, or 'unfused', an add and an RMSNorm at its minimum."""
    full = rows * cols * dtype.itemsize
    if path == "unfused":
        add = Traffic({"x": full, "residual": full}, {"new_residual": full}, rows * cols, launches=1)
        norm = rmsnorm_traffic(rows, cols, dtype)
        read = {"new_residual": norm.read["x"], "weight": norm.read["weight"]}
        return add + Traffic(read, norm.written, norm.flops, launches=1)
    passes, programs = reads(PATHS, rows, cols, dtype.itemsize, path)
    read = {"x": full, "residual": full, "weight": cols * dtype.itemsize * (1 if cached else programs)}
    if passes == 2:
        read["new_residual"] = full
    return Traffic(read, {"new_residual": full, "y": full}, flops=5 * rows * cols + 4 * rows, launches=1)
