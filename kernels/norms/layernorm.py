"""LayerNorm: y = (x - mean) / sqrt(var + eps) * weight + bias over the last dimension.

Minimum traffic: read x once, write y once, read weight and bias once. LayerNorm comes from Ba, Kiros and Hinton (2016).

The variance is the mean of (x - mean)^2, never mean(x^2) - mean^2, which cancels: in fp32, with mean 1e4 and standard
deviation 1, it comes out negative. A row held in registers, in one tile or in several, is first summed and then
centered. A streamed row has a mean and a sum of squared deviations per element of the tile, by Welford's update (1962),
which are merged at the end by Chan, Golub and LeVeque's rule (1979); see welford.py.
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import next_power_of_2, tl, triton
from instruments.traffic import Traffic
from kernels.norms.layernorm_backward import layernorm_backward
from kernels.norms.welford import row_mean_and_scale
from kernels.shared.arguments import check_eps, check_tensor, check_width, wants_grad
from kernels.shared.rows import (
    MAX_COLS,
    MAX_COLS_BACKWARD,
    NARROW_TILE,
    RESIDENT_COLS,
    RowPath,
    always,
    as_rows,
    few_warps_layout,
    is_narrow,
    long_steps_layout,
    narrow_layout,
    passes_and_programs,
    row_plan,
    tiled_layout,
)


def layernorm_reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """LayerNorm in plain PyTorch, in the precision of its arguments: pass fp64 for a reference."""
    centered = x - x.mean(dim=-1, keepdim=True)
    return centered * torch.rsqrt((centered * centered).mean(dim=-1, keepdim=True) + eps) * weight + bias


@triton.jit
def layernorm_resident_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr,
    x_row_stride, x_col_stride,
    cols, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One row per program, in registers: x [rows, cols] of any strides, weight and bias [cols], y [rows, cols]
    contiguous."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = col < cols
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    mean = tl.div_rn(tl.sum(x), cols + 0.0)  # correctly rounded: in a constant row x - mean is exactly 0
    centered = tl.where(mask, x - mean, 0.0)  # padding would contribute 0 - mean
    scale = tl.rsqrt(tl.sum(centered * centered) / cols + eps)
    # weight and bias are loaded late: registers are scarce until here
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + col, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * cols + col, (centered * scale * weight + bias).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def layernorm_tiled_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr,
    x_row_stride, x_col_stride,
    cols, eps,
    TILES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row per program, held in TILES tiles [BLOCK]; the last may be ragged. Tensors as in the resident kernel."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * cols
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    row_tiles = ()
    for i in tl.static_range(TILES):
        col = i * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=0.0).to(tl.float32)
        acc += x
        row_tiles = row_tiles + (x,)
    mean = tl.div_rn(tl.sum(acc), cols + 0.0)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for i in tl.static_range(TILES):
        centered = tl.where(i * BLOCK + tl.arange(0, BLOCK) < cols, row_tiles[i] - mean, 0.0)
        squares += centered * centered
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
    x_ptr, weight_ptr, bias_ptr, y_ptr,
    x_row_stride, x_col_stride,
    rows, cols, eps,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Several rows per program, held in one tile [ROWS, BLOCK]; tensors as in the resident kernel."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    col = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK], BLOCK >= cols
    mask = (row < rows) & (col < cols)
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    mean = tl.div_rn(tl.sum(x, axis=1, keep_dims=True), cols + 0.0)  # [ROWS, 1]
    centered = tl.where(mask, x - mean, 0.0)  # [ROWS, BLOCK]
    scale = tl.rsqrt(tl.sum(centered * centered, axis=1, keep_dims=True) / cols + eps)
    tl.store(y_ptr + row * cols + col, (centered * scale * weight + bias).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def layernorm_streaming_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr,
    x_row_stride, x_col_stride,
    cols, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One row per program, read twice in steps of [BLOCK], the second time backwards; tensors as in the resident
    kernel."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * cols
    mean, scale = row_mean_and_scale(x_ptr, x_col_stride, cols, eps, BLOCK)
    last = (tl.cdiv(cols, BLOCK) - 1) * BLOCK
    for back in tl.range(0, cols, BLOCK):  # backwards: from the tile that was read last
        col = last - back + tl.arange(0, BLOCK)  # [BLOCK]
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0, eviction_policy="evict_first")
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)
        bias = tl.load(bias_ptr + col, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)
        y = (x.to(tl.float32) - mean) * scale * weight + bias
        tl.store(y_ptr + col, y.to(y_ptr.dtype.element_ty), mask=mask, cache_modifier=".cs")


def _fits_a_tile(cols: int, nbytes: int) -> bool:
    """Whether one tile holds the row without padding."""
    return cols == next_power_of_2(cols) and nbytes <= 16_384


#: Rows up to 32 KiB stay in registers. The second sum waits for the first, so few warps are faster.
PATHS = (
    # name, max_cols, applies, layout, passes
    RowPath("narrow", NARROW_TILE // 2, is_narrow, narrow_layout, 1),
    RowPath("resident", RESIDENT_COLS, _fits_a_tile, few_warps_layout, 1),
    RowPath("tiled", RESIDENT_COLS, lambda cols, nbytes: nbytes <= 32_768, tiled_layout, 1),
    RowPath("streaming", MAX_COLS, always, long_steps_layout, 2),
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
    plan = row_plan(PATHS, cols, x.itemsize)
    grid = (plan.programs(rows),)
    if plan.path == "narrow":
        layernorm_narrow_kernel[grid](x, weight, bias, y, *x.stride(), rows, cols, eps, **plan.config)
    else:
        ONE_ROW[plan.path][grid](x, weight, bias, y, *x.stride(), cols, eps, **plan.config)
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
    """LayerNorm over the last dimension, (x - mean) / sqrt(var + eps) * weight + bias; differentiable in all three.

    Args:
        x: [..., cols], fp16, bf16 or fp32, cols 1 to 1,048,576 (to 131,072 with a gradient), any strides.
        weight: [cols], the dtype of x or fp32.
        bias: [cols], the dtype of x or fp32.
        eps: added to the variance; at least 0.

    Returns:
        [..., cols], the dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        x is copied only if no single stride can address its rows.
    """
    backward = wants_grad(x, weight, bias)
    check_tensor("x", x)
    check_width("x", x, MAX_COLS_BACKWARD if backward else MAX_COLS)
    for name, parameter in (("weight", weight), ("bias", bias)):
        check_tensor(
            name, parameter,
            shape=x.shape[-1:], like=x, dtypes=(x.dtype, torch.float32), why=", the last dimension of x",
        )  # fmt: skip
    check_eps(eps)
    weight, bias = weight.contiguous(), bias.contiguous()
    return _LayerNorm.apply(x, weight, bias, eps) if backward else _forward(x, weight, bias, eps)


def layernorm_traffic(
    rows: int, cols: int, dtype: torch.dtype, path: str | None = "minimum", cached: bool = True
) -> Traffic:
    """The traffic of LayerNorm's forward.

    Args:
        rows: rows of x.
        cols: columns of x.
        dtype: dtype of all tensors.
        path: 'minimum' (each byte once), 'narrow', 'resident', 'tiled' or 'streaming'; None for the one that
            `layernorm` picks.
        cached: count weight and bias, which all rows share, once, as if caches served every further read; False counts
            the requested bytes of every program.

    Returns:
        Bytes per tensor, FLOPs and launches.

    Raises:
        ValueError: for a path that takes no rows of this width.
    """
    passes, programs = passes_and_programs(PATHS, rows, cols, dtype.itemsize, path)
    full, parameter = rows * cols * dtype.itemsize, cols * dtype.itemsize * (1 if cached else programs)
    return Traffic(
        {"x": full * passes, "weight": parameter, "bias": parameter},
        {"y": full},
        flops=7 * rows * cols + 5 * rows,
        launches=1,
    )
