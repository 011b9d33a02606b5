"""RMSNorm's backward: dx and dweight of y = x / sqrt(mean(x^2) + eps) * weight, also behind a residual add.

Minimum traffic: x and dy read once, dx written once, plus the weight, its gradient and fp32 partial sums of it. The
partial sums, one row of them per persistent program instead of atomics, are those of Triton's layer norm tutorial and
Liger (2024) taken one step further: no locks, so the result is the same in every run. Its reference is autograd's of
`rmsnorm_reference`.
"""

import torch

from instruments.backend import tl, triton
from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.rows import Device, as_rows, backward_plan, device_of, streaming, sum_partials


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
    """Every so many-th row, kept: x, dy, dsum, dx [rows, cols], weight [cols], partial [programs, cols] of dweight."""
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
    """One row in steps of [BLOCK]: scale and coefficient [rows], for dx = scale * dy * weight - coefficient * x."""
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
    """[BLOCK] columns of every so many-th row; tensors as before, partial [groups of rows, cols]."""
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
    plan = backward_plan(cols, x.itemsize, 2 if dsum is None else 3, device_of(x.device))
    programs = plan.programs(rows)
    partial = torch.empty((programs, cols), dtype=torch.float32, device=x.device)
    strides, has_dsum = x.stride(), dsum is not None
    if plan.path == "resident":
        rmsnorm_backward_kernel[(programs,)](
            x, weight, dy, dsum, dx, partial, rows, *strides, cols, eps, HAS_DSUM=has_dsum, **plan.config
        )
    else:
        scale, coefficient = torch.empty((2, rows), dtype=torch.float32, device=x.device)
        steps = streaming(cols, x.itemsize)["config"]
        rmsnorm_row_stats_kernel[(rows,)](x, weight, dy, scale, coefficient, *strides, cols, eps, **steps)
        tensors = (x, weight, dy, dsum, scale, coefficient, dx, partial)
        rmsnorm_wide_backward_kernel[(plan.blocks, programs)](
            *tensors, rows, *strides, cols, HAS_DSUM=has_dsum, **plan.config
        )
    sum_partials(partial, dweight)
    return dx, dweight


def rmsnorm_backward_traffic(
    rows: int, cols: int, dtype: torch.dtype, cached: bool = True, dsum: bool = False, gpu: GPU | Device = GPUS["H200"]
) -> Traffic:
    """What the backward and its final sum move on a GPU, whose size decides how many partial sums there are.

    cached: as for `rmsnorm_traffic`. dsum: with a second gradient of x, as behind `add_rmsnorm`. gpu: the H200 of the
    course's figures unless given, on any machine.
    """
    full, weight = rows * cols * dtype.itemsize, cols * dtype.itemsize
    plan = backward_plan(cols, dtype.itemsize, 3 if dsum else 2, gpu)
    programs = plan.programs(rows)
    partial = programs * cols * 4
    read = {"x": plan.passes * full, "dy": plan.passes * full, "partial": partial} | ({"dsum": full} if dsum else {})
    written = {"dx": full, "partial": partial, "total": weight}
    asked = programs
    if plan.path == "wide":
        asked += rows
        for name in ("scale", "coefficient"):
            read[name] = rows * 4 * (1 if cached else plan.blocks)
            written[name] = rows * 4
    read["weight"] = weight * (1 if cached else asked)
    return Traffic(read, written, 12 * rows * cols, launches=2 if plan.path == "resident" else 3)
