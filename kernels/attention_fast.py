"""Attention forward, fast: tensor descriptors, masks only where a tile needs them, two programs per multiprocessor.

Minimum traffic as in attention.py; the reference, the public function and the traffic are there too. Three things make
the difference to the plain kernel:

- Tiles are copied to shared memory by the hardware (tensor descriptors), zeros where a head ends.
- Tiles that all queries see are not masked: causal, that is all but the last one or two.
- Tiles are small enough for two programs per multiprocessor: while one computes exponentials the other multiplies.

The scale's power of two goes to q, exactly; the rest is applied to the scores, in one fused multiply-add with the
maximum. Longest programs start first. The algorithm is FlashAttention-2's (Dao, 2023); multiplying the next scores
before this tile's exponentials is FlashAttention-3's (Shah and others, 2024).
"""

import math

from instruments.backend import tl, triton
from kernels.attention_plan import describe
from kernels.attention_tiles import FLOOR, LOG2E, key_range, seen_by_all, sees, store_rows


@triton.jit
def load_tile(tensor, batch, head, row, ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    """[ROWS, BLOCK_D] of one head of a described tensor [batch, heads, sequence, head_dim], from a row on."""
    return tensor.load([batch, head, row, 0]).reshape([ROWS, BLOCK_D])


@triton.jit
def hide(scores, row, start, whole, queries, keys, window, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr):
    """scores [BLOCK_M, BLOCK_N] of the keys from start on, -inf where a query does not see the key; rows: [BLOCK_M].
    whole: (first, last) keys that all of them see."""
    BLOCK_N: tl.constexpr = scores.shape[1]
    if (start < whole[0]) | (start + BLOCK_N > whole[1]):
        key = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
        seen = sees(row[:, None], key[None, :], queries, keys, window, CAUSAL, WINDOWED)
        scores = tl.where(seen, scores, float("-inf"))
    return scores


@triton.jit(do_not_specialize=["heads", "group", "queries", "keys", "window"])  # compiled once for all lengths
def attention_fast_kernel(
    q,
    k,
    v,
    out_ptr,
    lse_ptr,
    heads,
    group,
    queries,
    keys,
    head_dim,
    window,
    power,
    scale,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    AHEAD: tl.constexpr,
    IN_REGISTERS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One tile of queries of one head: descriptors q, k, v, the others as for the plain kernel; power * scale is the
    scale in units of log2(e), power a power of two."""
    tiles = tl.cdiv(queries, BLOCK_M)
    batch_head = tl.program_id(0) // tiles
    first_query = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_M  # causal, the last tile has most to do
    batch, head = batch_head // heads, batch_head % heads
    kv_head = head // group
    row = first_query + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    q_tile = load_tile(q, batch, head, first_query, BLOCK_M, BLOCK_D)
    if IN_REGISTERS:
        q_tile = (q_tile * power).to(q_tile.dtype)  # computed, so that it stays in registers
    else:
        scale *= power
    largest = tl.full([BLOCK_M], FLOOR, dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    out = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    first, last = key_range(first_query, queries, keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    whole = seen_by_all(first_query, queries, keys, window, BLOCK_M, CAUSAL, WINDOWED)
    if AHEAD:
        scores = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)  # of the tile that comes next
        weights = tl.zeros(
            [BLOCK_M, BLOCK_N], dtype=tl.int16
        )  # of the tile before; bits, or they would leave registers
        if first < last:
            scores = tl.dot(q_tile, load_tile(k, batch, kv_head, first, BLOCK_N, BLOCK_D).T) * scale
            scores = hide(scores, row, first, whole, queries, keys, window, CAUSAL, WINDOWED)
            largest = tl.maximum(largest, tl.max(scores, axis=1))
            exponentials = tl.exp2(scores - largest[:, None])
            total = tl.sum(exponentials, axis=1)
            weights = exponentials.to(v.dtype).to(tl.int16, bitcast=True)
            scores = tl.dot(q_tile, load_tile(k, batch, kv_head, first + BLOCK_N, BLOCK_N, BLOCK_D).T)
        for start in tl.range(first + BLOCK_N, last, BLOCK_N):
            v_tile = load_tile(v, batch, kv_head, start - BLOCK_N, BLOCK_N, BLOCK_D)
            out = tl.dot(weights.to(v.dtype, bitcast=True), v_tile, out)
            base = tl.where(largest == FLOOR, 0.0, largest)  # 0 for rows that saw nothing yet
            above = scores * scale - base[:, None]  # now, so that the next product may take the scores' registers
            scores = tl.dot(q_tile, load_tile(k, batch, kv_head, start + BLOCK_N, BLOCK_N, BLOCK_D).T)
            above = hide(above, row, start, whole, queries, keys, window, CAUSAL, WINDOWED)
            growth = tl.maximum(tl.max(above, axis=1), largest - base)
            exponentials = tl.exp2(above - growth[:, None])
            repair = tl.exp2(largest - base - growth)
            total = total * repair + tl.sum(exponentials, axis=1)
            largest = base + growth
            out = out * repair[:, None]
            weights = exponentials.to(v.dtype).to(tl.int16, bitcast=True)
        if first < last:
            start = (last - 1) // BLOCK_N * BLOCK_N
            v_tile = load_tile(v, batch, kv_head, start, BLOCK_N, BLOCK_D)
            out = tl.dot(weights.to(v.dtype, bitcast=True), v_tile, out)
    else:
        for start in tl.range(first, last, BLOCK_N):
            scores = tl.dot(q_tile, load_tile(k, batch, kv_head, start, BLOCK_N, BLOCK_D).T)
            scores = hide(scores, row, start, whole, queries, keys, window, CAUSAL, WINDOWED)
            larger = tl.maximum(largest, tl.max(scores, axis=1) * scale)
            weights = tl.exp2(scores * scale - larger[:, None])
            repair = tl.exp2(largest - larger)
            total = total * repair + tl.sum(weights, axis=1)
            v_tile = load_tile(v, batch, kv_head, start, BLOCK_N, BLOCK_D)
            out = tl.dot(weights.to(v_tile.dtype), v_tile, out * repair[:, None])
            largest = larger
    empty = total == 0.0
    out = out / tl.where(empty, 1.0, total)[:, None]
    lse = tl.where(empty, float("-inf"), (largest + tl.log2(total)) / LOG2E)
    rows_before = batch_head.to(tl.int64) * queries
    tl.store(lse_ptr + rows_before + row, lse, mask=row < queries)
    store_rows(out_ptr + rows_before * head_dim, out, first_query, queries, head_dim, BLOCK_M, BLOCK_D)


#: What is tuned over on a GPU; the interpreter takes the first.
CONFIGS = [
    triton.Config({"AHEAD": ahead, "IN_REGISTERS": kept}, num_warps=4, num_stages=3)
    for ahead, kept in ((False, False), (False, True), (True, True), (True, False))
]
attention_tuned_kernel = triton.autotune(CONFIGS, key=["BLOCK_D", "CAUSAL", "WINDOWED"])(attention_fast_kernel)


def launch(q, k, v, out, lse, causal: bool, scale: float, window: int | None, tile: dict):
    """out and lse of q, k and v that descriptors can address, none of them empty."""
    batch, heads, queries, head_dim = q.shape
    rest, exponent = math.frexp(scale * math.log2(math.e))
    operands = describe(q, tile["BLOCK_M"]), describe(k, tile["BLOCK_N"]), describe(v, tile["BLOCK_N"])
    sizes = heads, heads // k.shape[1], queries, k.shape[2], head_dim, window or 0, 2.0**exponent, rest
    grid = (batch * heads * triton.cdiv(queries, tile["BLOCK_M"]),)
    options = {"CAUSAL": causal, "WINDOWED": window is not None}
    blocks = {name: tile[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_D")}
    if tile["BLOCK_D"] != 128:
        attention_fast_kernel[grid](*operands, out, lse, *sizes, **options, **tile)
    else:
        attention_tuned_kernel[grid](*operands, out, lse, *sizes, **options, **blocks)
