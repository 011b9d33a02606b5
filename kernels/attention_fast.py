"""Attention forward, fast: tensor descriptors, masks only where a tile needs them, two programs per multiprocessor.

Minimum traffic as in attention.py; the reference, the public function and the traffic are there too. What differs from
the plain kernel:

- The hardware copies tiles to shared memory (tensor descriptors), with zeros where a head ends.
- Tiles that all queries see have a loop of their own, without masks: causal, that is all but the last one or two.
- Up to 128 columns, tiles are small enough for two programs per multiprocessor: while one computes exponentials, the
  other multiplies.
- The rest of the scale and the maximum are one multiply-add with each score; the scale's power of two goes to q,
  exactly, and what is computed stays in registers, which an H200 rewards at 128 columns.
- Causal, the tiles of queries that have most to do are first.

The algorithm is FlashAttention-2's (Dao, 2023).
"""

import math

from instruments.backend import tl, triton
from kernels.attention_plan import describe
from kernels.attention_tiles import FLOOR, LOG2E, key_range, sees, store_rows, whole_range


@triton.jit
def load_tile(tensor, batch, head, row, ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    """[ROWS, BLOCK_D] of one head of a described tensor [batch, heads, sequence, head_dim], from a row on."""
    return tensor.load([batch, head, row, 0]).reshape([ROWS, BLOCK_D])


@triton.jit
def walk(
    q_tile,
    k,
    v,
    at,
    row,
    scale,
    sizes,
    begin,
    end,
    out,
    largest,
    total,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """out, largest and total after the tiles of keys in [begin, end), as in the plain kernel. MASKED: some keys are not
    seen. at: (batch, head) of k and v; sizes: what `sees` asks for."""
    BLOCK_D: tl.constexpr = q_tile.shape[1]
    for start in tl.range(begin, end, BLOCK_N):
        scores = tl.dot(q_tile, load_tile(k, *at, start, BLOCK_N, BLOCK_D).T)  # [BLOCK_M, BLOCK_N]
        if MASKED:
            key = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
            seen = sees(row[:, None], key[None, :], *sizes, CAUSAL, WINDOWED)
            scores = tl.where(seen, scores, float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, axis=1) * scale)
        weights = tl.exp2(scores * scale - larger[:, None])
        repair = tl.exp2(largest - larger)
        total = total * repair + tl.sum(weights, axis=1)
        v_tile = load_tile(v, *at, start, BLOCK_N, BLOCK_D)
        out = tl.dot(weights.to(v_tile.dtype), v_tile, out * repair[:, None])
        largest = larger
    return out, largest, total


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
    begin, end = whole_range(first_query, first, queries, keys, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED)
    given = q_tile, k, v, (batch, kv_head), row, scale, (queries, keys, window)
    if WINDOWED:
        middle = tl.minimum(begin, last)
        out, largest, total = walk(*given, first, middle, out, largest, total, CAUSAL, WINDOWED, True, BLOCK_N)
    out, largest, total = walk(*given, begin, end, out, largest, total, CAUSAL, WINDOWED, False, BLOCK_N)
    out, largest, total = walk(*given, end, last, out, largest, total, CAUSAL, WINDOWED, True, BLOCK_N)
    empty = total == 0.0
    out = out / tl.where(empty, 1.0, total)[:, None]
    lse = tl.where(empty, float("-inf"), (largest + tl.log2(total)) / LOG2E)
    rows_before = batch_head.to(tl.int64) * queries
    tl.store(lse_ptr + rows_before + row, lse, mask=row < queries)
    store_rows(out_ptr + rows_before * head_dim, out, first_query, queries, head_dim, BLOCK_M, BLOCK_D)


def launch(q, k, v, out, lse, causal: bool, scale: float, window: int | None, tile: dict):
    """out and lse of q, k and v that descriptors can address, none of them empty."""
    batch, heads, queries, head_dim = q.shape
    rest, exponent = math.frexp(scale * LOG2E.value)
    operands = describe(q, tile["BLOCK_M"]), describe(k, tile["BLOCK_N"]), describe(v, tile["BLOCK_N"])
    sizes = heads, heads // k.shape[1], queries, k.shape[2], head_dim, window or 0, 2.0**exponent, rest
    grid = (batch * heads * triton.cdiv(queries, tile["BLOCK_M"]),)
    options = {"CAUSAL": causal, "WINDOWED": window is not None}
    attention_fast_kernel[grid](*operands, out, lse, *sizes, **options, **tile)
