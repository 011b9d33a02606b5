"""RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight over the last dimension, alone and behind a residual add.

Minimum traffic, forward: x read once, y written once, the weight read once: (2 * rows * cols) * itemsize + weight.
Backward: x and dy read once, dx written once, plus the weight, its gradient and fp32 partial sums of it.
RMSNorm is Zhang and Sennrich's (2019). A row that stays in registers is read once; a wider one is streamed twice. The
backward's partial sums, one row of them per persistent program instead of atomics, are those of Triton's layer norm
tutorial and Liger (2024) taken one step further: no locks, so the result is the same in every run.

Everything is computed in fp32, rounded once at the store.
"""

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import as_rows, check_eps, check_tensor, check_width, programs_per_wave

MAX_COLS = 1 << 20  # forward
MAX_COLS_BACKWARD = 1 << 17
RESIDENT_BYTES = 1 << 16  # a row of this size still fits in the registers of 16 warps without spills
RESIDENT_COLS_BACKWARD = 1 << 13  # x, dy, weight and its gradient share the registers


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
def rmsnorm_streaming_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, x_col_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares) / cols + eps)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        tl.store(y_ptr + col, (x * scale * weight).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def add_rmsnorm_resident_kernel(x_ptr, residual_ptr, weight_ptr, y_ptr, new_residual_ptr, x_row_stride, x_col_stride,
                                residual_row_stride, residual_col_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = col < cols
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + row * residual_row_stride + col * residual_col_stride, mask=mask, other=0.0)
    stored = (x + residual.to(tl.float32)).to(new_residual_ptr.dtype.element_ty)
    tl.store(new_residual_ptr + row * cols + col, stored, mask=mask)
    total = stored.to(tl.float32)  # what the next layer reads is what is normalised
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(total * total) / cols + eps)
    tl.store(y_ptr + row * cols + col, (total * scale * weight).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def add_rmsnorm_streaming_kernel(x_ptr, residual_ptr, weight_ptr, y_ptr, new_residual_ptr, x_row_stride, x_col_stride,
                                 residual_row_stride, residual_col_stride, cols, eps, BLOCK: tl.constexpr):
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
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        total = tl.load(new_residual_ptr + col, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        tl.store(y_ptr + col, (total * scale * weight).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rmsnorm_backward_kernel(x_ptr, weight_ptr, dy_ptr, dsum_ptr, dx_ptr, partial_ptr, rows, x_row_stride, x_col_stride,
                            cols, eps, HAS_DSUM: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = col < cols
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
    dweight = tl.zeros([BLOCK], dtype=tl.float32)
    for row in tl.range(program, rows, tl.num_programs(0)):
        row = row.to(tl.int64)
        x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
        normed = x * scale
        dnormed = dy * weight
        dx = scale * (dnormed - normed * (tl.sum(dnormed * normed) / cols))
        if HAS_DSUM:
            dx += tl.load(dsum_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += dy * normed
    tl.store(partial_ptr + program.to(tl.int64) * cols + col, dweight, mask=mask)


@triton.jit
def rmsnorm_row_stats_kernel(x_ptr, weight_ptr, dy_ptr, scale_ptr, coefficient_ptr, x_row_stride, x_col_stride, cols, eps,
                             BLOCK: tl.constexpr):
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
def rmsnorm_wide_backward_kernel(x_ptr, weight_ptr, dy_ptr, dsum_ptr, scale_ptr, coefficient_ptr, dx_ptr, partial_ptr, rows,
                                 x_row_stride, x_col_stride, cols, HAS_DSUM: tl.constexpr, BLOCK: tl.constexpr):
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


@triton.jit
def sum_partials_kernel(partial_ptr, total_ptr, count, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    total = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in tl.range(0, count, ROWS):
        row = start + tl.arange(0, ROWS)  # [ROWS]
        mask = (row < count)[:, None] & (col < cols)[None, :]
        total += tl.load(partial_ptr + row.to(tl.int64)[:, None] * cols + col[None, :], mask=mask, other=0.0)
    tl.store(total_ptr + col, tl.sum(total, axis=0).to(total_ptr.dtype.element_ty), mask=col < cols)


def fits_in_registers(cols: int, dtype: torch.dtype) -> bool:
    """Whether a row is kept on chip and read once; wider rows are streamed twice."""
    return cols * dtype.itemsize <= RESIDENT_BYTES


def resident_config(cols: int) -> dict:
    """Tile and warps of a resident kernel: the row's power of two, and one warp per 512 elements, 4 to 16 of them."""
    block = triton.next_power_of_2(cols)
    return {"BLOCK": block, "num_warps": min(16, max(4, block // 512))}


STREAMING_CONFIG = {"BLOCK": 8192, "num_warps": 16}


def _forward(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        rows = as_rows(x)
        cols = rows.shape[1]
        resident = fits_in_registers(cols, x.dtype)
        kernel = rmsnorm_resident_kernel if resident else rmsnorm_streaming_kernel
        kernel[(rows.shape[0], )](rows, weight, y, rows.stride(0), rows.stride(1), cols, eps,
                                  **(resident_config(cols) if resident else STREAMING_CONFIG))
    return y


def _add_forward(x, residual, weight, eps):
    y, new_residual = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(2))
    if x.numel():
        rows, added = as_rows(x), as_rows(residual)
        cols = rows.shape[1]
        resident = fits_in_registers(cols, x.dtype)
        kernel = add_rmsnorm_resident_kernel if resident else add_rmsnorm_streaming_kernel
        kernel[(rows.shape[0], )](rows, added, weight, y, new_residual, rows.stride(0), rows.stride(1), added.stride(0),
                                  added.stride(1), cols, eps, **(resident_config(cols) if resident else STREAMING_CONFIG))
    return y, new_residual


def _backward(dy, x, weight, eps, dsum=None):
    """(dx, dweight) for y = rmsnorm(x); dsum, where given, is a second gradient of x, added to dx before rounding."""
    dx, dweight = torch.empty(x.shape, dtype=x.dtype, device=x.device), torch.zeros_like(weight)
    if not x.numel():
        return dx, dweight
    x_rows, dy = as_rows(x), dy.contiguous()
    dsum = dsum.contiguous() if dsum is not None else None
    rows, cols = x_rows.shape
    strides = x_rows.stride(0), x_rows.stride(1)
    resident = cols <= RESIDENT_COLS_BACKWARD
    if resident:
        count = min(rows, BACKWARD_WAVES * programs_per_wave())
        partial = torch.empty((count, cols), dtype=torch.float32, device=x.device)
        rmsnorm_backward_kernel[(count, )](x_rows, weight, dy, dsum, dx, partial, rows, *strides, cols, eps,
                                           HAS_DSUM=dsum is not None, **backward_config(cols))
    else:
        scale, coefficient = torch.empty((2, rows), dtype=torch.float32, device=x.device)
        rmsnorm_row_stats_kernel[(rows, )](x_rows, weight, dy, scale, coefficient, *strides, cols, eps, **STREAMING_CONFIG)
        blocks = triton.cdiv(cols, WIDE_CONFIG["BLOCK"])
        count = min(rows, max(1, WIDE_WAVES * programs_per_wave() // blocks))
        partial = torch.empty((count, cols), dtype=torch.float32, device=x.device)
        rmsnorm_wide_backward_kernel[(blocks, count)](x_rows, weight, dy, dsum, scale, coefficient, dx, partial, rows,
                                                      *strides, cols, HAS_DSUM=dsum is not None, **WIDE_CONFIG)
    sum_partials(partial, dweight)
    return dx, dweight


BACKWARD_WAVES = 2  # resident backward: persistent programs per multiprocessor
WIDE_WAVES = 8  # wide backward: programs per multiprocessor
WIDE_CONFIG = {"BLOCK": 2048, "num_warps": 4}


def backward_config(cols: int) -> dict:
    """Tile and warps of the resident backward kernel: four rows live in registers, so twice the forward's warps."""
    block = triton.next_power_of_2(cols)
    return {"BLOCK": block, "num_warps": min(16, max(4, block // 512))}


def sum_partials(partial: torch.Tensor, total: torch.Tensor):
    """total[cols] = partial[count, cols] summed over its rows, in fp32, rounded to the dtype of total."""
    count, cols = partial.shape
    sum_partials_kernel[(triton.cdiv(cols, 64), )](partial, total, count, cols, ROWS=32, BLOCK=64, num_warps=4)


class _RMSNorm(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, weight, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return _forward(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        return *_backward(dy, *ctx.saved_tensors, ctx.eps), None


class _AddRMSNorm(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        y, new_residual = _add_forward(x, residual, weight, eps)
        ctx.save_for_backward(new_residual, weight)
        ctx.eps = eps
        return y, new_residual

    @staticmethod
    def backward(ctx, dy, dnew_residual):
        new_residual, weight = ctx.saved_tensors
        dsum, dweight = _backward(dy, new_residual, weight, ctx.eps, dnew_residual)
        return dsum, dsum, dweight, None


def _check(x, weight, eps, backward: bool):
    check_tensor("x", x)
    check_width("x", x, MAX_COLS_BACKWARD if backward else MAX_COLS)
    check_tensor("weight", weight, shape=x.shape[-1:], like=x, dtypes=(x.dtype, torch.float32),
                 why=", the last dimension of x")
    check_eps(eps)


def _wants_grad(*tensors) -> bool:
    return torch.is_grad_enabled() and any(getattr(t, "requires_grad", False) for t in tensors)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension; differentiable in x and weight.

    x: [..., cols], fp16, bf16 or fp32, cols 1 to 1,048,576 (to 131,072 where a gradient is wanted), any strides; copied
    only where its rows cannot be addressed by one stride. weight: [cols], contiguous, dtype of x or fp32. Returns a
    contiguous tensor of x's shape and dtype; empty for empty x. Raises ValueError naming the argument.
    """
    backward = _wants_grad(x, weight)
    _check(x, weight, eps, backward)
    weight = weight.contiguous()
    return _RMSNorm.apply(x, weight, eps) if backward else _forward(x, weight, eps)


def add_rmsnorm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor,
                eps: float = 1e-6) -> tuple[torch.Tensor, torch.Tensor]:
    """(rmsnorm(x + residual), x + residual) in one pass; differentiable in x, residual and weight.

    The sum is rounded to x's dtype and normalised as stored, which is what the two separate ops do. x, residual:
    [..., cols] of one shape and dtype; limits and strides as in `rmsnorm`. Returns (y, new_residual), both contiguous, of
    x's shape and dtype. Raises ValueError naming the argument.
    """
    backward = _wants_grad(x, residual, weight)
    _check(x, weight, eps, backward)
    check_tensor("residual", residual, shape=x.shape, like=x, dtypes=(x.dtype, ), why=", the shape of x")
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


def rmsnorm_traffic(rows: int, cols: int, dtype: torch.dtype, path: str = "resident", cached: bool = True,
                    weight_dtype: torch.dtype | None = None) -> Traffic:
    """What RMSNorm forward moves. path: 'resident' (one pass), 'two_pass' (streaming) or 'naive' (six eager ops).

    cached: the weight, which all rows share, is counted once, as caches serve the rest; False counts what the programs
    ask for. weight_dtype: dtype unless given.
    """
    if path == "naive":
        return sum(rmsnorm_ops(rows, cols, dtype).values())
    if path not in ("resident", "two_pass"):
        raise ValueError(f"path: got {path!r}, expected 'resident', 'two_pass' or 'naive'")
    full = rows * cols * dtype.itemsize
    weight = cols * (weight_dtype or dtype).itemsize * (1 if cached else rows)
    return Traffic({"x": full * (2 if path == "two_pass" else 1), "weight": weight}, {"y": full},
                   flops=4 * rows * cols + 4 * rows, launches=1)


def add_rmsnorm_traffic(rows: int, cols: int, dtype: torch.dtype, path: str = "resident", cached: bool = True) -> Traffic:
    """What residual add and RMSNorm move: fused ('resident', 'two_pass'), or as an add and a resident RMSNorm ('unfused')."""
    full = rows * cols * dtype.itemsize
    if path == "unfused":
        add = Traffic({"x": full, "residual": full}, {"new_residual": full}, rows * cols, launches=1)
        norm = rmsnorm_traffic(rows, cols, dtype, cached=cached)
        return add + Traffic({"new_residual": norm.read["x"], "weight": norm.read["weight"]}, norm.written, norm.flops, 1)
    if path not in ("resident", "two_pass"):
        raise ValueError(f"path: got {path!r}, expected 'resident', 'two_pass' or 'unfused'")
    read = {"x": full, "residual": full, "weight": cols * dtype.itemsize * (1 if cached else rows)}
    if path == "two_pass":
        read["new_residual"] = full
    return Traffic(read, {"new_residual": full, "y": full}, flops=5 * rows * cols + 4 * rows, launches=1)


def rmsnorm_backward_traffic(rows: int, cols: int, dtype: torch.dtype, cached: bool = True,
                             programs: int | None = None) -> Traffic:
    """What the resident backward and its final sum move. programs: persistent programs, each with one partial row."""
    full = rows * cols * dtype.itemsize
    programs = min(rows, programs or BACKWARD_WAVES * programs_per_wave())
    partial, weight = programs * cols * 4, cols * dtype.itemsize
    return Traffic({"x": full, "dy": full, "weight": weight * (1 if cached else programs), "partial": partial},
                   {"dx": full, "partial": partial, "total": weight}, flops=12 * rows * cols, launches=2)
