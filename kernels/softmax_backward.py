"""Softmax's backward: dx = y * (dy - sum(y * dy)) over the last dimension, from the saved output y.

Minimum traffic: y and dy read once, dx written once: 3 * rows * cols * itemsize. Rows that stay in registers are read
once, wider ones twice. Its reference is autograd's of `softmax_reference`.
"""

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.rows import (
    MAX_COLS,
    NARROW_TILE,
    TILED_COLS,
    Path,
    always,
    is_narrow,
    narrow,
    plan,
    reads,
    streaming,
    tiled,
)


@triton.jit
def softmax_backward_resident_kernel(y_ptr, dy_ptr, dx_ptr, cols, TILES: tl.constexpr, BLOCK: tl.constexpr):
    """One row, kept in TILES tiles [BLOCK], of which the last may be ragged: y, dy, dx [rows, cols] contiguous."""
    row = tl.program_id(0).to(tl.int64) * cols
    products = tl.zeros([BLOCK], dtype=tl.float32)
    y_tiles = ()
    dy_tiles = ()
    for i in tl.static_range(TILES):
        col = i * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
        y = tl.load(y_ptr + row + col, mask=col < cols, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row + col, mask=col < cols, other=0.0).to(tl.float32)
        products += y * dy
        y_tiles = y_tiles + (y,)
        dy_tiles = dy_tiles + (dy,)
    product = tl.sum(products)
    for i in tl.static_range(TILES):
        col = i * BLOCK + tl.arange(0, BLOCK)
        dx = y_tiles[i] * (dy_tiles[i] - product)
        tl.store(dx_ptr + row + col, dx.to(dx_ptr.dtype.element_ty), mask=col < cols)


@triton.jit
def softmax_backward_narrow_kernel(y_ptr, dy_ptr, dx_ptr, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Several rows, kept in one tile [ROWS, BLOCK]; tensors as for the resident kernel."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    col = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK], BLOCK >= cols
    mask = (row < rows) & (col < cols)
    y = tl.load(y_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
    dx = y * (dy - tl.sum(y * dy, axis=1, keep_dims=True))
    tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_streaming_kernel(y_ptr, dy_ptr, dx_ptr, cols, BLOCK: tl.constexpr):
    """One row, read twice in steps of [BLOCK], the second time backwards; tensors as for the resident kernel."""
    row = tl.program_id(0).to(tl.int64) * cols
    y_ptr += row
    dy_ptr += row
    dx_ptr += row
    products = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        mask = col < cols
        y = tl.load(y_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        dy = tl.load(dy_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        products += y * dy
    product = tl.sum(products)
    last = (tl.cdiv(cols, BLOCK) - 1) * BLOCK
    for back in tl.range(0, cols, BLOCK):
        col = last - back + tl.arange(0, BLOCK)
        mask = col < cols
        y = tl.load(y_ptr + col, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dy = tl.load(dy_ptr + col, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - product)
        tl.store(dx_ptr + col, dx.to(dx_ptr.dtype.element_ty), mask=mask, cache_modifier=".cs")


def _streaming(cols: int, itemsize: int) -> dict:
    """Steps for two rows, y's and dy's."""
    return streaming(2 * cols, itemsize)


PATHS = (
    # path, takes, chosen, layout, passes
    Path("narrow", NARROW_TILE // 2, is_narrow, narrow, 1),
    Path("resident", TILED_COLS, always, tiled, 1),
    Path("streaming", MAX_COLS, always, _streaming, 2),
)


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, path: str | None = None) -> torch.Tensor:
    """dx for y = softmax(x): what autograd calls, with y contiguous, as `softmax` returned it, and dy like y.

    path: 'narrow', 'resident' or 'streaming', as for `softmax`; chosen by the width unless given.
    """
    dx = torch.empty_like(y)
    if not y.numel():
        return dx
    cols = y.shape[-1]
    rows = y.numel() // cols
    chosen = plan(PATHS, cols, y.itemsize, path)
    grid = (chosen.programs(rows),)
    tensors = y, dy.contiguous(), dx
    if chosen.path == "narrow":
        softmax_backward_narrow_kernel[grid](*tensors, rows, cols, **chosen.config)
    else:
        wide = chosen.path == "streaming"
        kernel = softmax_backward_streaming_kernel if wide else softmax_backward_resident_kernel
        kernel[grid](*tensors, cols, **chosen.config)
    return dx


def softmax_backward_traffic(rows: int, cols: int, dtype: torch.dtype, path: str | None = "minimum") -> Traffic:
    """What the backward moves: the 'minimum', each byte once, or one of the paths 'narrow', 'resident' and 'streaming',
    None for the one that is chosen. Raises ValueError for a path that takes no such rows.
    """
    passes, _ = reads(PATHS, rows, cols, dtype.itemsize, path)
    full = rows * cols * dtype.itemsize
    return Traffic({"y": passes * full, "dy": passes * full}, {"dx": full}, flops=4 * rows * cols, launches=1)
