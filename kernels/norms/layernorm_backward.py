"""LayerNorm's backward: dx, dweight and dbias of y = (x - mean) / sqrt(var + eps) * weight + bias.

Minimum traffic: read x and dy once, write dx once, plus the weight, both parameters' gradients and their fp32 partial
sums: one row of each per program, as in rmsnorm_backward.py, which names the sources. The reference is autograd's
gradient of `layernorm_reference`.
"""

import torch

from instruments.backend import tl, triton
from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.norms.welford import row_mean_and_scale
from kernels.shared.device import Device, device_of
from kernels.shared.rows import as_rows, backward_plan, streaming_layout, sum_partials


@triton.jit
def layernorm_backward_kernel(
    x_ptr, weight_ptr, dy_ptr, dx_ptr, dweight_partial_ptr, dbias_partial_ptr,
    rows,
    x_row_stride, x_col_stride,
    cols, eps,
    BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A persistent program, one row at a time: x, dy, dx [rows, cols], weight [cols], and both partials
    [programs, cols]."""
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
        centered = tl.where(mask, x - mean, 0.0)
        squares, dot = tl.sum(centered * centered), tl.sum(dnormed * centered)
        scale = tl.rsqrt(squares / cols + eps)
        normed = centered * scale
        dx = scale * (dnormed - mean_gradient) - (dot / cols * scale * scale) * normed
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += dy * normed
        dbias += dy
    partial = program.to(tl.int64) * cols + col
    tl.store(dweight_partial_ptr + partial, dweight, mask=mask)
    tl.store(dbias_partial_ptr + partial, dbias, mask=mask)


@triton.jit
def layernorm_row_stats_kernel(
    x_ptr, weight_ptr, dy_ptr, stats_ptr,
    rows,
    x_row_stride, x_col_stride,
    cols, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One row per program in steps of [BLOCK]: stats [4, rows] are mean, scale, and the means of dnormed and of
    dnormed * normed."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    dy_ptr += row * cols
    mean, scale = row_mean_and_scale(x_ptr, x_col_stride, cols, eps, BLOCK)
    gradients = tl.zeros([BLOCK], dtype=tl.float32)
    dot = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + col, mask=mask, other=0.0).to(tl.float32)
        dnormed = dy * tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
        gradients += dnormed
        dot += dnormed * (x - mean) * scale
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + rows + row, scale)
    tl.store(stats_ptr + 2 * rows + row, tl.sum(gradients) / cols)
    tl.store(stats_ptr + 3 * rows + row, tl.sum(dot) / cols)


@triton.jit
def layernorm_wide_backward_kernel(
    x_ptr, weight_ptr, dy_ptr, stats_ptr, dx_ptr, dweight_partial_ptr, dbias_partial_ptr,
    rows,
    x_row_stride, x_col_stride,
    cols,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """[BLOCK] columns of a group of rows, one row at a time; tensors as above, both partials [groups, cols]."""
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
        mean_dot = tl.load(stats_ptr + 3 * rows + row)
        x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        normed = (x - mean) * scale
        dx = scale * (dy * weight - mean_gradient - normed * mean_dot)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += dy * normed
        dbias += dy
    partial = group.to(tl.int64) * cols + col
    tl.store(dweight_partial_ptr + partial, dweight, mask=mask)
    tl.store(dbias_partial_ptr + partial, dbias, mask=mask)


def layernorm_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of LayerNorm, which autograd calls.

    Args:
        dy: [..., cols], the gradient of y, the shape and dtype of x.
        x: [..., cols], fp16, bf16 or fp32.
        weight: [cols], contiguous.
        bias: [cols], for its dtype.
        eps: as in the forward.

    Returns:
        dx: [..., cols], the dtype of x; dweight and dbias: [cols], the dtypes of weight and bias.

    Note:
        The arguments are not checked.
    """
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
            x, weight, dy, dx, *partials,
            rows, *x.stride(), cols, eps,
            **plan.config,
        )  # fmt: skip
    else:
        stats = torch.empty((4, rows), dtype=torch.float32, device=x.device)
        steps = streaming_layout(cols, x.itemsize)["config"]
        layernorm_row_stats_kernel[(rows,)](x, weight, dy, stats, rows, *x.stride(), cols, eps, **steps)
        layernorm_wide_backward_kernel[(plan.blocks, programs)](
            x, weight, dy, stats, dx, *partials,
            rows, *x.stride(), cols,
            **plan.config,
        )  # fmt: skip
    sum_partials(partials[0], dweight)
    sum_partials(partials[1], dbias)
    return dx, dweight, dbias


def layernorm_backward_traffic(
    rows: int, cols: int, dtype: torch.dtype, cached: bool = True, gpu: GPU | Device = GPUS["H200"]
) -> Traffic:
    """The traffic of the backward and of its two final sums.

    Args:
        rows: rows of x.
        cols: columns of x.
        dtype: dtype of all tensors.
        cached: as for `layernorm_traffic`.
        gpu: its number of SMs decides how many partial sums there are; the H200 of the recorded figures by default.

    Returns:
        Bytes per tensor, FLOPs and launches.
    """
    full, parameter = rows * cols * dtype.itemsize, cols * dtype.itemsize
    plan = backward_plan(cols, dtype.itemsize, 2, gpu)
    programs = plan.programs(rows)
    partials = dict.fromkeys(("dweight_partial", "dbias_partial"), programs * cols * 4)
    read = {"x": plan.passes * full, "dy": plan.passes * full, **partials}
    written = {"dx": full, **partials, "dweight": parameter, "dbias": parameter}
    weight_reads, launches = programs, 3
    if plan.path == "wide":
        read["x"] += full  # for mean and scale, before the gradients' sums can start
        read["stats"] = 4 * rows * 4 * (1 if cached else plan.blocks)
        written["stats"] = 4 * rows * 4
        weight_reads, launches = rows + programs, 4
    read["weight"] = parameter * (1 if cached else weight_reads)
    return Traffic(read, written, 17 * rows * cols, launches)
