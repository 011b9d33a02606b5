"""LayerNorm's backward: dx, dweight and dbias of y = (x - mean) / sqrt(var + eps) * weight + bias.

Minimum traffic: x and dy read once, dx written once, plus weight, both parameter gradients and fp32 partial sums of
them, one row of each per program, as in RMSNorm's backward. Its reference is autograd's of `layernorm_reference`.
"""

import torch

from instruments.backend import tl, triton
from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.rows import Device, as_rows, backward_plan, device_of, streaming, sum_partials
from kernels.welford import row_mean_and_scale


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
    """Every so many-th row, kept: x, dy, dx [rows, cols], weight [cols], both partials [programs, cols]."""
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
    """One row in steps of [BLOCK]: stats [4, rows] are mean, scale, and means of dnormed and of dnormed * normed."""
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
    """[BLOCK] columns of every so many-th row; tensors as before, both partials [groups of rows, cols]."""
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
    plan = backward_plan(cols, x.itemsize, 2, device_of(x.device))
    programs = plan.programs(rows)
    partials = torch.empty((2, programs, cols), dtype=torch.float32, device=x.device)
    if plan.path == "resident":
        layernorm_backward_kernel[(programs,)](
            x, weight, dy, dx, *partials, rows, *x.stride(), cols, eps, **plan.config
        )
    else:
        stats = torch.empty((4, rows), dtype=torch.float32, device=x.device)
        steps = streaming(cols, x.itemsize)["config"]
        layernorm_row_stats_kernel[(rows,)](x, weight, dy, stats, rows, *x.stride(), cols, eps, **steps)
        layernorm_wide_backward_kernel[(plan.blocks, programs)](
            x, weight, dy, stats, dx, *partials, rows, *x.stride(), cols, **plan.config
        )
    sum_partials(partials[0], dweight)
    sum_partials(partials[1], dbias)
    return dx, dweight, dbias


def layernorm_backward_traffic(
    rows: int, cols: int, dtype: torch.dtype, cached: bool = True, gpu: GPU | Device = GPUS["H200"]
) -> Traffic:
    """What the backward and its two final sums move on a GPU, whose size decides how many partial sums there are.

    cached: as for `layernorm_traffic`. gpu: the H200 of the course's figures unless given, on any machine.
    """
    full, parameter = rows * cols * dtype.itemsize, cols * dtype.itemsize
    plan = backward_plan(cols, dtype.itemsize, 2, gpu)
    programs = plan.programs(rows)
    partials = dict.fromkeys(("dweight_partial", "dbias_partial"), programs * cols * 4)
    read = {"x": plan.passes * full, "dy": plan.passes * full, **partials}
    written = {"dx": full, **partials, "dweight": parameter, "dbias": parameter}
    asked, launches = programs, 3
    if plan.path == "wide":
        read["x"] += full  # for mean and scale, without which no product can be formed
        read["stats"] = 4 * rows * 4 * (1 if cached else plan.blocks)
        written["stats"] = 4 * rows * 4
        asked, launches = rows + programs, 4
    read["weight"] = parameter * (1 if cached else asked)
    return Traffic(read, written, 17 * rows * cols, launches)
