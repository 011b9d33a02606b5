"""RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight over the last dimension, alone and behind a residual add.

Minimum traffic, forward: x read once, y written once, the weight read once: (2 * rows * cols) * itemsize + weight.
Backward: x and dy read once, dx written once, plus the weight, its gradient and fp32 partial sums of it.
RMSNorm is Zhang and Sennrich's (2019). A row that stays in registers is read once; a wider one is streamed twice. The
backward's partial sums, one row of them per persistent program instead of atomics, are those of Triton's layer norm
tutorial and Liger (2024) taken one step further: no locks, so the result is the same in every run.

Everything is computed in fp32, rounded once at the store.
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_eps, check_tensor, check_width, wants_grad
from kernels.rows import (
    MAX_COLS,
    MAX_COLS_BACKWARD,
    RESIDENT_BLOCK_BACKWARD,
    as_rows,
    backward_plan,
    forward_counts,
    forward_plan,
    pipelined_plan,
    streaming_config,
    sum_partials,
    wide_plan,
)

RESIDENT_BYTES = 1 << 13  # widest row that rmsnorm keeps in registers: beyond, reading it again from L1 is faster
WEIGHT_IN_L1_BYTES = 1 << 14  # widest row beside which the streaming kernel keeps the weight in L1
RESIDENT_BYTES_ADD = 1 << 14  # the same for add_rmsnorm, whose second reading is of what it has just written


def rmsnorm_reference(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm in plain PyTorch, in the precision of its arguments: give it fp64 for a reference."""
    return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + eps) * weight


def add_rmsnorm_reference(x, residual, weight, eps: float = 1e-6):
    """(normed sum, sum) in plain PyTorch, the sum rounded to the dtype of x before it is normalised."""
    new_residual = x + residual
    return rmsnorm_reference(new_residual, weight, eps), new_residual


@triton.jit
def rmsnorm_resident_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, x_col_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = col < cols
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
    y = x * scale * weight
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rmsnorm_narrow_kernel(
    x_ptr, weight_ptr, y_ptr, x_row_stride, x_col_stride, rows, cols, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    col = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK], BLOCK >= cols
    mask = (row < rows) & (col < cols)
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / cols + eps)  # [ROWS, 1]
    tl.store(y_ptr + row * cols + col, (x * scale * weight).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rmsnorm_pipelined_kernel(
    x_ptr, weight_ptr, y_ptr, x_row_stride, x_col_stride, rows, cols, eps, STAGES: tl.constexpr, BLOCK: tl.constexpr
):
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = col < cols
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0)
    for row in tl.range(
        tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES
    ):  # the next rows are on their way
        row = row.to(tl.int64)
        x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
        y = x * scale * weight.to(tl.float32)
        tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rmsnorm_two_pass_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, x_col_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares) / cols + eps)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + col, (x * scale * weight).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rmsnorm_streaming_kernel(
    x_ptr, weight_ptr, y_ptr, x_row_stride, x_col_stride, cols, eps, WEIGHT_IN_L1: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares) / cols + eps)
    last = (tl.cdiv(cols, BLOCK) - 1) * BLOCK
    for back in tl.range(0, cols, BLOCK):  # backwards: what was read last is still in L1
        col = last - back + tl.arange(0, BLOCK)
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        if WEIGHT_IN_L1:
            weight = tl.load(weight_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            tl.store(y_ptr + col, (x * scale * weight).to(y_ptr.dtype.element_ty), mask=mask)
        else:  # rows so wide that L1 is needed for x alone: weight and y pass it by
            weight = tl.load(weight_ptr + col, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)
            y = (x * scale * weight).to(y_ptr.dtype.element_ty)
            tl.store(y_ptr + col, y, mask=mask, cache_modifier=".cs")


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


@triton.jit
def rmsnorm_backward_kernel(
    x_ptr,
    weight_ptr,
    dy_ptr,
    dsum_ptr,
    dx_ptr,
    partial_ptr,
    rows,
    x_row_stride,
    x_col_stride,
    cols,
    eps,
    HAS_DSUM: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    program = tl.program_id(0)
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = col < cols
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0)
    dweight = tl.zeros([BLOCK], dtype=tl.float32)
    for row in tl.range(program, rows, tl.num_programs(0), num_stages=STAGES):
        row = row.to(tl.int64)
        x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        dnormed = dy * weight.to(tl.float32)
        squares, products = tl.sum(x * x), tl.sum(dnormed * x)  # neither waits for the other
        scale = tl.rsqrt(squares / cols + eps)
        dx = scale * dnormed - (products / cols * scale * scale * scale) * x
        if HAS_DSUM:
            dx += tl.load(dsum_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += dy * x * scale
    tl.store(partial_ptr + program.to(tl.int64) * cols + col, dweight, mask=mask)


@triton.jit
def rmsnorm_row_stats_kernel(
    x_ptr, weight_ptr, dy_ptr, scale_ptr, coefficient_ptr, x_row_stride, x_col_stride, cols, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    dy_ptr += row * cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    products = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + col, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
        squares += x * x
        products += dy * weight * x
    scale = tl.rsqrt(tl.sum(squares) / cols + eps)
    tl.store(scale_ptr + row, scale)
    tl.store(coefficient_ptr + row, tl.sum(products) / cols * scale * scale * scale)


@triton.jit
def rmsnorm_wide_backward_kernel(
    x_ptr,
    weight_ptr,
    dy_ptr,
    dsum_ptr,
    scale_ptr,
    coefficient_ptr,
    dx_ptr,
    partial_ptr,
    rows,
    x_row_stride,
    x_col_stride,
    cols,
    HAS_DSUM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    group = tl.program_id(1)
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = col < cols
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
    dweight = tl.zeros([BLOCK], dtype=tl.float32)
    for row in tl.range(group, rows, tl.num_programs(1)):
        row = row.to(tl.int64)
        scale = tl.load(scale_ptr + row)
        coefficient = tl.load(coefficient_ptr + row)
        x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        dx = scale * dy * weight - coefficient * x
        if HAS_DSUM:
            dx += tl.load(dsum_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += dy * x * scale
    tl.store(partial_ptr + group.to(tl.int64) * cols + col, dweight, mask=mask)


_ONE_ROW = {
    "resident": rmsnorm_resident_kernel,
    "two_pass": rmsnorm_two_pass_kernel,
    "streaming": rmsnorm_streaming_kernel,
}
PIPELINED = "pipelined"  # a path of this file's own, beside those of kernels/rows.py


def _forward(x: torch.Tensor, weight: torch.Tensor, eps: float, path: str | None = None) -> torch.Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not x.numel():
        return y
    x = as_rows(x)
    rows, cols = x.shape
    programs, fewest, most, config = pipelined_plan(cols, x.dtype)
    if path == PIPELINED or path is None and fewest <= rows <= most:
        rmsnorm_pipelined_kernel[(min(rows, programs),)](x, weight, y, *x.stride(), rows, cols, eps, **config)
        return y
    path, config = forward_plan(cols, x.dtype, RESIDENT_BYTES, path)
    if path == "streaming":
        config = {**config, "WEIGHT_IN_L1": cols * x.dtype.itemsize <= WEIGHT_IN_L1_BYTES}
    if path == "narrow":
        grid = (triton.cdiv(rows, config["ROWS"]),)
        rmsnorm_narrow_kernel[grid](x, weight, y, *x.stride(), rows, cols, eps, **config)
    else:
        _ONE_ROW[path][(rows,)](x, weight, y, *x.stride(), cols, eps, **config)
    return y


def _add_forward(x, residual, weight, eps):
    y, new_residual = (torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(2))
    if not x.numel():
        return y, new_residual
    x, residual = as_rows(x), as_rows(residual)
    rows, cols = x.shape
    path, config = forward_plan(cols, x.dtype, RESIDENT_BYTES_ADD)
    if path == "narrow":
        grid = (triton.cdiv(rows, config["ROWS"]),)
        add_rmsnorm_narrow_kernel[grid](
            x, residual, weight, y, new_residual, *x.stride(), *residual.stride(), rows, cols, eps, **config
        )
    else:
        kernel = add_rmsnorm_resident_kernel if path == "resident" else add_rmsnorm_streaming_kernel
        kernel[(rows,)](x, residual, weight, y, new_residual, *x.stride(), *residual.stride(), cols, eps, **config)
    return y, new_residual


def rmsnorm_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, dsum: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dx, dweight) for y = rmsnorm(x, weight, eps): what autograd calls, with arguments it has already checked.

    dy: gradient of y, shape and dtype of x. dsum: a second gradient of x, added to dx before it is rounded.
    """
    dx, dweight = torch.empty(x.shape, dtype=x.dtype, device=x.device), torch.zeros_like(weight)
    if not x.numel():
        return dx, dweight
    x, dy = as_rows(x), dy.contiguous()
    dsum = dsum.contiguous() if dsum is not None else None
    rows, cols = x.shape
    if triton.next_power_of_2(cols) <= RESIDENT_BLOCK_BACKWARD:
        programs, config = backward_plan(rows, cols, x.dtype, tensors=2 if dsum is None else 3)
        partial = torch.empty((programs, cols), dtype=torch.float32, device=x.device)
        rmsnorm_backward_kernel[(programs,)](
            x, weight, dy, dsum, dx, partial, rows, *x.stride(), cols, eps, HAS_DSUM=dsum is not None, **config
        )
    else:
        scale, coefficient = torch.empty((2, rows), dtype=torch.float32, device=x.device)
        rmsnorm_row_stats_kernel[(rows,)](
            x, weight, dy, scale, coefficient, *x.stride(), cols, eps, **streaming_config(cols, x.dtype)
        )
        grid, config = wide_plan(rows, cols)
        partial = torch.empty((grid[1], cols), dtype=torch.float32, device=x.device)
        rmsnorm_wide_backward_kernel[grid](
            x,
            weight,
            dy,
            dsum,
            scale,
            coefficient,
            dx,
            partial,
            rows,
            *x.stride(),
            cols,
            HAS_DSUM=dsum is not None,
            **config,
        )
    sum_partials(partial, dweight)
    return dx, dweight


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps, path):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return _forward(x, weight, eps, path)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return *rmsnorm_backward(dy, *ctx.saved_tensors, ctx.eps), None, None


class _AddRMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        y, new_residual = _add_forward(x, residual, weight, eps)
        ctx.save_for_backward(new_residual, weight)
        ctx.eps = eps
        return y, new_residual

    @staticmethod
    @once_differentiable
    def backward(ctx, dy, dnew_residual):
        new_residual, weight = ctx.saved_tensors
        dsum, dweight = rmsnorm_backward(dy, new_residual, weight, ctx.eps, dnew_residual)
        return dsum, dsum, dweight, None


def _check(x, weight, eps, backward: bool):
    check_tensor("x", x)
    check_width("x", x, MAX_COLS_BACKWARD if backward else MAX_COLS)
    check_tensor(
        "weight", weight, shape=x.shape[-1:], like=x, dtypes=(x.dtype, torch.float32), why=", the last dimension of x"
    )
    check_eps(eps)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, *, path: str | None = None) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension; differentiable in x and weight.

    x: [..., cols], fp16, bf16 or fp32, cols 1 to 1,048,576 (to 131,072 where a gradient is wanted), any strides; copied
    only where its rows cannot be addressed by one stride. weight: [cols], dtype of x or fp32. path: which kernel runs,
    chosen by the shape unless given: 'narrow' (several rows per program), 'resident' (one row, kept), 'pipelined' (a few
    rows, one after the other), 'streaming' (read twice, backwards the second time) or 'two_pass' (the same, plainly). Returns a contiguous tensor of x's shape and
    dtype; empty for empty x. Raises ValueError naming the argument.
    """
    backward = wants_grad(x, weight)
    _check(x, weight, eps, backward)
    weight = weight.contiguous()
    return _RMSNorm.apply(x, weight, eps, path) if backward else _forward(x, weight, eps, path)


def add_rmsnorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """(rmsnorm(x + residual), x + residual) in one pass; differentiable in x, residual and weight.

    The sum is rounded to x's dtype and normalised as stored, which is what the two separate ops do. x, residual:
    [..., cols] of one shape and dtype; limits and strides as in `rmsnorm`. Returns (y, new_residual), both contiguous,
    of x's shape and dtype. Raises ValueError naming the argument.
    """
    backward = wants_grad(x, residual, weight)
    _check(x, weight, eps, backward)
    check_tensor("residual", residual, shape=x.shape, like=x, dtypes=(x.dtype,), why=", the shape of x")
    weight = weight.contiguous()
    return _AddRMSNorm.apply(x, residual, weight, eps) if backward else _add_forward(x, residual, weight, eps)


def rmsnorm_ops(rows: int, cols: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """What each op of `rmsnorm_reference`, run eagerly in `dtype`, reads and writes, in order: six kernels."""
    full, per_row, weight = rows * cols * dtype.itemsize, rows * dtype.itemsize, cols * dtype.itemsize
    n = rows * cols

    def op(read, written, flops):
        return Traffic(read, written, flops, launches=1)

    return {
        "x * x": op({"x": full}, {"squares": full}, n),
        "mean": op({"squares": full}, {"mean": per_row}, n),
        "+ eps": op({"mean": per_row}, {"shifted": per_row}, rows),
        "rsqrt": op({"shifted": per_row}, {"scale": per_row}, rows),
        "x * scale": op({"x": full, "scale": per_row}, {"normed": full}, n),
        "* weight": op({"normed": full, "weight": weight}, {"y": full}, n),
    }


def rmsnorm_traffic(
    rows: int,
    cols: int,
    dtype: torch.dtype,
    path: str = "resident",
    cached: bool = True,
    weight_dtype: torch.dtype | None = None,
) -> Traffic:
    """What RMSNorm forward moves. path: one of `rmsnorm`'s ('narrow', 'resident' and 'pipelined' read x once, 'streaming'
    and 'two_pass' twice), or 'naive' (six eager ops).

    cached: the weight, which all rows share, is counted once, as caches serve the rest; False counts what the programs
    ask for. weight_dtype: dtype unless given.
    """
    if path == "naive":
        return sum(rmsnorm_ops(rows, cols, dtype).values())
    if path == PIPELINED:
        passes, programs = 1, min(rows, pipelined_plan(cols, dtype)[0])
    else:
        passes, programs = forward_counts(rows, cols, path)
    full = rows * cols * dtype.itemsize
    weight = cols * (weight_dtype or dtype).itemsize * (1 if cached else programs)
    return Traffic({"x": full * passes, "weight": weight}, {"y": full}, flops=4 * rows * cols + 4 * rows, launches=1)


def add_rmsnorm_traffic(
    rows: int, cols: int, dtype: torch.dtype, path: str = "resident", cached: bool = True
) -> Traffic:
    """What residual add and RMSNorm move. path: fused, as for `rmsnorm_traffic`, or 'unfused', an add and a RMSNorm."""
    full = rows * cols * dtype.itemsize
    if path == "unfused":
        add = Traffic({"x": full, "residual": full}, {"new_residual": full}, rows * cols, launches=1)
        norm = rmsnorm_traffic(rows, cols, dtype, cached=cached)
        read = {"new_residual": norm.read["x"], "weight": norm.read["weight"]}
        return add + Traffic(read, norm.written, norm.flops, launches=1)
    passes, programs = forward_counts(rows, cols, path)
    read = {"x": full, "residual": full, "weight": cols * dtype.itemsize * (1 if cached else programs)}
    if passes == 2:
        read["new_residual"] = full
    return Traffic(read, {"new_residual": full, "y": full}, flops=5 * rows * cols + 4 * rows, launches=1)


def rmsnorm_backward_traffic(
    rows: int, cols: int, dtype: torch.dtype, cached: bool = True, programs: int | None = None, dsum: bool = False
) -> Traffic:
    """What the backward and its final sum move. dsum: with a second gradient of x, as behind `add_rmsnorm`.

    programs: persistent programs of the resident backward, each with one partial row; this machine's number unless given.
    """
    full, weight, flops = rows * cols * dtype.itemsize, cols * dtype.itemsize, 12 * rows * cols
    second = {"dsum": full} if dsum else {}
    if triton.next_power_of_2(cols) <= RESIDENT_BLOCK_BACKWARD:
        programs = programs or backward_plan(rows, cols, dtype, tensors=3 if dsum else 2)[0]
        partial = programs * cols * 4
        return Traffic(
            {"x": full, "dy": full, "weight": weight * (1 if cached else programs), **second, "partial": partial},
            {"dx": full, "partial": partial, "total": weight},
            flops,
            launches=2,
        )
    (blocks, groups), _ = wide_plan(rows, cols)
    statistic, partial = rows * 4, groups * cols * 4
    asked = statistic * (1 if cached else blocks)
    return Traffic(
        {
            "x": 2 * full,
            "dy": 2 * full,
            "weight": weight * (1 if cached else rows + groups),
            **second,
            "scale": asked,
            "coefficient": asked,
            "partial": partial,
        },
        {"dx": full, "scale": statistic, "coefficient": statistic, "partial": partial, "total": weight},
        flops,
        launches=3,
    )
