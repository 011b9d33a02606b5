"""RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight over the last dimension.

Minimum traffic: read x once, write y once, read the weight once: 2 * rows * cols * itemsize + weight. A row that fits
in registers is read once; a wider one is streamed twice, but on Hopper rows of more than 64 KiB are shared by clusters
of CTAs and read once (cluster.py). The kernels compute in fp32 and round once, at the store.

RMSNorm comes from Zhang and Sennrich (2019).
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import next_power_of_2, tl, triton
from instruments.launcher import Launch
from instruments.traffic import Traffic
from kernels.norms import cluster
from kernels.norms.rmsnorm_backward import rmsnorm_backward
from kernels.shared.arguments import check_eps, check_tensor, check_width, wants_grad
from kernels.shared.clusters import cluster_layout, cluster_path
from kernels.shared.metadata import by_metadata
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
    narrow_layout,
    never,
    passes_and_programs,
    resident_layout,
    row_plan,
    streaming_layout,
)

WEIGHT_IN_L1_BYTES = 1 << 14  # widest row for which the streaming kernel keeps the weight in L1


def rmsnorm_reference(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm in plain PyTorch, in the precision of its arguments: pass fp64 for a reference."""
    return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + eps) * weight


@triton.jit
def rmsnorm_resident_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, x_col_stride, cols, eps, BLOCK: tl.constexpr):
    """One row per program, in registers: x [rows, cols] of any strides, weight [cols], y [rows, cols] contiguous."""
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
    x_ptr, weight_ptr, y_ptr,
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
    scale = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / cols + eps)  # [ROWS, 1]
    tl.store(y_ptr + row * cols + col, (x * scale * weight).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rmsnorm_two_pass_kernel(x_ptr, weight_ptr, y_ptr, x_row_stride, x_col_stride, cols, eps, BLOCK: tl.constexpr):
    """One row per program, read twice in steps of [BLOCK]; tensors as in the resident kernel."""
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
    x_ptr, weight_ptr, y_ptr,
    x_row_stride, x_col_stride,
    cols, eps,
    WEIGHT_IN_L1: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One row per program, read twice in steps of [BLOCK], the second time backwards; tensors as in the resident
    kernel."""
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
    for back in tl.range(0, cols, BLOCK):  # backwards: from the tile that was read last
        col = last - back + tl.arange(0, BLOCK)
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        if WEIGHT_IN_L1:
            weight = tl.load(weight_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            tl.store(y_ptr + col, (x * scale * weight).to(y_ptr.dtype.element_ty), mask=mask)
        else:  # wider rows: the weight bypasses L1, and y is evicted first
            weight = tl.load(weight_ptr + col, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)
            y = (x * scale * weight).to(y_ptr.dtype.element_ty)
            tl.store(y_ptr + col, y, mask=mask, cache_modifier=".cs")


def _streaming(cols: int, itemsize: int) -> dict:
    """The streaming layout, and where the weight is cached; ablation.py measures this and each other choice."""
    config = streaming_layout(cols, itemsize)["config"]
    return {"config": {**config, "WEIGHT_IN_L1": cols * itemsize <= WEIGHT_IN_L1_BYTES}}


def _is_resident(cols: int, nbytes: int) -> bool:
    """Rows up to 8 KiB; up to 16 KiB also those whose last streaming step would be mostly padding."""
    return nbytes <= 8_192 or nbytes <= 16_384 and cols != next_power_of_2(cols)


def _resident(cols: int, itemsize: int) -> dict:
    """Fewer warps for the rows between 8 and 16 KiB."""
    ragged = cols * itemsize > 8_192 and _is_resident(cols, cols * itemsize)
    return (few_warps_layout if ragged else resident_layout)(cols, itemsize)


def _two_pass(cols: int, itemsize: int) -> dict:
    """The layout of lesson 05's plain kernel for wide rows."""
    return {"config": {"BLOCK": 2048, "num_warps": 8}}


def _cluster(cols: int, itemsize: int) -> dict:
    return cluster_layout(cols, itemsize, cluster.WARPS, cluster.LOADS)


#: Wider rows would fit in registers too, but reading them again from L1 is faster. 'two_pass' only runs by its name.
PATHS = (
    # name, max_cols, applies, layout, passes
    RowPath("narrow", NARROW_TILE // 2, is_narrow, narrow_layout, 1),
    RowPath("resident", RESIDENT_COLS, _is_resident, _resident, 1),
    RowPath("streaming", MAX_COLS, always, _streaming, 2),
    RowPath("two_pass", MAX_COLS, always, _two_pass, 2),
)
#: And on a Hopper GPU, where 'cluster' is taken by `cluster_path`.
HOPPER_PATHS = (*PATHS, RowPath("cluster", MAX_COLS, never, _cluster, 1))
ONE_ROW = {
    "resident": rmsnorm_resident_kernel,
    "streaming": rmsnorm_streaming_kernel,
    "two_pass": rmsnorm_two_pass_kernel,
}


@by_metadata
def _plan(x, weight, eps, path) -> Launch | None:
    """The launch of a call, whose arguments it checks; None where x is empty."""
    check_norm(x, weight, eps, wants_grad(x, weight))
    if not x.numel():
        return None
    x = as_rows(x)
    rows, cols = x.shape
    plan = row_plan(HOPPER_PATHS, cols, x.itemsize, cluster_path(x, path))
    grid = (plan.programs(rows),)
    if plan.path == "cluster":
        return Launch(cluster.rmsnorm_cluster_kernel, grid, x.stride(0), cols, eps, **plan.config)
    if plan.path == "narrow":
        return Launch(rmsnorm_narrow_kernel, grid, *x.stride(), rows, cols, eps, **plan.config)
    return Launch(ONE_ROW[plan.path], grid, *x.stride(), cols, eps, **plan.config)


def _forward(x: torch.Tensor, weight: torch.Tensor, launch: Launch | None) -> torch.Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if launch:
        launch(as_rows(x), weight, y)
    return y


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps, launch):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return _forward(x, weight, launch)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return *rmsnorm_backward(dy, *ctx.saved_tensors, ctx.eps), None, None


def check_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, backward: bool):
    """Raise ValueError unless x can be normalized with this weight and eps."""
    check_tensor("x", x)
    check_width("x", x, MAX_COLS_BACKWARD if backward else MAX_COLS)
    check_tensor(
        "weight", weight, shape=x.shape[-1:], like=x, dtypes=(x.dtype, torch.float32), why=", the last dimension of x"
    )
    check_eps(eps)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, *, path: str | None = None) -> torch.Tensor:
    """RMSNorm over the last dimension, x / sqrt(mean(x^2) + eps) * weight; differentiable in x and weight.

    Args:
        x: [..., cols], fp16, bf16 or fp32, cols 1 to 1,048,576 (to 131,072 with a gradient), any strides.
        weight: [cols], the dtype of x or fp32.
        eps: added to the mean square; at least 0.
        path: the kernel to run: 'narrow' (several rows per program), 'resident' (one row, in registers), 'streaming'
            (one row, read twice, the second time backwards), 'two_pass' (one row, read twice, without cache hints) or
            'cluster' (a cluster of CTAs per row; Gluon, a Hopper GPU). None picks by the width and the GPU.

    Returns:
        [..., cols], the dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        x is copied only if no single stride can address its rows.
    """
    launch, weight = _plan(x, weight, eps, path), weight.contiguous()
    return _RMSNorm.apply(x, weight, eps, launch) if wants_grad(x, weight) else _forward(x, weight, launch)


def rmsnorm_ops(rows: int, cols: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """The traffic of each op of `rmsnorm_reference`, unfused in `dtype`, in order: six kernels."""
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
    """The traffic of RMSNorm's forward.

    Args:
        rows: rows of x.
        cols: columns of x.
        dtype: dtype of x and y.
        path: 'minimum' (each byte once), 'naive' (six unfused ops), or a path of `rmsnorm`; None for the one it picks.
        cached: count the weight, which all rows share, once, as if caches served every further read; False counts the
            requested bytes of every program.
        weight_dtype: dtype of the weight; None for `dtype`.

    Returns:
        Bytes per tensor, FLOPs and launches.

    Raises:
        ValueError: for a path that takes no rows of this width.
    """
    if path == "naive":
        return sum(rmsnorm_ops(rows, cols, dtype).values())
    passes, programs = passes_and_programs(HOPPER_PATHS, rows, cols, dtype.itemsize, path)
    full = rows * cols * dtype.itemsize
    weight = cols * (weight_dtype or dtype).itemsize * (1 if cached else programs)
    return Traffic({"x": full * passes, "weight": weight}, {"y": full}, flops=4 * rows * cols + 4 * rows, launches=1)
