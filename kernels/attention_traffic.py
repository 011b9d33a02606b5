"""What attention moves: the traffic of both forms, forward and backward, that kernels/attention.py and
kernels/attention_backward.py are held to.

The tiles come from the tables that the launches read; which tiles are visited is counted as the kernels decide it.
"""

from functools import cache

import torch

from instruments import backend
from instruments.backend import triton
from instruments.traffic import Traffic
from kernels.attention_plan import BACKWARD, FORWARD, choose


def key_ranges(queries: int, keys: int, causal: bool, window: int | None, tile_m: int, tile_n: int):
    """(first, end, last) for each tile of queries that sees a key: `key_range`, and the end of `whole_range` (None
    where that is empty), in Python."""
    for first_query in range(0, queries, tile_m):
        position, first, last = first_query + keys - queries, 0, keys
        begin, end = 0, keys
        if window is not None:
            first = max(position - window + 1, 0) // tile_n * tile_n
            last = min(position + tile_m - 1 + window, keys)
            begin = max(triton.cdiv(max(position + tile_m - window, 0), tile_n) * tile_n, first)
            end = min(position + window, keys)
        if causal:
            last, end = min(position + tile_m, keys), min(position + 1, keys)
        end = max(end, 0) // tile_n * tile_n
        if last > first:
            yield first, end if end > begin else None, last


@cache
def keys_visited(queries: int, keys: int, causal: bool, window: int | None, tile_m: int, tile_n: int) -> int:
    """Keys that the tiles of queries of one head load, added up."""
    ranges = key_ranges(queries, keys, causal, window, tile_m, tile_n)
    return sum(min(triton.cdiv(last, tile_n) * tile_n, keys) - first for first, _, last in ranges)


@cache
def keys_ahead(queries: int, keys: int, causal: bool, window: int | None, tile_m: int, tile_n: int) -> int:
    """Keys that they load twice, since the product of a next tile that is whole is formed early."""
    ranges = key_ranges(queries, keys, causal, window, tile_m, tile_n)
    return sum(min(tile_n, keys - end) for _, end, _ in ranges if end is not None)


@cache
def queries_visited(queries: int, keys: int, causal: bool, window: int | None, tile_m: int, tile_n: int) -> int:
    """Queries that the tiles of keys of one head load, added up: `query_range` in Python, for the traffic model."""
    total = 0
    for first_key in range(0, keys, tile_n):
        query, first, last = first_key - (keys - queries), 0, queries
        if window is not None:
            first = max(query - window + 1, 0) // tile_m * tile_m
            last = min(query + tile_n - 1 + window, queries)
        if causal:
            first = max(query, 0) // tile_m * tile_m
        total += max(0, min(triton.cdiv(last, tile_m) * tile_m, queries) - first) if last > first else 0
    return total


def _clamped_sum(first: int, count: int, most: int) -> int:
    """The sum of min(max(x, 0), most) over the x in range(first, first + count)."""
    low, high = (min(max(x, 0), most) for x in (first, first + count))
    return (low + high - 1) * (high - low) // 2 + max(0, first + count - max(first, most)) * most


def pairs_seen(queries: int, keys: int, causal: bool, window: int | None) -> int:
    """Pairs of a query and a key that it sees: of each query, keys up to its last one less those before its first."""
    if not causal and window is None:
        return queries * keys
    position = keys - queries
    last = _clamped_sum(position + (1 if causal else window), queries, keys)
    return last if window is None else last - _clamped_sum(position - window + 1, queries, keys)


def _op(read: dict, written: dict, flops: int) -> Traffic:
    return Traffic(read, written, flops, launches=1)


def attention_ops(
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    head_dim: int,
    dtype: torch.dtype,
    *,
    causal: bool = False,
    kv_heads: int | None = None,
    window: int | None = None,
) -> dict[str, Traffic]:
    """What attention composed of eager ops in `dtype` reads and writes, in order: the product that scales as it stores,
    the mask where there is one ([queries, keys] of one byte), softmax, the second product."""
    rows, size = batch * heads * queries, dtype.itemsize
    full, cells = rows * keys * size, rows * keys
    wide = rows * head_dim * size
    kv = batch * (kv_heads or heads) * keys * head_dim * size

    masked = causal or window is not None
    mask = {"mask": _op({"scores": full, "mask": queries * keys}, {"masked": full}, cells)} if masked else {}
    product = 2 * cells * head_dim
    return {
        "q @ k^T": _op({"q": wide, "k": kv}, {"scores": full}, product + cells),
        **mask,
        "softmax": _op({"masked" if masked else "scores": full}, {"weights": full}, 5 * cells),
        "weights @ v": _op({"weights": full, "v": kv}, {"out": wide}, product),
    }


def attention_traffic(
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    head_dim: int,
    dtype: torch.dtype,
    *,
    causal: bool = False,
    kv_heads: int | None = None,
    window: int | None = None,
    path: str | None = "minimum",
) -> Traffic:
    """What attention forward moves: the 'minimum', each tensor once; 'naive', the eager ops of `attention_ops`; or what
    the programs of a path of `flash_attention`'s ask for, None for the one that it chooses, the log-sum-exp included.

    FLOPs of 'minimum' and of a path are those of both products over the pairs of query and key that are seen, four
    times head_dim each, as papers count them. Raises ValueError for a path that is none.
    """
    if path == "naive":
        ops = attention_ops(
            batch, heads, queries, keys, head_dim, dtype, causal=causal, kv_heads=kv_heads, window=window
        )
        return sum(ops.values())
    wide = batch * heads * queries * head_dim * dtype.itemsize
    flops = 4 * batch * heads * pairs_seen(queries, keys, causal, window) * head_dim
    if path == "minimum":
        kv = batch * (kv_heads or heads) * keys * head_dim * dtype.itemsize
        return Traffic({"q": wide, "k": kv, "v": kv}, {"out": wide}, flops, launches=1)
    _, tile = choose(FORWARD, head_dim, path, torch.device(backend.device()))
    shape = queries, keys, causal, window, tile["BLOCK_M"], tile["BLOCK_N"]
    per_key = batch * heads * head_dim * dtype.itemsize
    kv = keys_visited(*shape) * per_key
    written = {"lse": batch * heads * queries * 4, "out": wide}
    return Traffic({"q": wide, "k": kv, "v": kv}, written, flops, launches=1)


def attention_backward_ops(
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    head_dim: int,
    dtype: torch.dtype,
    *,
    causal: bool = False,
    kv_heads: int | None = None,
    window: int | None = None,
) -> dict[str, Traffic]:
    """What autograd runs after `attention_ops`, in order, from the weights that it kept."""
    rows, size = batch * heads * queries, dtype.itemsize
    full, cells, wide = rows * keys * size, rows * keys, rows * head_dim * size
    kv = batch * (kv_heads or heads) * keys * head_dim * size
    product = 2 * cells * head_dim

    masked = causal or window is not None
    mask = {"mask": _op({"dmasked": full, "mask": queries * keys}, {"dscores": full}, cells)} if masked else {}
    return {
        "weights^T @ dout": _op({"weights": full, "dout": wide}, {"dv": kv}, product),
        "dout @ v^T": _op({"dout": wide, "v": kv}, {"dweights": full}, product),
        "softmax": _op({"dweights": full, "weights": full}, {"dmasked" if masked else "dscores": full}, 4 * cells),
        **mask,
        "dscores @ k": _op({"dscores": full, "k": kv}, {"dq": wide}, product + cells),
        "dscores^T @ q": _op({"dscores": full, "q": wide}, {"dk": kv}, product + cells),
    }


def attention_backward_traffic(
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    head_dim: int,
    dtype: torch.dtype,
    *,
    causal: bool = False,
    kv_heads: int | None = None,
    window: int | None = None,
    path: str | None = "minimum",
) -> Traffic:
    """What attention's backward moves: the 'minimum', each tensor once; 'naive', the eager ops of
    `attention_backward_ops`; or what the programs of a path ask for, None for the one that is chosen: delta's launch,
    that of dk and dv, and that of dq.

    FLOPs of 'minimum' are those of five products over the pairs seen, as papers count them; of a path, of the seven
    that it does. Raises ValueError for a path that is none.
    """
    if path == "naive":
        ops = attention_backward_ops(
            batch, heads, queries, keys, head_dim, dtype, causal=causal, kv_heads=kv_heads, window=window
        )
        return sum(ops.values())
    wide = batch * heads * queries * head_dim * dtype.itemsize
    kv = batch * (kv_heads or heads) * keys * head_dim * dtype.itemsize
    row = batch * heads * queries * 4
    product = 2 * batch * heads * pairs_seen(queries, keys, causal, window) * head_dim
    written = {"dq": wide, "dk": kv, "dv": kv}
    if path == "minimum":
        read = {"q": wide, "k": kv, "v": kv, "out": wide, "dout": wide, "lse": row}
        return Traffic(read, written, 5 * product, launches=1)
    path, tile = choose(BACKWARD, head_dim, path, torch.device(backend.device()))
    shape = queries, keys, causal, window, tile["BLOCK_M"], tile["BLOCK_N"]
    again = batch * heads * queries_visited(*shape)  # rows of q and dout that tiles of keys ask for
    rows, per_key = again * head_dim * dtype.itemsize, batch * heads * head_dim * dtype.itemsize
    visited, ahead = keys_visited(*shape), keys_ahead(*shape) if path == "fast" else 0
    k, v = visited * per_key, (visited + ahead) * per_key
    delta = Traffic({"out": wide, "dout": wide, "lse": row}, {"delta": row, "shift": row}, launches=1)
    dkdv = Traffic(
        {"q": rows, "k": kv, "v": kv, "dout": rows, "shift": 4 * again, "delta": 4 * again},
        {"dk": kv, "dv": kv},
        4 * product,
        launches=1,
    )
    dq = Traffic(
        {"q": wide, "k": k, "v": v, "dout": wide, "shift": row, "delta": row}, {"dq": wide}, 3 * product, launches=1
    )
    return delta + dkdv + dq
