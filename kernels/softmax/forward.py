"""Softmax: y = exp(x - max(x)) / sum(exp(x - max(x))) over the last dimension.

Minimum traffic: read x once, write y once: 2 * rows * cols * itemsize. A row that fits in registers is read once. A
wider one is read twice: first for its max and its sum together, by online softmax (Milakov and Gimelshein, 2018), then
for the output.

The kernels compute in fp32 and round once, at the store. exp(d) is exp2(d * log2(e)), and the difference d = x - max is
taken first: x * log2(e) may overflow where x does not. On Hopper, rows of more than 64 KiB are shared by clusters of
CTAs and read once (cluster.py).
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import next_power_of_2, tl, triton
from instruments.launcher import Launch
from instruments.traffic import Traffic
from kernels.shared.arguments import check_tensor, check_width, wants_grad
from kernels.shared.clusters import cluster_layout, cluster_path
from kernels.shared.metadata import by_metadata
from kernels.shared.rows import (
    MAX_COLS,
    NARROW_TILE,
    RESIDENT_COLS,
    TILED_COLS,
    RowPath,
    alignment,
    always,
    as_rows,
    is_narrow,
    narrow_layout,
    never,
    passes_and_programs,
    resident_layout,
    row_plan,
    tiled_layout,
)
from kernels.shared.tiles import LOG2E
from kernels.softmax import cluster
from kernels.softmax.backward import softmax_backward
from kernels.softmax.online import LOWEST, absorb, merge, streaming_layout


def softmax_reference(x: torch.Tensor) -> torch.Tensor:
    """Softmax in plain PyTorch, in the precision of its argument: pass fp64 for a reference."""
    exponentials = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@triton.jit
def softmax_resident_kernel(x_ptr, y_ptr, x_row_stride, x_col_stride, cols, BLOCK: tl.constexpr):
    """One row per program, in registers: x [rows, cols] of any strides, y [rows, cols] contiguous."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)  # [BLOCK], BLOCK >= cols
    mask = col < cols
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=float("-inf")).to(tl.float32)
    exponentials = tl.exp2((x - tl.max(x)) * LOG2E)
    y = exponentials * (1.0 / tl.sum(exponentials))
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_tiled_kernel(x_ptr, y_ptr, x_row_stride, x_col_stride, cols, TILES: tl.constexpr, BLOCK: tl.constexpr):
    """One row per program, held in TILES tiles [BLOCK]; the last may be ragged. Tensors as in the resident kernel."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * cols
    running_max = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    tiles = ()
    for i in tl.static_range(TILES):
        col = i * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=float("-inf")).to(tl.float32)
        running_max = tl.maximum(running_max, x)
        tiles = tiles + (x,)
    row_max = tl.max(running_max)
    running_sum = tl.zeros([BLOCK], dtype=tl.float32)
    exponentials = ()
    for i in tl.static_range(TILES):
        exponentials = exponentials + (tl.exp2((tiles[i] - row_max) * LOG2E),)
        running_sum += exponentials[i]
    scale = 1.0 / tl.sum(running_sum)
    for i in tl.static_range(TILES):
        col = i * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + col, (exponentials[i] * scale).to(y_ptr.dtype.element_ty), mask=col < cols)


@triton.jit
def softmax_narrow_kernel(
    x_ptr, y_ptr,
    x_row_stride, x_col_stride,
    rows, cols,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Several rows per program, held in one tile [ROWS, BLOCK]; tensors as in the resident kernel."""
    cols, x_row_stride = cols // ALIGN * ALIGN, x_row_stride // ALIGN * ALIGN  # as they are; the compiler learns it
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    col = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK], BLOCK >= cols
    mask = (row < rows) & (col < cols)
    x = tl.load(x_ptr + row * x_row_stride + col * x_col_stride, mask=mask, other=float("-inf")).to(tl.float32)
    exponentials = tl.exp2((x - tl.max(x, axis=1, keep_dims=True)) * LOG2E)
    y = exponentials * (1.0 / tl.sum(exponentials, axis=1, keep_dims=True))
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_streaming_kernel(x_ptr, y_ptr, x_row_stride, x_col_stride, cols, VECTOR: tl.constexpr, BLOCK: tl.constexpr):
    """One row per program, read twice in steps of [GROUPS, VECTOR], the second time backwards; tensors as in the
    resident kernel.

    Each group of VECTOR elements has a running max and a running sum of its own, so that threads exchange nothing until
    the end of the row.
    """
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * cols
    GROUPS: tl.constexpr = BLOCK // VECTOR
    step = tl.arange(0, GROUPS)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]  # [GROUPS, VECTOR]
    running_max = tl.full([GROUPS], LOWEST, dtype=tl.float32)
    running_sum = tl.zeros([GROUPS], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + step
        x = tl.load(x_ptr + col * x_col_stride, mask=col < cols, other=float("-inf"), eviction_policy="evict_last")
        running_max, running_sum = absorb(running_max, running_sum, x.to(tl.float32))
    row_max, row_sum = merge(running_max, running_sum)
    last = (tl.cdiv(cols, BLOCK) - 1) * BLOCK
    for back in tl.range(0, cols, BLOCK):  # backwards: from the tile that was read last
        col = last - back + step
        mask = col < cols
        x = tl.load(x_ptr + col * x_col_stride, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.exp2((x - row_max) * LOG2E) * (1.0 / row_sum)
        tl.store(y_ptr + col, y.to(y_ptr.dtype.element_ty), mask=mask, cache_modifier=".cs")


@triton.jit
def softmax_unaligned_kernel(x_ptr, y_ptr, cols, VECTOR: tl.constexpr, BLOCK: tl.constexpr):
    """The streaming kernel for rows that begin at any element: x and y [rows, cols], contiguous, 16-byte aligned.

    Loads and stores of 16 bytes need aligned addresses. So a row's body begins at its first aligned element, and holds
    whole vectors only; the fewer than VECTOR elements before it and after it are a tile of their own, the edges.
    """
    start = tl.program_id(0).to(tl.int64) * cols
    body_start = tl.cdiv(start, VECTOR) * VECTOR
    head = tl.minimum((body_start - start).to(tl.int32), cols)
    body = (cols - head) // VECTOR * VECTOR
    i = tl.arange(0, 2)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]  # [2, VECTOR]
    edge = tl.where(i < VECTOR, i, body + head - VECTOR + i)  # column of an element before the body, or after it
    edge_mask = tl.where(i < VECTOR, i < head, edge < cols)
    x_edge_ptr, x_body_ptr = x_ptr + start + edge, x_ptr + body_start
    y_edge_ptr, y_body_ptr = y_ptr + start + edge, y_ptr + body_start

    GROUPS: tl.constexpr = BLOCK // VECTOR
    step = tl.arange(0, GROUPS)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]  # [GROUPS, VECTOR]
    running_max = tl.full([GROUPS], LOWEST, dtype=tl.float32)
    running_sum = tl.zeros([GROUPS], dtype=tl.float32)
    for first in tl.range(0, body, BLOCK):
        col = first + step
        x = tl.load(x_body_ptr + col, mask=col < body, other=float("-inf"), eviction_policy="evict_last")
        running_max, running_sum = absorb(running_max, running_sum, x.to(tl.float32))
    body_max, body_sum = merge(running_max, running_sum)
    x_edge = tl.load(x_edge_ptr, mask=edge_mask, other=float("-inf")).to(tl.float32)
    row_max = tl.maximum(body_max, tl.max(x_edge))
    row_sum = body_sum * tl.exp2((body_max - row_max) * LOG2E) + tl.sum(tl.exp2((x_edge - row_max) * LOG2E))

    last = (tl.cdiv(body, BLOCK) - 1) * BLOCK
    for back in tl.range(0, body, BLOCK):  # backwards: from the tile that was read last
        col = last - back + step
        x = tl.load(x_body_ptr + col, mask=col < body, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.exp2((x - row_max) * LOG2E) * (1.0 / row_sum)
        tl.store(y_body_ptr + col, y.to(y_ptr.dtype.element_ty), mask=col < body, cache_modifier=".cs")
    x_edge = tl.load(x_edge_ptr, mask=edge_mask, other=0.0).to(tl.float32)
    y_edge = tl.exp2((x_edge - row_max) * LOG2E) * (1.0 / row_sum)
    tl.store(y_edge_ptr, y_edge.to(y_ptr.dtype.element_ty), mask=edge_mask)


def _fits_a_tile(cols: int, nbytes: int) -> bool:
    """Whether one tile holds the row without padding."""
    return cols == next_power_of_2(cols) and nbytes <= 16_384


def _is_unaligned(cols: int, nbytes: int) -> bool:
    """Whether rows that lie one behind the other begin off the addresses that 16-byte loads need."""
    return nbytes % 16 != 0 and cols >= UNALIGNED_COLS


def _cluster(cols: int, itemsize: int) -> dict:
    return cluster_layout(cols, itemsize, cluster.WARPS, cluster.LOADS)


PATHS = (
    # name, max_cols, applies, layout, passes
    RowPath("narrow", NARROW_TILE // 2, is_narrow, narrow_layout, 1),
    RowPath("unaligned", MAX_COLS, _is_unaligned, streaming_layout, 2),
    RowPath("resident", RESIDENT_COLS, _fits_a_tile, resident_layout, 1),
    RowPath("tiled", RESIDENT_COLS, lambda cols, nbytes: cols <= TILED_COLS, tiled_layout, 1),
    RowPath("streaming", MAX_COLS, always, streaming_layout, 2),
)
#: And on a Hopper GPU, where 'cluster' is taken by `cluster_path`.
HOPPER_PATHS = (*PATHS, RowPath("cluster", MAX_COLS, never, _cluster, 1))
UNALIGNED_COLS = 2049  # below, rows in registers are faster on an H200, two bytes at a time as they are
ONE_ROW = {"resident": softmax_resident_kernel, "tiled": softmax_tiled_kernel, "streaming": softmax_streaming_kernel}


def _rows_of(x: torch.Tensor, unaligned: bool) -> torch.Tensor:
    """x as the kernel takes it: [rows, cols], on path 'unaligned' contiguous from a 16-byte address on."""
    x = as_rows(x)
    if not unaligned:
        return x
    return x.contiguous() if x.data_ptr() % 16 == 0 else x.clone(memory_format=torch.contiguous_format)


@by_metadata
def _plan(x, path) -> tuple[bool, Launch | None]:
    """(whether the path is 'unaligned', the launch) of a call, whose arguments it checks; None where x is empty."""
    check_tensor("x", x)
    check_width("x", x, MAX_COLS)
    if not x.numel():
        return False, None
    x = as_rows(x)
    rows, cols = x.shape
    plan = row_plan(HOPPER_PATHS, cols, x.itemsize, cluster_path(x, path))
    grid = (plan.programs(rows),)
    if plan.path == "cluster":
        return False, Launch(cluster.softmax_cluster_kernel, grid, x.stride(0), cols, **plan.config)
    if plan.path == "unaligned":
        return True, Launch(softmax_unaligned_kernel, grid, cols, **plan.config)
    if plan.path == "narrow":
        align = alignment(cols, x.stride(0))
        return False, Launch(softmax_narrow_kernel, grid, *x.stride(), rows, cols, ALIGN=align, **plan.config)
    return False, Launch(ONE_ROW[plan.path], grid, *x.stride(), cols, **plan.config)


def _forward(x: torch.Tensor, unaligned: bool, launch: Launch | None) -> torch.Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if launch:
        launch(_rows_of(x, unaligned), y)
    return y


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, unaligned, launch):
        y = _forward(x, unaligned, launch)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return softmax_backward(dy, *ctx.saved_tensors), None, None


def softmax(x: torch.Tensor, *, path: str | None = None) -> torch.Tensor:
    """Softmax over the last dimension, exp(x - max(x)) / sum(exp(x - max(x))); differentiable.

    Args:
        x: [..., cols], fp16, bf16 or fp32, cols up to 1,048,576, any strides.
        path: the kernel to run: 'narrow' (several rows per program), 'resident' (one row, in registers), 'tiled' (one
            row, in registers as several tiles), 'streaming' (one row, read twice), 'unaligned' (the same, for rows
            that begin off 16-byte addresses) or 'cluster' (a cluster of CTAs per row; Gluon, a Hopper GPU). None picks
            by the width and the GPU.

    Returns:
        [..., cols], the dtype of x, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        A row that is all -inf, or contains +inf or NaN, becomes NaN. x is copied only if no single stride can address
        its rows; 'unaligned' copies it if it is not contiguous from a 16-byte address on.
    """
    return (_Softmax.apply if wants_grad(x) else _forward)(x, *_plan(x, path))


def softmax_ops(rows: int, cols: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """The traffic of each op of `softmax_reference`, unfused in `dtype`, in order: five kernels."""
    full, per_row, n = rows * cols * dtype.itemsize, rows * dtype.itemsize, rows * cols

    def op(read, written):
        return Traffic(read, written, flops=n, launches=1)

    return {
        "amax": op({"x": full}, {"max": per_row}),
        "x - max": op({"x": full, "max": per_row}, {"shifted": full}),
        "exp": op({"shifted": full}, {"exponentials": full}),
        "sum": op({"exponentials": full}, {"sum": per_row}),
        "/ sum": op({"exponentials": full, "sum": per_row}, {"y": full}),
    }


def softmax_traffic(rows: int, cols: int, dtype: torch.dtype, path: str | None = "minimum") -> Traffic:
    """The traffic of softmax's forward.

    Args:
        rows: rows of x.
        cols: columns of x.
        dtype: dtype of x and y.
        path: 'minimum' (each byte once), 'naive' (five unfused ops), or a path of `softmax`; None for the one it picks.

    Returns:
        Bytes per tensor, FLOPs and launches.

    Raises:
        ValueError: for a path that takes no rows of this width.
    """
    if path == "naive":
        return sum(softmax_ops(rows, cols, dtype).values())
    passes, _ = passes_and_programs(HOPPER_PATHS, rows, cols, dtype.itemsize, path)
    full = rows * cols * dtype.itemsize
    return Traffic({"x": full * passes}, {"y": full}, flops=5 * rows * cols, launches=1)
