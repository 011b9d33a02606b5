"""What attention moves, forward and backward: unfused, at least, and by each path of forward.py and backward.py.

The tiles come from the tables that the launches read; which tiles a program visits is counted as the kernels decide it.
"""

from functools import cache

import torch

from instruments import backend
from instruments.backend import cdiv
from instruments.traffic import Traffic
from kernels.attention.configs import BACKWARD, FORWARD, HOPPER_KEYS, HOPPER_ROWS, choose, config_of


def key_ranges(queries: int, keys: int, causal: bool, window: int | None, tile_m: int, tile_n: int):
    """(first, end, last) for each tile of queries that attends to a key: `key_range` in Python, and the end of
    `unmasked_range` (None where that is empty)."""
    for first_query in range(0, queries, tile_m):
        position, first, last = first_query + keys - queries, 0, keys
        begin, end = 0, keys
        if window is not None:
            first = max(position - window + 1, 0) // tile_n * tile_n
            last = min(position + tile_m - 1 + window, keys)
            begin = max(cdiv(max(position + tile_m - window, 0), tile_n) * tile_n, first)
            end = min(position + window, keys)
        if causal:
            last, end = min(position + tile_m, keys), min(position + 1, keys)
        end = max(end, 0) // tile_n * tile_n
        if last > first:
            yield first, end if end > begin else None, last


@cache
def keys_visited(queries: int, keys: int, causal: bool, window: int | None, tile_m: int, tile_n: int) -> int:
    """Keys that the tiles of queries of one head load, summed."""
    ranges = key_ranges(queries, keys, causal, window, tile_m, tile_n)
    return sum(min(cdiv(last, tile_n) * tile_n, keys) - first for first, _, last in ranges)


@cache
def keys_ahead(queries: int, keys: int, causal: bool, window: int | None, tile_m: int, tile_n: int) -> int:
    """Keys that they load twice, since the matmul of a next tile without a mask starts early."""
    ranges = key_ranges(queries, keys, causal, window, tile_m, tile_n)
    return sum(min(tile_n, keys - end) for _, end, _ in ranges if end is not None)


@cache
def queries_visited(queries: int, keys: int, causal: bool, window: int | None, tile_m: int, tile_n: int) -> int:
    """Queries that the tiles of keys of one head load, summed: `query_range` in Python."""
    loads = 0
    for first_key in range(0, keys, tile_n):
        query, first, last = first_key - (keys - queries), 0, queries
        if window is not None:
            first = max(query - window + 1, 0) // tile_m * tile_m
            last = min(query + tile_n - 1 + window, queries)
        if causal:
            first = max(query, 0) // tile_m * tile_m
        loads += max(0, min(cdiv(last, tile_m) * tile_m, queries) - first) if last > first else 0
    return loads


def _clamped_sum(first: int, count: int, limit: int) -> int:
    """The sum of min(max(x, 0), limit) over the x in range(first, first + count)."""
    low, high = (min(max(x, 0), limit) for x in (first, first + count))
    return (low + high - 1) * (high - low) // 2 + max(0, first + count - max(first, limit)) * limit


def unmasked_pairs(queries: int, keys: int, causal: bool, window: int | None) -> int:
    """Pairs of a query and a key it attends to: for each query, keys up to its last one less those before its first."""
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
    """What unfused attention reads and writes, one kernel per eager op.

    Args:
        batch, heads, queries, keys, head_dim: sizes of q and k.
        dtype: of the tensors.
        causal, window: as for `flash_attention`.
        kv_heads: heads of k and v; as many as q's unless given.

    Returns:
        {op: its traffic}, in order: the matmul that scales as it stores; the mask where there is one, of one byte per
        [queries, keys]; softmax; the second matmul.
    """
    rows, size = batch * heads * queries, dtype.itemsize
    full, pairs = rows * keys * size, rows * keys
    out = rows * head_dim * size
    kv = batch * (kv_heads or heads) * keys * head_dim * size

    masked = causal or window is not None
    mask = {"mask": _op({"scores": full, "mask": queries * keys}, {"masked": full}, pairs)} if masked else {}
    matmul = 2 * pairs * head_dim
    return {
        "q @ k^T": _op({"q": out, "k": kv}, {"scores": full}, matmul + pairs),
        **mask,
        "softmax": _op({"masked" if masked else "scores": full}, {"weights": full}, 5 * pairs),
        "weights @ v": _op({"weights": full, "v": kv}, {"out": out}, matmul),
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
    """What attention's forward moves.

    Args:
        batch, heads, queries, keys, head_dim: sizes of q and k.
        dtype: of the tensors.
        causal, window: as for `flash_attention`.
        kv_heads: heads of k and v; as many as q's unless given.
        path: 'minimum', each tensor once; 'naive', the eager ops of `attention_ops`; a path of `flash_attention`, what
            its programs request, on whatever GPU; None, the path that `flash_attention` would choose now.

    Returns:
        The traffic. FLOPs of 'minimum' and of a path are those of both matmuls over the unmasked pairs of query and
        key, as papers count them. A path writes the log-sum-exp too ('hopper' only where the caller wants it, but it is
        counted here).

    Raises:
        ValueError: an unknown path, or one that does not take these sizes.
    """
    if path == "naive":
        ops = attention_ops(
            batch, heads, queries, keys, head_dim, dtype, causal=causal, kv_heads=kv_heads, window=window
        )
        return sum(ops.values())
    out = batch * heads * queries * head_dim * dtype.itemsize
    flops = 4 * batch * heads * unmasked_pairs(queries, keys, causal, window) * head_dim
    if path == "minimum":
        kv = batch * (kv_heads or heads) * keys * head_dim * dtype.itemsize
        return Traffic({"q": out, "k": kv, "v": kv}, {"out": out}, flops, launches=1)
    path, config = _config(FORWARD, path, head_dim, window)
    if path == "hopper":
        block_m = config["WARPGROUPS"] * HOPPER_ROWS
        visited = keys_visited(queries, keys, causal, None, block_m, HOPPER_KEYS)
        idle = max(queries - keys, 0) // block_m if causal else 0  # blocks without a key load a tile all the same
        visited += idle * min(HOPPER_KEYS, keys)
    else:
        visited = keys_visited(queries, keys, causal, window, config["BLOCK_M"], config["BLOCK_N"])
    kv = visited * batch * heads * head_dim * dtype.itemsize
    written = {"lse": batch * heads * queries * 4, "out": out}
    return Traffic({"q": out, "k": kv, "v": kv}, written, flops, launches=1)


def _config(table: dict, path: str | None, head_dim: int, window: int | None) -> tuple[str, dict]:
    """(path, config) of a table: a path on whatever GPU, None for the one that would be chosen now."""
    if path is None:
        return choose(table, head_dim, None, torch.device(backend.device()), window=window is not None)
    config = config_of(table, path, head_dim)
    if config is None or path == "hopper" and window is not None:
        raise ValueError(
            f"path: got {path!r} for a head_dim of {head_dim} and a window of {window}, expected None, minimum, naive, "
            f"{' or '.join(table)}"
        )
    return path, config


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
    """What autograd runs after `attention_ops`, from the weights that it saved.

    Args:
        batch, heads, queries, keys, head_dim: sizes of q and k.
        dtype: of the tensors.
        causal, window: as for `flash_attention`.
        kv_heads: heads of k and v; as many as q's unless given.

    Returns:
        {op: its traffic}, in order.
    """
    rows, size = batch * heads * queries, dtype.itemsize
    full, pairs, out = rows * keys * size, rows * keys, rows * head_dim * size
    kv = batch * (kv_heads or heads) * keys * head_dim * size
    matmul = 2 * pairs * head_dim

    masked = causal or window is not None
    mask = {"mask": _op({"dmasked": full, "mask": queries * keys}, {"dscores": full}, pairs)} if masked else {}
    return {
        "weights^T @ dout": _op({"weights": full, "dout": out}, {"dv": kv}, matmul),
        "dout @ v^T": _op({"dout": out, "v": kv}, {"dweights": full}, matmul),
        "softmax": _op({"dweights": full, "weights": full}, {"dmasked" if masked else "dscores": full}, 4 * pairs),
        **mask,
        "dscores @ k": _op({"dscores": full, "k": kv}, {"dq": out}, matmul + pairs),
        "dscores^T @ q": _op({"dscores": full, "q": out}, {"dk": kv}, matmul + pairs),
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
    """What attention's backward moves.

    Args:
        batch, heads, queries, keys, head_dim: sizes of q and k.
        dtype: of the tensors.
        causal, window: as for `flash_attention`.
        kv_heads: heads of k and v; as many as q's unless given.
        path: 'minimum', each tensor once; 'naive', the eager ops of `attention_backward_ops`; a path of
            `attention_backward`, what its programs request: delta's launch, that of dk and dv, and that of dq; None,
            the path that would be chosen now.

    Returns:
        The traffic. FLOPs of 'minimum' are those of five matmuls over the unmasked pairs, as papers count them; of a
        path, those of the seven that it runs ('hopper': five).

    Raises:
        ValueError: an unknown path, or one that does not take this head_dim.
    """
    if path == "naive":
        ops = attention_backward_ops(
            batch, heads, queries, keys, head_dim, dtype, causal=causal, kv_heads=kv_heads, window=window
        )
        return sum(ops.values())
    full = batch * heads * queries * head_dim * dtype.itemsize
    kv = batch * (kv_heads or heads) * keys * head_dim * dtype.itemsize
    row = batch * heads * queries * 4
    matmul = 2 * batch * heads * unmasked_pairs(queries, keys, causal, window) * head_dim
    written = {"dq": full, "dk": kv, "dv": kv}
    if path == "minimum":
        read = {"q": full, "k": kv, "v": kv, "out": full, "dout": full, "lse": row}
        return Traffic(read, written, 5 * matmul, launches=1)
    path, config = _config(BACKWARD, path, head_dim, window)
    if path == "hopper":
        block = config["QUERIES"]
        padded = batch * heads * -(-queries // block) * block  # rows of the fp32 buffers
        loads = batch * heads * queries_visited(queries, keys, causal, None, block, HOPPER_KEYS)
        rows, sums = loads * head_dim * dtype.itemsize, {"sums": padded * head_dim * 4}
        begin = Traffic({"out": full, "dout": full, "lse": row}, {"statistics": padded * 8, **sums}, launches=1)
        added = {**written, "dq": 0, "sums": loads * head_dim * 4}  # by atomics
        loaded = {"q": rows, "k": kv, "v": kv, "dout": rows, "statistics": 8 * loads}
        return begin + Traffic(loaded, added, 5 * matmul, launches=1) + Traffic(sums, {"dq": full}, launches=1)
    shape = queries, keys, causal, window, config["BLOCK_M"], config["BLOCK_N"]
    loads = batch * heads * queries_visited(*shape)  # rows of q and dout that tiles of keys request
    rows, key_bytes = loads * head_dim * dtype.itemsize, batch * heads * head_dim * dtype.itemsize
    visited, ahead = keys_visited(*shape), keys_ahead(*shape) if path == "fast" else 0
    k, v = visited * key_bytes, (visited + ahead) * key_bytes
    delta = Traffic({"out": full, "dout": full, "lse": row}, {"delta": row, "shift": row}, launches=1)
    dkdv = Traffic(
        {"q": rows, "k": kv, "v": kv, "dout": rows, "shift": 4 * loads, "delta": 4 * loads},
        {"dk": kv, "dv": kv},
        4 * matmul,
        launches=1,
    )
    dq = Traffic(
        {"q": full, "k": k, "v": v, "dout": full, "shift": row, "delta": row}, {"dq": full}, 3 * matmul, launches=1
    )
    return delta + dkdv + dq
