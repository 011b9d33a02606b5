"""Causal softmax: softmax over the keys that each query attends to, and zeros for the masked-out ones.

Query i attends to key j if j <= i + keys - queries, so the last query attends to every key (FlashAttention's convention
since 2.1, 2023). A row is softmax over its first keys; what lies above the diagonal is written and never read.

Minimum traffic: read the scores on and below the diagonal once, write all of y once. With as many queries as keys this
is about three quarters of softmax's traffic.
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.shared.arguments import check_tensor, check_width, wants_grad
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
    tiled_layout,
)
from kernels.shared.tiles import LOG2E
from kernels.softmax.backward import softmax_backward
from kernels.softmax.online import LOWEST, absorb, merge, streaming_layout


def causal_softmax_reference(scores: torch.Tensor) -> torch.Tensor:
    """Causal softmax in plain PyTorch, in the precision of its argument: pass fp64 for a reference."""
    queries, keys = scores.shape[-2:]
    later = torch.ones(queries, keys, dtype=torch.bool, device=scores.device).triu(keys - queries + 1)
    return torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1)


@triton.jit
def causal_softmax_resident_kernel(
    scores_ptr, y_ptr,
    batch_stride, query_stride, key_stride,
    queries, keys,
    TILES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row per program, held in TILES tiles [BLOCK]: scores [batch, queries, keys] of any strides, y contiguous."""
    row = tl.program_id(0).to(tl.int64)
    query = row % queries
    scores_ptr += row // queries * batch_stride + query * query_stride
    y_ptr += row * keys
    row_keys = (query + keys - queries + 1).to(tl.int32)  # the keys that the query attends to; none if not positive
    running_max = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    tiles = ()
    for i in tl.static_range(TILES):
        key = i * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(scores_ptr + key * key_stride, mask=key < row_keys, other=float("-inf")).to(tl.float32)
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
        key = i * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + key, (exponentials[i] * scale).to(y_ptr.dtype.element_ty), mask=key < keys)


@triton.jit
def causal_softmax_narrow_kernel(
    scores_ptr, y_ptr,
    batch_stride, query_stride, key_stride,
    rows, queries, keys,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Several rows per program, held in one tile [ROWS, BLOCK]; tensors as in the resident kernel, rows is batch *
    queries."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    key = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK], BLOCK >= keys
    query = row % queries
    mask = (row < rows) & (key < keys)
    causal = key <= query + keys - queries
    offset = row // queries * batch_stride + query * query_stride + key * key_stride
    x = tl.load(scores_ptr + offset, mask=mask & causal, other=float("-inf")).to(tl.float32)
    exponentials = tl.exp2((x - tl.max(x, axis=1, keep_dims=True)) * LOG2E)
    y = exponentials * (1.0 / tl.sum(exponentials, axis=1, keep_dims=True))
    tl.store(y_ptr + row * keys + key, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def causal_softmax_streaming_kernel(
    scores_ptr, y_ptr,
    batch_stride, query_stride, key_stride,
    queries, keys,
    VECTOR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row per program, read twice in steps of [GROUPS, VECTOR] up to the diagonal; tensors as in the resident
    kernel."""
    row = tl.program_id(0).to(tl.int64)
    query = row % queries
    scores_ptr += row // queries * batch_stride + query * query_stride
    y_ptr += row * keys
    row_keys = (query + keys - queries + 1).to(tl.int32)
    GROUPS: tl.constexpr = BLOCK // VECTOR
    step = tl.arange(0, GROUPS)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]  # [GROUPS, VECTOR]
    running_max = tl.full([GROUPS], LOWEST, dtype=tl.float32)
    running_sum = tl.zeros([GROUPS], dtype=tl.float32)
    for start in tl.range(0, row_keys, BLOCK):
        key = start + step
        mask = key < row_keys
        x = tl.load(scores_ptr + key * key_stride, mask=mask, other=float("-inf"), eviction_policy="evict_last")
        running_max, running_sum = absorb(running_max, running_sum, x.to(tl.float32))
    row_max, row_sum = merge(running_max, running_sum)
    scale = 1.0 / row_sum
    end = tl.cdiv(tl.maximum(row_keys, 0), BLOCK) * BLOCK  # from here on, every step is masked out
    for back in tl.range(0, end, BLOCK):  # backwards: from the tile that was read last
        key = end - BLOCK - back + step
        mask = key < row_keys
        x = tl.load(scores_ptr + key * key_stride, mask=mask, other=float("-inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - row_max) * LOG2E) * scale
        tl.store(y_ptr + key, y.to(y_ptr.dtype.element_ty), mask=key < keys, cache_modifier=".cs")
    above = tl.zeros([GROUPS, VECTOR], dtype=tl.float32) * scale  # NaN in a row without keys: its sum is 0
    for start in tl.range(end, keys, BLOCK):
        key = start + step
        tl.store(y_ptr + key, above.to(y_ptr.dtype.element_ty), mask=key < keys, cache_modifier=".cs")


def _streaming(cols: int, itemsize: int) -> dict:
    """As for a row of half the width: on average a query attends to half of the keys."""
    return streaming_layout(cols // 2, itemsize)


PATHS = (
    # name, max_cols, applies, layout, passes
    RowPath("narrow", NARROW_TILE // 2, is_narrow, narrow_layout, 1),
    RowPath("resident", TILED_COLS, lambda cols, nbytes: nbytes <= 8_192, tiled_layout, 1),
    RowPath("streaming", MAX_COLS, always, _streaming, 2),
)


def _forward(scores: torch.Tensor, path: str | None = None) -> torch.Tensor:
    y = torch.empty_like(scores, memory_format=torch.contiguous_format)
    if not scores.numel():
        return y
    queries, keys = scores.shape[-2:]
    if keys * scores.stride(-1) >= 1 << 31:  # offsets inside a row are 32-bit
        scores = scores.contiguous()
    scores = scores.reshape(-1, queries, keys)
    rows = len(scores) * queries
    plan = row_plan(PATHS, keys, scores.itemsize, path)
    grid = (plan.programs(rows),)
    if plan.path == "narrow":
        causal_softmax_narrow_kernel[grid](scores, y, *scores.stride(), rows, queries, keys, **plan.config)
    else:
        streaming = plan.path == "streaming"
        kernel = causal_softmax_streaming_kernel if streaming else causal_softmax_resident_kernel
        kernel[grid](scores, y, *scores.stride(), queries, keys, **plan.config)
    return y


class _CausalSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, path):
        y = _forward(scores, path)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return softmax_backward(dy, *ctx.saved_tensors), None


def causal_softmax(scores: torch.Tensor, *, path: str | None = None) -> torch.Tensor:
    """Softmax of each query i over the keys j <= i + keys - queries, and zeros at the later keys; differentiable.

    Args:
        scores: [..., queries, keys], fp16, bf16 or fp32, keys up to 1,048,576, any strides.
        path: 'narrow', 'resident' or 'streaming', as for `softmax`. None picks by the number of keys.

    Returns:
        [..., queries, keys], the dtype of scores, contiguous.

    Raises:
        ValueError: naming the argument, what it is and what was expected.

    Note:
        Scores above the diagonal are never read. A row becomes NaN if it has no keys, only -inf, or any +inf or NaN.
        The scores are copied only if no single stride can address their leading dimensions.
    """
    check_tensor("scores", scores)
    if scores.dim() < 2:
        raise ValueError(f"scores: got shape {tuple(scores.shape)}, expected [..., queries, keys]")
    check_width("scores", scores, MAX_COLS)
    return _CausalSoftmax.apply(scores, path) if wants_grad(scores) else _forward(scores, path)


def causal_softmax_traffic(
    batch: int, queries: int, keys: int, dtype: torch.dtype, path: str | None = "minimum"
) -> Traffic:
    """The traffic of causal softmax's forward.

    Args:
        batch: product of the leading dimensions.
        queries: queries per batch entry.
        keys: keys per query.
        dtype: dtype of scores and y.
        path: 'minimum' (each byte once), 'naive' (the two unfused ops of the reference, without making the mask), or a
            path of `causal_softmax`; None for the one it picks.

    Returns:
        Bytes per tensor, FLOPs and launches.

    Raises:
        ValueError: for a path that takes no rows of this width.
    """
    full = batch * queries * keys * dtype.itemsize
    active = min(queries, keys)  # queries that attend to at least one key: the last ones
    pairs = batch * active * (2 * keys - active + 1) // 2  # from keys - active + 1 to keys per query
    if path == "naive":
        masked_fill = Traffic({"scores": full, "later": queries * keys}, {"masked": full}, launches=1)
        return masked_fill + Traffic({"masked": full}, {"y": full}, flops=5 * batch * queries * keys, launches=1)
    passes, _ = passes_and_programs(PATHS, batch * queries, keys, dtype.itemsize, path)
    return Traffic({"scores": passes * pairs * dtype.itemsize}, {"y": full}, flops=5 * pairs, launches=1)
