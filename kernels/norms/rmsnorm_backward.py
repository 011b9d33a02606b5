"""RMSNorm's backward: dx and dweight of y = x / sqrt(mean(x^2) + eps) * weight, also after a residual add.

Minimum traffic: read x and dy once, write dx once, plus the weight, its gradient and the gradient's fp32 partial sums.
The reference is autograd's gradient of `rmsnorm_reference`.

Each persistent program writes one row of partial sums of dweight, and a second kernel sums these rows. The partial sums
come from Triton's layer norm tutorial and Liger (2024). Here they need neither locks nor atomics, so every run gives
the same bits.
"""

import torch

from instruments.backend import tl, triton
from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.shared.device import Device, device_of
from kernels.shared.rows import as_rows, backward_plan, streaming_layout, sum_partials


@triton.jit
def rmsnorm_backward_kernel(
    x_ptr, weight_ptr, dy_ptr, dsum_ptr, dx_ptr, partial_ptr,
    rows,
    x_row_stride, x_col_stride,
    cols, eps,
    HAS_DSUM: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A persistent program, one row at a time: x, dy, dsum, dx [rows, cols], weight [cols], and dweight's partial
    [programs, cols]."""
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
        squares, dot = tl.sum(x * x), tl.sum(dnormed * x)  # independent, so that their latencies overlap
        scale = tl.rsqrt(squares / cols + eps)
        dx = scale * dnormed - (dot / cols * scale * scale * scale) * x
        if HAS_DSUM:
            dx += tl.load(dsum_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += dy * x * scale
    tl.store(partial_ptr + program.to(tl.int64) * cols + col, dweight, mask=mask)


@triton.jit
def rmsnorm_row_stats_kernel(
    x_ptr, weight_ptr, dy_ptr, scale_ptr, coefficient_ptr,
    x_row_stride, x_col_stride,
    cols, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One row per program in steps of [BLOCK]: scale and coefficient [rows], for
    dx = scale * dy * weight - coefficient * x."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    dy_ptr += row * cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    dot = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + col, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
        squares += x * x
        dot += dy * weight * x
    scale = tl.rsqrt(tl.sum(squares) / cols + eps)
    tl.store(scale_ptr + row, scale)
    tl.store(coefficient_ptr + row, tl.sum(dot) / cols * scale * scale * scale)


@triton.jit
def rmsnorm_wide_backward_kernel(
    x_ptr, weight_ptr, dy_ptr, dsum_ptr, scale_ptr, coefficient_ptr, dx_ptr, partial_ptr,
    rows,
    x_row_stride, x_col_stride,
    cols,
    HAS_DSUM: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """[BLOCK] columns of a group of rows, one row at a time; tensors as above, partial [groups, cols]."""
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
    """The gradients of RMSNorm, which autograd calls.

    Args:
        dy: [..., cols], the gradient of y, the shape and dtype of x.
        x: [..., cols], fp16, bf16 or fp32.
        weight: [cols], contiguous.
        eps: as in the forward.
        dsum: [..., cols], a second gradient of x, which is added to dx before it is rounded; None for none.

    Returns:
        dx: [..., cols], the dtype of x, and dweight: [cols], the dtype of weight.

    Note:
        The arguments are not checked.
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
            x, weight, dy, dsum, dx, partial,
            rows, *strides, cols, eps,
            HAS_DSUM=has_dsum, **plan.config,
        )  # fmt: skip
    else:
        scale, coefficient = torch.empty((2, rows), dtype=torch.float32, device=x.device)
        steps = streaming_layout(cols, x.itemsize)["config"]
        rmsnorm_row_stats_kernel[(rows,)](x, weight, dy, scale, coefficient, *strides, cols, eps, **steps)
        rmsnorm_wide_backward_kernel[(plan.blocks, programs)](
            x, weight, dy, dsum, scale, coefficient, dx, partial,
            rows, *strides, cols,
            HAS_DSUM=has_dsum, **plan.config,
        )  # fmt: skip
    sum_partials(partial, dweight)
    return dx, dweight


def rmsnorm_backward_traffic(
    rows: int, cols: int, dtype: torch.dtype, cached: bool = True, dsum: bool = False, gpu: GPU | Device = GPUS["H200"]
) -> Traffic:
    """The traffic of the backward and of its final sum.

    Args:
        rows: rows of x.
        cols: columns of x.
        dtype: dtype of x, dy, dx and weight.
        cached: as for `rmsnorm_traffic`.
        dsum: whether there is a second gradient of x, as after `add_rmsnorm`.
        gpu: its number of SMs decides how many partial sums there are; the H200 of the recorded figures by default.

    Returns:
        Bytes per tensor, FLOPs and launches.
    """
    full, weight = rows * cols * dtype.itemsize, cols * dtype.itemsize
    plan = backward_plan(cols, dtype.itemsize, 3 if dsum else 2, gpu)
    programs = plan.programs(rows)
    partial = programs * cols * 4
    read = {"x": plan.passes * full, "dy": plan.passes * full, "partial": partial} | ({"dsum": full} if dsum else {})
    written = {"dx": full, "partial": partial, "total": weight}
    weight_reads = programs
    if plan.path == "wide":
        weight_reads += rows
        for name in ("scale", "coefficient"):
            read[name] = rows * 4 * (1 if cached else plan.blocks)
            written[name] = rows * 4
    read["weight"] = weight * (1 if cached else weight_reads)
    return Traffic(read, written, 12 * rows * cols, launches=2 if plan.path == "resident" else 3)
