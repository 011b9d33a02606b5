"""Attention backward, fast: the launches of attention_backward.py that own tiles of keys and of queries, with tensor
descriptors, masks only where a tile needs them, and two programs per multiprocessor.

Minimum traffic as there; so are the reference, the function that is called, and what each tensor is. Where nothing is
masked, the program that owns queries multiplies the next tile's dweights before this tile's exponentials, so that both
happen at the same time.

The method is FlashAttention-2's (Dao, 2023).
"""

from instruments.backend import tl, triton
from kernels.attention_fast import load_tile
from kernels.attention_plan import describe
from kernels.attention_tiles import LOG2E, key_range, load_statistics, query_range, sees, store_rows, whole_range


@triton.jit
def walk_queries(
    k_tile,
    v_tile,
    q,
    dout,
    shift_ptr,
    delta_ptr,
    at,
    key,
    scale,
    sizes,
    begin,
    end,
    dk,
    dv,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """(dk, dv) after the tiles of queries in [begin, end) of one head; MASKED: some do not see all of the keys.
    at: (batch, head); sizes: what `sees` asks for."""
    BLOCK_D: tl.constexpr = k_tile.shape[1]
    STAGES: tl.constexpr = 1 if MASKED else 2
    for start in tl.range(begin, end, BLOCK_M, num_stages=STAGES):
        q_tile = load_tile(q, *at, start, BLOCK_M, BLOCK_D)
        scores = tl.dot(k_tile, q_tile.T)  # [BLOCK_N, BLOCK_M]
        shift, delta = load_statistics(shift_ptr, delta_ptr, start, sizes[0], BLOCK_M)
        weights = tl.exp2(scores * (scale * LOG2E) - shift[None, :])
        if MASKED:
            query = start + tl.arange(0, BLOCK_M)[None, :]  # [1, BLOCK_M]
            weights = tl.where(sees(query, key, *sizes, CAUSAL, WINDOWED), weights, 0.0)
        dout_tile = load_tile(dout, *at, start, BLOCK_M, BLOCK_D)
        dweights = tl.dot(v_tile, dout_tile.T)
        dv = tl.dot(weights.to(dout_tile.dtype), dout_tile, dv)
        dscores = weights * (dweights - delta[None, :])
        dk = tl.dot(dscores.to(q_tile.dtype), q_tile, dk)
    return dk, dv


@triton.jit
def walk_keys(
    q_tile,
    dout_tile,
    k,
    v,
    shift,
    delta,
    at,
    query,
    scale,
    sizes,
    begin,
    end,
    dq,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """dq after the tiles of keys in [begin, end); MASKED: some are not seen by all of the queries. Where all are, the
    next tile's dweights are multiplied before this tile's exponentials."""
    BLOCK_D: tl.constexpr = q_tile.shape[1]
    if MASKED:
        for start in tl.range(begin, end, BLOCK_N, num_stages=1):
            k_tile = load_tile(k, *at, start, BLOCK_N, BLOCK_D)
            weights = tl.exp2(tl.dot(q_tile, k_tile.T) * (scale * LOG2E) - shift[:, None])  # [BLOCK_M, BLOCK_N]
            key = start + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
            weights = tl.where(sees(query, key, *sizes, CAUSAL, WINDOWED), weights, 0.0)
            dweights = tl.dot(dout_tile, load_tile(v, *at, start, BLOCK_N, BLOCK_D).T)
            dscores = weights * (dweights - delta[:, None])
            dq = tl.dot(dscores.to(k_tile.dtype), k_tile, dq)
    elif begin < end:
        dweights = tl.dot(dout_tile, load_tile(v, *at, begin, BLOCK_N, BLOCK_D).T)
        for start in tl.range(begin, end, BLOCK_N):
            k_tile = load_tile(k, *at, start, BLOCK_N, BLOCK_D)
            scores = tl.dot(q_tile, k_tile.T)
            above = dweights - delta[:, None]  # now, so that the next product may take their registers
            dweights = tl.dot(dout_tile, load_tile(v, *at, start + BLOCK_N, BLOCK_N, BLOCK_D).T)
            weights = tl.exp2(scores * (scale * LOG2E) - shift[:, None])
            dq = tl.dot((weights * above).to(k_tile.dtype), k_tile, dq)
    return dq


@triton.jit
def attention_dkdv_fast_kernel(
    q,
    k,
    v,
    dout,
    shift_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
    kv_heads,
    group,
    queries,
    keys,
    head_dim,
    window,
    scale,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One tile of keys of one key head: descriptors q, k, v, dout, the others as for the plain kernel."""
    tiles = tl.cdiv(keys, BLOCK_N)
    batch_head, first_key = tl.program_id(0) // tiles, tl.program_id(0) % tiles * BLOCK_N
    batch, kv_head = batch_head // kv_heads, batch_head % kv_heads
    k_tile = load_tile(k, batch, kv_head, first_key, BLOCK_N, BLOCK_D)
    v_tile = load_tile(v, batch, kv_head, first_key, BLOCK_N, BLOCK_D)
    key = first_key + tl.arange(0, BLOCK_N)[:, None]  # [BLOCK_N, 1]
    dk = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32)
    first, last = query_range(first_key, queries, keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    begin = first  # of the queries that see all of these keys; in a window, all are masked
    if CAUSAL:
        diagonal = first_key + BLOCK_N - 1 - (keys - queries)  # the query that stands at the tile's last key
        begin = tl.minimum(tl.cdiv(tl.maximum(diagonal, 0), BLOCK_M) * BLOCK_M, last)
    if WINDOWED:
        begin = last
    sizes = queries, keys, window
    for head in tl.range(kv_head * group, kv_head * group + group):
        rows_before = (batch.to(tl.int64) * kv_heads * group + head) * queries
        rows_shift, rows_delta = shift_ptr + rows_before, delta_ptr + rows_before
        given = k_tile, v_tile, q, dout, rows_shift, rows_delta, (batch, head), key, scale, sizes
        if CAUSAL or WINDOWED:
            dk, dv = walk_queries(*given, first, begin, dk, dv, CAUSAL, WINDOWED, True, BLOCK_M)
        dk, dv = walk_queries(*given, begin, last, dk, dv, CAUSAL, WINDOWED, False, BLOCK_M)
    keys_before = batch_head.to(tl.int64) * keys * head_dim
    store_rows(dk_ptr + keys_before, dk * scale, first_key, keys, head_dim, BLOCK_N, BLOCK_D)
    store_rows(dv_ptr + keys_before, dv, first_key, keys, head_dim, BLOCK_N, BLOCK_D)


@triton.jit
def attention_dq_fast_kernel(
    q,
    k,
    v,
    dout,
    shift_ptr,
    delta_ptr,
    dq_ptr,
    heads,
    group,
    queries,
    keys,
    head_dim,
    window,
    scale,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One tile of queries of one head; tensors as before."""
    tiles = tl.cdiv(queries, BLOCK_M)
    batch_head = tl.program_id(0) // tiles
    first_query = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_M  # causal, the last tile has most to do
    batch, head = batch_head // heads, batch_head % heads
    kv_head = head // group
    q_tile = load_tile(q, batch, head, first_query, BLOCK_M, BLOCK_D)
    dout_tile = load_tile(dout, batch, head, first_query, BLOCK_M, BLOCK_D)
    rows_before = batch_head.to(tl.int64) * queries
    shift, delta = load_statistics(shift_ptr + rows_before, delta_ptr + rows_before, first_query, queries, BLOCK_M)
    query = first_query + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    dq = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    first, last = key_range(first_query, queries, keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    begin, end = whole_range(first_query, first, queries, keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    given = q_tile, dout_tile, k, v, shift, delta, (batch, kv_head), query, scale, (queries, keys, window)
    if WINDOWED:
        dq = walk_keys(*given, first, tl.minimum(begin, last), dq, CAUSAL, WINDOWED, True, BLOCK_N)
    dq = walk_keys(*given, begin, end, dq, CAUSAL, WINDOWED, False, BLOCK_N)
    dq = walk_keys(*given, end, last, dq, CAUSAL, WINDOWED, True, BLOCK_N)
    store_rows(dq_ptr + rows_before * head_dim, dq * scale, first_query, queries, head_dim, BLOCK_M, BLOCK_D)


def launch(q, k, v, dout, shift, delta, dq, dk, dv, causal: bool, scale: float, window: int | None, tile: dict):
    """dq, dk and dv of tensors that descriptors can address, none of them empty."""
    batch, heads, queries, head_dim = q.shape
    kv_heads, keys = k.shape[1:3]
    rows, cols = tile["BLOCK_M"], tile["BLOCK_N"]
    operands = describe(q, rows), describe(k, cols), describe(v, cols), describe(dout, rows), shift, delta
    sizes = heads // kv_heads, queries, keys, head_dim, window or 0, scale
    options = {"CAUSAL": causal, "WINDOWED": window is not None, **tile}
    by_keys, by_queries = batch * kv_heads * triton.cdiv(keys, cols), batch * heads * triton.cdiv(queries, rows)
    attention_dkdv_fast_kernel[(by_keys,)](*operands, dk, dv, kv_heads, *sizes, **options)
    attention_dq_fast_kernel[(by_queries,)](*operands, dq, heads, *sizes, **options)
