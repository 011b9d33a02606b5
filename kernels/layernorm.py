"""LayerNorm: y = (x - mean) / sqrt(var + eps) * weight + bias over the last dimension.

Minimum traffic: x read once, y written once, weight and bias read once. LayerNorm is Ba, Kiros and Hinton's (2016).

The variance is the mean of (x - mean)^2, never mean(x^2) - mean^2, which cancels: in fp32, at mean 1e4 and standard
deviation 1, it comes out negative. A row that is kept, in one tile or in
several, is simply looked at twice. A streamed one keeps a mean and a sum of
squared deviations per lane, by Welford's update (1962), and merges the lanes by Chan, Golub and LeVeque's (1979).
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_eps, check_tensor, check_width, wants_grad
from kernels.layernorm_backward import layernorm_backward
from kernels.rows import (
    MAX_COLS,
    MAX_COLS_BACKWARD,
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
    reads,
    tiled,
)
from kernels.welford import row_mean_and_scale


def layernorm_reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """LayerNorm in plain PyTorch, in the precision of its arguments: give it fp64 for a reference."""
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(dim=-1, keepdim=True) + eps) * weight + bias


@triton.jit
def layernorm_resident_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, x_row_stride, x_col_stride, cols, eps, BLOCK: tl.constexpr
):
    """One row, kept: x [rows, cols] of any strides, weight and bias [cols], y [rows, cols] contiguous."""
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
def layernorm_tiled_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, x_row_stride, x_col_stride, cols, eps, TILES: tl.constexpr, BLOCK: tl.constexpr
):
    """One row, kept in TILES tiles [BLOCK], of which the last may be ragged; tensors as for the resident kernel."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * cols
    total = tl.zeros([BLOCK], dtype=tl.float32)
    row_tiles = ()
    for i in tl.static_range(TILES):
        col = i * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=0.0).to(tl.float32)
        total += x
        row_tiles = row_tiles + (x,)
    mean = tl.div_rn(tl.sum(total), cols + 0.0)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for i in tl.static_range(TILES):
        centred = tl.where(i * BLOCK + tl.arange(0, BLOCK) < cols, row_tiles[i] - mean, 0.0)
        squares += centred * centred
    scale = tl.rsqrt(tl.sum(squares) / cols + eps)
    for i in tl.static_range(TILES):
        col = i * BLOCK + tl.arange(0, BLOCK)
        mask = col < cols
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + col, mask=mask, other=0.0).to(tl.float32)
        y = (row_tiles[i] - mean) * scale * weight + bias
        tl.store(y_ptr + col, y.to(y_ptr.dtype.element_ty), mask=mask)


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
    """Several rows, kept in one tile [ROWS, BLOCK]; tensors as for the resident kernel."""
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
def layernorm_streaming_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, x_row_stride, x_col_stride, cols, eps, BLOCK: tl.constexpr
):
    """One row, read twice in steps of [BLOCK], the second time backwards; tensors as before."""
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


def _fits_a_tile(cols: int, nbytes: int) -> bool:
    return cols == triton.next_power_of_2(cols) and nbytes <= 16_384


#: Rows of 32 KiB and less are kept; two sums, one after the other, want few warps.
PATHS = (
    # path, takes, chosen, layout, passes
    Path("narrow", NARROW_TILE // 2, is_narrow, narrow, 1),
    Path("resident", RESIDENT_COLS, _fits_a_tile, few_warps, 1),
    Path("tiled", RESIDENT_COLS, lambda cols, nbytes: nbytes <= 32_768, tiled, 1),
    Path("streaming", MAX_COLS, always, long_steps, 2),
)
ONE_ROW = {
    "resident": layernorm_resident_kernel,
    "tiled": layernorm_tiled_kernel,
    "streaming": layernorm_streaming_kernel,
}


def _forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not x.numel():
        return y
    x = as_rows(x)
    rows, cols = x.shape
    chosen = plan(PATHS, cols, x.itemsize)
    grid = (chosen.programs(rows),)
    if chosen.path == "narrow":
        layernorm_narrow_kernel[grid](x, weight, bias, y, *x.stride(), rows, cols, eps, **chosen.config)
    else:
        ONE_ROW[chosen.path][grid](x, weight, bias, y, *x.stride(), cols, eps, **chosen.config)
    return y


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
    only where its rows cannot be addressed by one stride. weight, bias: [cols], dtype of x or fp32. Returns a
    contiguous tensor of x's shape and dtype; empty for empty x. Raises ValueError naming the argument.
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


def layernorm_traffic(
    rows: int, cols: int, dtype: torch.dtype, path: str | None = "minimum", cached: bool = True
) -> Traffic:
    """What LayerNorm forward moves: the 'minimum', each byte once, or what 'narrow', 'resident', 'tiled' or 'streaming'
    moves,
    None for the one of them that `layernorm` chooses. Raises ValueError for a path that takes no such rows.

    cached: weight and bias, which all rows share, are counted once, as caches serve the rest; False counts what the
    programs of a path ask for.
    """
    passes, programs = reads(PATHS, rows, cols, dtype.itemsize, path)
    full, parameter = rows * cols * dtype.itemsize, cols * dtype.itemsize * (1 if cached else programs)
    return Traffic(
        {"x": full * passes, "weight": parameter, "bias": parameter},
        {"y": full},
        flops=7 * rows * cols + 5 * rows,
        launches=1,
    )
