"""Causal softmax: softmax over the keys that each query may see, and zeros for those that come later.

Query i sees key j where j <= i + keys - queries: the last query sees every key (FlashAttention's convention since 2.1).
A row is softmax.py's over its first keys; what lies above the diagonal is written and never read.

Minimum traffic: the scores on and below the diagonal read once, every y written once. For as many queries as keys that
is about three quarters of softmax's.
"""

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_tensor, check_width, wants_grad
from kernels.online_softmax import LOWEST, absorb, merge, streaming
from kernels.rows import MAX_COLS, NARROW_TILE, TILED_COLS, Path, always, is_narrow, narrow, plan, reads, tiled
from kernels.softmax_backward import softmax_backward
from kernels.tiles import LOG2E


def causal_softmax_reference(scores: torch.Tensor) -> torch.Tensor:
    """Causal softmax in plain PyTorch, in the precision of its argument: give it fp64 for a reference."""
    queries, keys = scores.shape[-2:]
    later = torch.ones(queries, keys, dtype=torch.bool, device=scores.device).triu(keys - queries + 1)
    return torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1)


@triton.jit
def causal_softmax_resident_kernel(
    scores_ptr, y_ptr, batch_stride, query_stride, key_stride, queries, keys, TILES: tl.constexpr, BLOCK: tl.constexpr
):
    """One row, kept in TILES tiles [BLOCK]: scores [batch, queries, keys] of any strides, y the same, contiguous."""
    row = tl.program_id(0).to(tl.int64)
    query = row % queries
    scores_ptr += row // queries * batch_stride + query * query_stride
    y_ptr += row * keys
    seen = (query + keys - queries + 1).to(tl.int32)  # how many keys the query sees; none where it is not positive
    largest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    tiles = ()
    for i in tl.static_range(TILES):
        key = i * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(scores_ptr + key * key_stride, mask=key < seen, other=float("-inf")).to(tl.float32)
        largest = tl.maximum(largest, x)
        tiles = tiles + (x,)
    row_largest = tl.max(largest)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    exponentials = ()
    for i in tl.static_range(TILES):
        exponentials = exponentials + (tl.exp2((tiles[i] - row_largest) * LOG2E),)
        total += exponentials[i]
    scale = 1.0 / tl.sum(total)
    for i in tl.static_range(TILES):
        key = i * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + key, (exponentials[i] * scale).to(y_ptr.dtype.element_ty), mask=key < keys)


@triton.jit
def causal_softmax_narrow_kernel(
    scores_ptr,
    y_ptr,
    batch_stride,
    query_stride,
    key_stride,
    rows,
    queries,
    keys,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Several rows, kept in one tile [ROWS, BLOCK]; tensors as for the resident kernel, rows is batch * queries."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    key = tl.arange(0, BLOCK)[None, :]  # [1, BLOCK], BLOCK >= keys
    query = row % queries
    mask = (row < rows) & (key < keys)
    seen = key <= query + keys - queries
    at = row // queries * batch_stride + query * query_stride + key * key_stride
    x = tl.load(scores_ptr + at, mask=mask & seen, other=float("-inf")).to(tl.float32)
    exponentials = tl.exp2((x - tl.max(x, axis=1, keep_dims=True)) * LOG2E)
    y = exponentials * (1.0 / tl.sum(exponentials, axis=1, keep_dims=True))
    tl.store(y_ptr + row * keys + key, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def causal_softmax_streaming_kernel(
    scores_ptr, y_ptr, batch_stride, query_stride, key_stride, queries, keys, VECTOR: tl.constexpr, BLOCK: tl.constexpr
):
    """One row, read twice in steps of [LANES, VECTOR] up to the diagonal; tensors as for the resident kernel."""
    row = tl.program_id(0).to(tl.int64)
    query = row % queries
    scores_ptr += row // queries * batch_stride + query * query_stride
    y_ptr += row * keys
    seen = (query + keys - queries + 1).to(tl.int32)
    LANES: tl.constexpr = BLOCK // VECTOR
    step = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]  # [LANES, VECTOR]
    largest = tl.full([LANES], LOWEST, dtype=tl.float32)
    total = tl.zeros([LANES], dtype=tl.float32)
    for start in tl.range(0, seen, BLOCK):
        key = start + step
        x = tl.load(scores_ptr + key * key_stride, mask=key < seen, other=float("-inf"), eviction_policy="evict_last")
        largest, total = absorb(largest, total, x.to(tl.float32))
    largest, total = merge(largest, total)
    scale = 1.0 / total
    beyond = tl.cdiv(tl.maximum(seen, 0), BLOCK) * BLOCK  # where the first step begins that is all above the diagonal
    for back in tl.range(0, beyond, BLOCK):
        key = beyond - BLOCK - back + step
        x = tl.load(scores_ptr + key * key_stride, mask=key < seen, other=float("-inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - largest) * LOG2E) * scale
        tl.store(y_ptr + key, y.to(y_ptr.dtype.element_ty), mask=key < keys, cache_modifier=".cs")
    above = tl.zeros([LANES, VECTOR], dtype=tl.float32) * scale  # NaN in a row that sees nothing: its total is 0
    for start in tl.range(beyond, keys, BLOCK):
        key = start + step
        tl.store(y_ptr + key, above.to(y_ptr.dtype.element_ty), mask=key < keys, cache_modifier=".cs")


def _streaming(cols: int, itemsize: int) -> dict:
    """Steps for half a row, which is what a query sees on average."""
    return streaming(cols // 2, itemsize)


PATHS = (
    # path, takes, chosen, layout, passes
    Path("narrow", NARROW_TILE // 2, is_narrow, narrow, 1),
    Path("resident", TILED_COLS, lambda cols, nbytes: nbytes <= 8_192, tiled, 1),
    Path("streaming", MAX_COLS, always, _streaming, 2),
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
    chosen = plan(PATHS, keys, scores.itemsize, path)
    grid = (chosen.programs(rows),)
    if chosen.path == "narrow":
        causal_softmax_narrow_kernel[grid](scores, y, *scores.stride(), rows, queries, keys, **chosen.config)
    else:
        wide = chosen.path == "streaming"
        kernel = causal_softmax_streaming_kernel if wide else causal_softmax_resident_kernel
        kernel[grid](scores, y, *scores.stride(), queries, keys, **chosen.config)
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
    """Softmax of each query i over the keys j <= i + keys - queries, and zeros at the later ones; differentiable.

    scores: [..., queries, keys], fp16, bf16 or fp32, keys to 1,048,576, any strides; copied only where the leading
    dimensions cannot be addressed by one stride. What lies above the diagonal is never read. A row that sees no key,
    only -inf, or a +inf or NaN, comes out NaN. path: 'narrow', 'resident' or 'streaming', as for `softmax`. Returns a
    contiguous tensor of the shape and dtype of scores; empty for empty scores. Raises ValueError naming the argument.
    """
    check_tensor("scores", scores)
    if scores.dim() < 2:
        raise ValueError(f"scores: got shape {tuple(scores.shape)}, expected [..., queries, keys]")
    check_width("scores", scores, MAX_COLS)
    return _CausalSoftmax.apply(scores, path) if wants_grad(scores) else _forward(scores, path)


def causal_softmax_traffic(
    batch: int, queries: int, keys: int, dtype: torch.dtype, path: str | None = "minimum"
) -> Traffic:
    """What causal softmax moves: the 'minimum', each byte once; 'naive', the two eager ops of its reference, with the
    mask made beforehand; or a path, 'narrow', 'resident' or 'streaming', None for the one that is chosen. Raises
    ValueError for a path that takes no such rows.
    """
    full = batch * queries * keys * dtype.itemsize
    seeing = min(queries, keys)  # the last so many queries see a key or more
    seen = batch * seeing * (2 * keys - seeing + 1) // 2  # keys - seeing + 1 to keys each
    if path == "naive":
        masked_fill = Traffic({"scores": full, "later": queries * keys}, {"masked": full}, launches=1)
        return masked_fill + Traffic({"masked": full}, {"y": full}, flops=5 * batch * queries * keys, launches=1)
    passes, _ = reads(PATHS, batch * queries, keys, dtype.itemsize, path)
    return Traffic({"scores": passes * seen * dtype.itemsize}, {"y": full}, flops=5 * seen, launches=1)
