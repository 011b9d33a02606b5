"""Softmax's backward: dx = y * (dy - sum(y * dy)) over the last dimension, from the saved output y.

Minimum traffic: read y and dy once, write dx once: 3 * rows * cols * itemsize. Rows that fit in registers are read
once, wider ones twice. The reference is autograd's gradient of `softmax_reference`.
"""

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.shared.rows import (
    MAX_COLS,
    NARROW_TILE,
    TILED_COLS,
    RowPath,
    always,
    is_narrow,
    narrow_layout,
    passes_and_programs,
    row_plan,
    streaming_layout,
    tiled_layout,
)


@triton.jit
def softmax_backward_resident_kernel(y_ptr, dy_ptr, dx_ptr, cols, TILES: tl.constexpr, BLOCK: tl.constexpr):
    """One row per program, held in TILES tiles [BLOCK]; the last may be ragged. y, dy, dx [rows, cols] contiguous."""
    row = tl.program_id(0).to(tl.int64) * cols
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    y_tiles = ()
    dy_tiles = ()
    for i in tl.static_range(TILES):
        col = i * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
        y = tl.load(y_ptr + row + col, mask=col < cols, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row + col, mask=col < cols, other=0.0).to(tl.float32)
        acc += y * dy
        y_tiles = y_tiles + (y,)
        dy_tiles = dy_tiles + (dy,)
    dot = tl.sum(acc)
    for i in tl.static_range(TILES):
        col = i * BLOCK + tl.arange(0, BLOCK)
        dx = y_tiles[i] * (dy_tiles[i] - dot)
        tl.store(dx_ptr + row + col, dx.to(dx_ptr.dtype.element_ty), mask=col < cols)


@triton.jit
def softmax_backward_narrow_kernel(y_ptr, dy_ptr, dx_ptr, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Several rows per program, held in one tile [ROWS, BLOCK]; tensors as in the resident kernel."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    col = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK], BLOCK >= cols
    mask = (row < rows) & (col < cols)
    y = tl.load(y_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
    dx = y * (dy - tl.sum(y * dy, axis=1, keep_dims=True))
    tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_streaming_kernel(y_ptr, dy_ptr, dx_ptr, cols, BLOCK: tl.constexpr):
    """One row per program, read twice in steps of [BLOCK], the second time backwards; tensors as in the resident
    kernel."""
    row = tl.program_id(0).to(tl.int64) * cols
    y_ptr += row
    dy_ptr += row
    dx_ptr += row
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        mask = col < cols
        y = tl.load(y_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        dy = tl.load(dy_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        acc += y * dy
    dot = tl.sum(acc)
    last = (tl.cdiv(cols, BLOCK) - 1) * BLOCK
    for back in tl.range(0, cols, BLOCK):
        col = last - back + tl.arange(0, BLOCK)
        mask = col < cols
        y = tl.load(y_ptr + col, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dy = tl.load(dy_ptr + col, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - dot)
        tl.store(dx_ptr + col, dx.to(dx_ptr.dtype.element_ty), mask=mask, cache_modifier=".cs")


def _streaming(cols: int, itemsize: int) -> dict:
    """As for a row of twice the width: y and dy share L1."""
    return streaming_layout(2 * cols, itemsize)


PATHS = (
    # name, max_cols, applies, layout, passes
    RowPath("narrow", NARROW_TILE // 2, is_narrow, narrow_layout, 1),
    RowPath("resident", TILED_COLS, always, tiled_layout, 1),
    RowPath("streaming", MAX_COLS, always, _streaming, 2),
)


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, path: str | None = None) -> torch.Tensor:
    """The gradient of softmax, which autograd calls.

    Args:
        dy: [..., cols], the gradient of y, its shape and dtype.
        y: [..., cols], what `softmax` or `causal_softmax` returned; contiguous.
        path: 'narrow', 'resident' or 'streaming', as for `softmax`. None picks by the width.

    Returns:
        dx: [..., cols], the dtype of y.

    Note:
        The arguments are not checked.
    """
    dx = torch.empty_like(y)
    if not y.numel():
        return dx
    cols = y.shape[-1]
    rows = y.numel() // cols
    plan = row_plan(PATHS, cols, y.itemsize, path)
    grid = (plan.programs(rows),)
    tensors = y, dy.contiguous(), dx
    if plan.path == "narrow":
        softmax_backward_narrow_kernel[grid](*tensors, rows, cols, **plan.config)
    else:
        streaming = plan.path == "streaming"
        kernel = softmax_backward_streaming_kernel if streaming else softmax_backward_resident_kernel
        kernel[grid](*tensors, cols, **plan.config)
    return dx


def softmax_backward_traffic(rows: int, cols: int, dtype: torch.dtype, path: str | None = "minimum") -> Traffic:
    """The traffic of softmax's backward.

    Args:
        rows: rows of y.
        cols: columns of y.
        dtype: dtype of y, dy and dx.
        path: 'minimum' (each byte once), or a path of `softmax_backward`; None for the one it picks.

    Returns:
        Bytes per tensor, FLOPs and launches.

    Raises:
        ValueError: for a path that takes no rows of this width.
    """
    passes, _ = passes_and_programs(PATHS, rows, cols, dtype.itemsize, path)
    full = rows * cols * dtype.itemsize
    return Traffic({"y": passes * full, "dy": passes * full}, {"dx": full}, flops=4 * rows * cols, launches=1)
