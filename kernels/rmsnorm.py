"""RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight over the last dimension.

Minimum traffic: x read once, y written once, the weight read once: (2 * rows * cols) * itemsize + weight. RMSNorm is
Zhang and Sennrich's (2019). A row that stays in registers is read once; a wider one is streamed twice.

Everything is computed in fp32, rounded once at the store.
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_eps, check_tensor, check_width, wants_grad
from kernels.rmsnorm_backward import rmsnorm_backward
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
    narrow,
    plan,
    reads,
    resident,
    streaming,
)

WEIGHT_IN_L1_BYTES = 1 << 14  # widest row beside which the streaming kernel keeps the weight in L1


def rmsnorm_reference(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm in plain PyTorch, in the precision of its arguments: give it fp64 for a reference."""
    return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + eps) * weight


@triton.jit
def rmsnorm_resident_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, x_col_stride, cols, eps, BLOCK: tl.constexpr):
    """One row, kept: x [rows, cols] of any strides, weight [cols], y [rows, cols] contiguous."""
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
    """Several rows, kept in one tile [ROWS, BLOCK]; tensors as for the resident kernel."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    col = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK], BLOCK >= cols
    mask = (row < rows) & (col < cols)
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / cols + eps)  # [ROWS, 1]
    tl.store(y_ptr + row * cols + col, (x * scale * weight).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rmsnorm_two_pass_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, x_col_stride, cols, eps, BLOCK: tl.constexpr):
    """One row, read twice in steps of [BLOCK]; tensors as for the resident kernel."""
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
    """One row, read twice in steps of [BLOCK], the second time backwards; tensors as before."""
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
    for back in tl.range(0, cols, BLOCK):  # backwards; second_reading.py measures what this and each hint is worth
        col = last - back + tl.arange(0, BLOCK)
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        if WEIGHT_IN_L1:
            weight = tl.load(weight_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            tl.store(y_ptr + col, (x * scale * weight).to(y_ptr.dtype.element_ty), mask=mask)
        else:  # wider rows: the weight passes L1 by, y may leave first
            weight = tl.load(weight_ptr + col, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)
            y = (x * scale * weight).to(y_ptr.dtype.element_ty)
            tl.store(y_ptr + col, y, mask=mask, cache_modifier=".cs")


def _streaming(cols: int, itemsize: int) -> dict:
    config = streaming(cols, itemsize)["config"]
    return {"config": {**config, "WEIGHT_IN_L1": cols * itemsize <= WEIGHT_IN_L1_BYTES}}


def _is_kept(cols: int, nbytes: int) -> bool:
    """Rows to 8 KiB; and to 16 KiB those of which streaming would leave much of a last step empty."""
    return nbytes <= 8_192 or nbytes <= 16_384 and cols != triton.next_power_of_2(cols)


def _resident(cols: int, itemsize: int) -> dict:
    ragged = cols * itemsize > 8_192 and _is_kept(cols, cols * itemsize)
    return (few_warps if ragged else resident)(cols, itemsize)


def _two_pass(cols: int, itemsize: int) -> dict:
    return {"config": {"BLOCK": 2048, "num_warps": 8}}


#: Wider rows would fit in registers too, but reading them again from L1 is faster. Two_pass is never chosen.
PATHS = (
    # path, takes, chosen, layout, passes
    Path("narrow", NARROW_TILE // 2, is_narrow, narrow, 1),
    Path("resident", RESIDENT_COLS, _is_kept, _resident, 1),
    Path("streaming", MAX_COLS, always, _streaming, 2),
    Path("two_pass", MAX_COLS, always, _two_pass, 2),
)
ONE_ROW = {
    "resident": rmsnorm_resident_kernel,
    "streaming": rmsnorm_streaming_kernel,
    "two_pass": rmsnorm_two_pass_kernel,
}


def _forward(x: torch.Tensor, weight: torch.Tensor, eps: float, path: str | None = None) -> torch.Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not x.numel():
        return y
    x = as_rows(x)
    rows, cols = x.shape
    chosen = plan(PATHS, cols, x.itemsize, path)
    grid = (chosen.programs(rows),)
    if chosen.path == "narrow":
        rmsnorm_narrow_kernel[grid](x, weight, y, *x.stride(), rows, cols, eps, **chosen.config)
    else:
        ONE_ROW[chosen.path][grid](x, weight, y, *x.stride(), cols, eps, **chosen.config)
    return y


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


def check_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, backward: bool):
    """Raise ValueError unless x can be normalised with this weight and eps: for `rmsnorm` and `add_rmsnorm`."""
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
    chosen by the width unless given: 'narrow' (several rows per program), 'resident' (one row, kept), 'streaming' (read
    twice, backwards the second time) or 'two_pass' (the same, plainly). Returns a contiguous tensor of x's shape and
    dtype; empty for empty x. Raises ValueError naming the argument.
    """
    backward = wants_grad(x, weight)
    check_norm(x, weight, eps, backward)
    weight = weight.contiguous()
    return _RMSNorm.apply(x, weight, eps, path) if backward else _forward(x, weight, eps, path)


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
    path: str | None = "minimum",
    cached: bool = True,
    weight_dtype: torch.dtype | None = None,
) -> Traffic:
    """What RMSNorm forward moves: the 'minimum', each byte once; 'naive', six eager ops; or a path of `rmsnorm`'s, None
    for the one that it chooses. Raises ValueError for a path that takes no such rows.

    cached: the weight, which all rows share, is counted once, as caches serve the rest; False counts what the programs
    of a path ask for. weight_dtype: dtype unless given.
    """
    if path == "naive":
        return sum(rmsnorm_ops(rows, cols, dtype).values())
    passes, programs = reads(PATHS, rows, cols, dtype.itemsize, path)
    full = rows * cols * dtype.itemsize
    weight = cols * (weight_dtype or dtype).itemsize * (1 if cached else programs)
    return Traffic({"x": full * passes, "weight": weight}, {"y": full}, flops=4 * rows * cols + 4 * rows, launches=1)
