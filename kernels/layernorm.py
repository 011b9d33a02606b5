"""LayerNorm: y = (x - mean) / sqrt(var + eps) * weight + bias over the last dimension, forward and backward.

Minimum traffic, forward: x read once, y written once, weight and bias read once. Backward: x and dy read once, dx written
once, plus weight, both parameter gradients and fp32 partial sums of them. LayerNorm is Ba, Kiros and Hinton's (2016).

The variance is the mean of (x - mean)^2, never mean(x^2) - mean^2, which cancels: in fp32, at mean 1e4 and standard
deviation 1, it comes out negative. A resident row is simply looked at twice. A streamed one keeps a mean and a sum of
squared deviations per lane, by Welford's update (1962), and merges the lanes by Chan, Golub and LeVeque's (1979).
"""

from functools import cache

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
    resident_config,
    streaming_config,
    sum_partials,
    wide_plan,
)

RESIDENT_BYTES = 1 << 15  # widest row that is kept in registers
WIDE_CONFIG = {"BLOCK": 8192, "num_warps": 16}  # of the streaming kernel


def layernorm_reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """LayerNorm in plain PyTorch, in the precision of its arguments: give it fp64 for a reference."""
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(dim=-1, keepdim=True) + eps) * weight + bias


@triton.jit
def layernorm_resident_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, x_row_stride, x_col_stride, cols, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = col < cols
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    mean = tl.div_rn(tl.sum(x), cols + 0.0)  # correctly rounded: a constant row is its mean, exactly
    centred = tl.where(mask, x - mean, 0.0)  # the tail is 0 - mean otherwise, and would count
    scale = tl.rsqrt(tl.sum(centred * centred) / cols + eps)
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)  # late: registers are short until here
    bias = tl.load(bias_ptr + col, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * cols + col, (centred * scale * weight + bias).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def layernorm_narrow_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    x_row_stride,
    x_col_stride,
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
    weight = tl.load(weight_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    mean = tl.div_rn(tl.sum(x, axis=1, keep_dims=True), cols + 0.0)  # [ROWS, 1]
    centred = tl.where(mask, x - mean, 0.0)  # [ROWS, BLOCK]
    scale = tl.rsqrt(tl.sum(centred * centred, axis=1, keep_dims=True) / cols + eps)
    tl.store(y_ptr + row * cols + col, (centred * scale * weight + bias).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def row_mean_and_scale(x_ptr, x_col_stride, cols, eps, BLOCK: tl.constexpr):
    """(mean, 1/sqrt(var + eps)) of one row, streamed once: Welford's update per lane, the lanes merged at the end."""
    lane = tl.arange(0, BLOCK)  # [BLOCK]
    mean = tl.zeros([BLOCK], dtype=tl.float32)
    deviations = tl.zeros([BLOCK], dtype=tl.float32)  # sum of (x - mean)^2 of what the lane has seen
    seen = 0.0
    for start in tl.range(0, cols, BLOCK):
        mask = start + lane < cols
        x = tl.load(x_ptr + (start + lane) * x_col_stride, mask=mask, other=0.0, eviction_policy="evict_last")
        seen += 1.0
        delta = tl.where(mask, x.to(tl.float32) - mean, 0.0)
        mean += delta * (1.0 / seen)
        deviations += delta * delta * ((seen - 1.0) * (1.0 / seen))
    count = tl.maximum(tl.cdiv(cols - lane, BLOCK), 0).to(tl.float32)  # how many elements each lane has seen
    row_mean = tl.div_rn(tl.sum(mean * count), cols + 0.0)
    apart = mean - row_mean
    return row_mean, tl.rsqrt(tl.sum(deviations + apart * apart * count) / cols + eps)


@triton.jit
def layernorm_streaming_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, x_row_stride, x_col_stride, cols, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * cols
    mean, scale = row_mean_and_scale(x_ptr, x_col_stride, cols, eps, BLOCK)
    last = (tl.cdiv(cols, BLOCK) - 1) * BLOCK
    for back in tl.range(0, cols, BLOCK):  # backwards: what was read last is still in the nearest cache
        col = last - back + tl.arange(0, BLOCK)  # [BLOCK]
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0, eviction_policy="evict_first")
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)
        bias = tl.load(bias_ptr + col, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)
        y = (x.to(tl.float32) - mean) * scale * weight + bias
        tl.store(y_ptr + col, y.to(y_ptr.dtype.element_ty), mask=mask, cache_modifier=".cs")


@triton.jit
def layernorm_backward_kernel(
    x_ptr,
    weight_ptr,
    dy_ptr,
    dx_ptr,
    dweight_partial_ptr,
    dbias_partial_ptr,
    rows,
    x_row_stride,
    x_col_stride,
    cols,
    eps,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    program = tl.program_id(0)
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = col < cols
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0)
    dweight = tl.zeros([BLOCK], dtype=tl.float32)
    dbias = tl.zeros([BLOCK], dtype=tl.float32)
    for row in tl.range(program, rows, tl.num_programs(0), num_stages=STAGES):
        row = row.to(tl.int64)
        x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        dnormed = dy * weight.to(tl.float32)
        mean, mean_gradient = tl.div_rn(tl.sum(x), cols + 0.0), tl.sum(dnormed) / cols
        centred = tl.where(mask, x - mean, 0.0)
        squares, products = tl.sum(centred * centred), tl.sum(dnormed * centred)
        scale = tl.rsqrt(squares / cols + eps)
        normed = centred * scale
        dx = scale * (dnormed - mean_gradient) - (products / cols * scale * scale) * normed
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += dy * normed
        dbias += dy
    partial = program.to(tl.int64) * cols + col
    tl.store(dweight_partial_ptr + partial, dweight, mask=mask)
    tl.store(dbias_partial_ptr + partial, dbias, mask=mask)


@triton.jit
def layernorm_row_stats_kernel(
    x_ptr, weight_ptr, dy_ptr, stats_ptr, rows, x_row_stride, x_col_stride, cols, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    dy_ptr += row * cols
    mean, scale = row_mean_and_scale(x_ptr, x_col_stride, cols, eps, BLOCK)
    gradients = tl.zeros([BLOCK], dtype=tl.float32)
    products = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + col, mask=mask, other=0.0).to(tl.float32)
        dnormed = dy * tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
        gradients += dnormed
        products += dnormed * (x - mean) * scale
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + rows + row, scale)
    tl.store(stats_ptr + 2 * rows + row, tl.sum(gradients) / cols)
    tl.store(stats_ptr + 3 * rows + row, tl.sum(products) / cols)


@triton.jit
def layernorm_wide_backward_kernel(
    x_ptr,
    weight_ptr,
    dy_ptr,
    stats_ptr,
    dx_ptr,
    dweight_partial_ptr,
    dbias_partial_ptr,
    rows,
    x_row_stride,
    x_col_stride,
    cols,
    BLOCK: tl.constexpr,
):
    group = tl.program_id(1)
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = col < cols
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
    dweight = tl.zeros([BLOCK], dtype=tl.float32)
    dbias = tl.zeros([BLOCK], dtype=tl.float32)
    for row in tl.range(group, rows, tl.num_programs(1)):
        row = row.to(tl.int64)
        mean = tl.load(stats_ptr + row)
        scale = tl.load(stats_ptr + rows + row)
        mean_gradient = tl.load(stats_ptr + 2 * rows + row)
        mean_product = tl.load(stats_ptr + 3 * rows + row)
        x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        normed = (x - mean) * scale
        dx = scale * (dy * weight - mean_gradient - normed * mean_product)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += dy * normed
        dbias += dy
    partial = group.to(tl.int64) * cols + col
    tl.store(dweight_partial_ptr + partial, dweight, mask=mask)
    tl.store(dbias_partial_ptr + partial, dbias, mask=mask)


@cache
def _plan(cols: int, dtype: torch.dtype) -> tuple[str, dict]:
    path, config = forward_plan(cols, dtype, RESIDENT_BYTES)
    if path == "resident":
        config = resident_config(config["BLOCK"], per_thread=32, most=8)  # two sums in turn: few warps, short waits
    return path, WIDE_CONFIG if path == "streaming" else config


def _forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not x.numel():
        return y
    x = as_rows(x)
    rows, cols = x.shape
    path, config = _plan(cols, x.dtype)
    if path == "narrow":
        grid = (triton.cdiv(rows, config["ROWS"]),)
        layernorm_narrow_kernel[grid](x, weight, bias, y, *x.stride(), rows, cols, eps, **config)
    else:
        kernel = layernorm_resident_kernel if path == "resident" else layernorm_streaming_kernel
        kernel[(rows,)](x, weight, bias, y, *x.stride(), cols, eps, **config)
    return y


def layernorm_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dx, dweight, dbias) for y = layernorm(x): what autograd calls, with arguments it has already checked."""
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    dweight, dbias = torch.zeros_like(weight), torch.zeros_like(bias)
    if not x.numel():
        return dx, dweight, dbias
    x, dy = as_rows(x), dy.contiguous()
    rows, cols = x.shape
    if triton.next_power_of_2(cols) <= RESIDENT_BLOCK_BACKWARD:
        programs, config = backward_plan(rows, cols, x.dtype, tensors=2)
        partials = torch.empty((2, programs, cols), dtype=torch.float32, device=x.device)
        layernorm_backward_kernel[(programs,)](x, weight, dy, dx, *partials, rows, *x.stride(), cols, eps, **config)
    else:
        stats = torch.empty((4, rows), dtype=torch.float32, device=x.device)
        layernorm_row_stats_kernel[(rows,)](
            x, weight, dy, stats, rows, *x.stride(), cols, eps, **streaming_config(cols, x.dtype)
        )
        grid, config = wide_plan(rows, cols)
        partials = torch.empty((2, grid[1], cols), dtype=torch.float32, device=x.device)
        layernorm_wide_backward_kernel[grid](x, weight, dy, stats, dx, *partials, rows, *x.stride(), cols, **config)
    sum_partials(partials[0], dweight)
    sum_partials(partials[1], dbias)
    return dx, dweight, dbias


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.save_for_backward(x, weight, bias)
        ctx.eps = eps
        return _forward(x, weight, bias, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return *layernorm_backward(dy, *ctx.saved_tensors, ctx.eps), None


def layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimension; differentiable in x, weight and bias.

    x: [..., cols], fp16, bf16 or fp32, cols 1 to 1,048,576 (to 131,072 where a gradient is wanted), any strides; copied
    only where its rows cannot be addressed by one stride. weight, bias: [cols], dtype of x or fp32. Returns a contiguous
    tensor of x's shape and dtype; empty for empty x. Raises ValueError naming the argument.
    """
    backward = wants_grad(x, weight, bias)
    check_tensor("x", x)
    check_width("x", x, MAX_COLS_BACKWARD if backward else MAX_COLS)
    for name, parameter in (("weight", weight), ("bias", bias)):
        check_tensor(
            name,
            parameter,
            shape=x.shape[-1:],
            like=x,
            dtypes=(x.dtype, torch.float32),
            why=", the last dimension of x",
        )
    check_eps(eps)
    weight, bias = weight.contiguous(), bias.contiguous()
    return _LayerNorm.apply(x, weight, bias, eps) if backward else _forward(x, weight, bias, eps)


def layernorm_traffic(rows: int, cols: int, dtype: torch.dtype, path: str = "resident", cached: bool = True) -> Traffic:
    """What LayerNorm forward moves. path: 'narrow' or 'resident' (one pass), 'streaming' or 'two_pass' (two).

    cached: weight and bias, which all rows share, are counted once, as caches serve the rest; False counts what the
    programs ask for.
    """
    passes, programs = forward_counts(rows, cols, path)
    full, parameter = rows * cols * dtype.itemsize, cols * dtype.itemsize * (1 if cached else programs)
    return Traffic(
        {"x": full * passes, "weight": parameter, "bias": parameter},
        {"y": full},
        flops=7 * rows * cols + 5 * rows,
        launches=1,
    )


def layernorm_backward_traffic(rows: int, cols: int, dtype: torch.dtype, cached: bool = True) -> Traffic:
    """What the backward and its two final sums move."""
    full, parameter, flops = rows * cols * dtype.itemsize, cols * dtype.itemsize, 17 * rows * cols
    if triton.next_power_of_2(cols) <= RESIDENT_BLOCK_BACKWARD:
        programs = backward_plan(rows, cols, dtype, tensors=2)[0]
        read = {"x": full, "dy": full, "weight": parameter * (1 if cached else programs)}
        stats, launches = {}, 3
    else:
        (blocks, programs), _ = wide_plan(rows, cols)
        read = {
            "x": 3 * full,
            "dy": 2 * full,
            "weight": parameter * (1 if cached else rows + programs),
            "stats": 4 * rows * 4 * (1 if cached else blocks),
        }
        stats, launches = {"stats": 4 * rows * 4}, 4
    partials = dict.fromkeys(("dweight_partial", "dbias_partial"), programs * cols * 4)
    return Traffic(
        {**read, **partials},
        {"dx": full, **stats, **partials, "dweight": parameter, "dbias": parameter},
        flops,
        launches,
    )
