"""Attention's backward for Hopper, in Gluon: five matmuls per tile of scores, and warp specialization.

Formulas, minimum traffic and the Triton kernels are those of backward.py. There, dq has a launch of its own, which
computes the scores a second time: seven matmuls. Here one program owns KEYS keys, loops over the queries that attend to
them and adds its share of dq to an fp32 buffer by atomics: five matmuls. The atomics come in any order, so dq differs
by rounding from run to run, while dk and dv do not.

    scores^T = k @ q^T - lse / scale    weights^T = exp2(scores^T * scale * log2(e))    dv += weights^T @ dout
    dweights^T = v @ dout^T - delta     dscores^T = weights^T * dweights^T              dk += dscores^T @ q
                                                                                        dq += dscores @ k

The sums of scores^T and dweights^T start at -lse / scale and -delta instead of 0, so those subtractions are free.
One producer warp loads: its TMA copies fill two rings of SLOTS tiles of QUERIES queries, q, with those numbers, and
dout. Two consumer warpgroups compute. Each owns ROWS of the keys, and half of dq. weights^T and dscores^T multiply from
registers; only dq, whose matmul sums over the keys of both warpgroups, takes dscores from shared memory. Two mbarriers
per tile of dscores (`dscores_full`, `dscores_free`) are all that the warpgroups wait for of each other, so the
exponentials of one run under the matmuls of the other. A warpgroup leaves its share of dq in shared memory, 16 bytes
per thread and instruction, from where TMA adds it to memory (a bulk reduction) while the warpgroup goes on.
Item n is the n-th tile of queries that a program loads, in slot n % SLOTS.

AHEAD: the scores of the next tile are started before this tile's matmuls end, and dv is started after dscores, which
frees the registers of the weights. An H200 is faster with it at head_dim 64, where exponentials take more of the time,
and slower at 128, where registers spill.

DOWN: from the last tile of queries to the first. Causal, programs of a head begin at different tiles but all need the
last ones, so downwards those that start together read the same tiles of q and dout while L2 holds them. An H200 is 2
to 4% faster with it at head_dim 128, and 2% slower at 64. Turns, as the forward takes them, make it 2 to 8% slower
(bench/results/experiments/attention_backward_order_h200.json).

Three launches: delta and a dq of zeros; this kernel; dq rounded to q's dtype. The split of the work is
FlashAttention-3's (Shah and others, 2024). sm_90, head_dim 64 or 128, no interpreter.
"""

import torch

from instruments.backend import cdiv, tl, triton
from instruments.gluon import (
    add_tile,
    arrive_when_copied,
    copy_rows,
    fence_async_shared,
    gl,
    gluon,
    load_tile,
    mbarrier,
    store_tile,
    store_wait,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from kernels.attention.configs import BACKWARD, describe_or_copy
from kernels.attention.hopper import release, wait_for
from kernels.attention.masks import LOG2E
from kernels.shared.device import tensor_descriptor

ROWS = gl.constexpr(64)  # keys per warpgroup: what one wgmma instruction multiplies
KEYS = gl.constexpr(128)  # keys per program
BUFFERS = gl.constexpr(2)  # tiles of dscores in shared memory, per warpgroup
CONFIGS = BACKWARD["hopper"]  # by head_dim
TOGETHER = 256  # programs in whose order the longest come first; more would share less in the L2


@triton.jit
def backward_begin_kernel(
    out_ptr, dout_ptr, lse_ptr, statistics_ptr, dq_ptr,  # tensors
    queries, scale, QUERIES: tl.constexpr, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """One tile of QUERIES rows of one head: what the sums of scores and of dweights start at, and zeros for dq.

    out, dout [batch * heads, queries, head_dim], contiguous; lse [batch * heads, queries]; statistics [batch * heads,
    tiles, 2, QUERIES] fp32: -lse / scale (-inf past the end and where a row attends to no key, so that its weights
    become zero), and -delta; dq [batch * heads, tiles, QUERIES * head_dim] fp32. Grid: tiles, batch * heads."""
    tile = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    row = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)  # [QUERIES]
    col = tl.arange(0, HEAD_DIM)[None, :]
    rows_before = tl.program_id(1).to(tl.int64) * queries
    offsets = (rows_before + row)[:, None] * HEAD_DIM + col
    out = tl.load(out_ptr + offsets, mask=row[:, None] < queries, other=0.0).to(tl.float32)
    dout = tl.load(dout_ptr + offsets, mask=row[:, None] < queries, other=0.0).to(tl.float32)
    lse = tl.load(lse_ptr + rows_before + row, mask=row < queries, other=float("-inf"))
    statistics_ptr += tile * 2 * QUERIES + tl.arange(0, QUERIES)
    tl.store(statistics_ptr, tl.where(lse == float("-inf"), lse, -lse / scale))
    tl.store(statistics_ptr + QUERIES, -tl.sum(out * dout, axis=1))
    place = tl.arange(0, QUERIES * HEAD_DIM)
    tl.store(dq_ptr + tile * QUERIES * HEAD_DIM + place, tl.zeros([QUERIES * HEAD_DIM], dtype=tl.float32))


@triton.jit
def backward_end_kernel(
    sum_ptr, dq_ptr,  # tensors
    queries, scale, QUERIES: tl.constexpr, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """One tile of dq [batch * heads, queries, head_dim]: the sums times scale. Grid: tiles, batch * heads."""
    tile = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    dq = tl.load(sum_ptr + tile * QUERIES * HEAD_DIM + tl.arange(0, QUERIES * HEAD_DIM))
    # warpgroup, warp, 16 columns, 8 rows, row, thread, 8 columns, neighbor: see `in_register_order`
    dq = tl.reshape(dq, [2, 4, QUERIES * HEAD_DIM // 2048, 2, 8, 4, 2, 2])
    if QUERIES == 64:  # warpgroups share the columns
        dq = tl.permute(dq, (1, 3, 4, 0, 2, 6, 5, 7))
    else:
        dq = tl.permute(dq, (0, 1, 3, 4, 2, 6, 5, 7))
    dq = tl.reshape(dq, [QUERIES, HEAD_DIM])
    row = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)[:, None]
    offsets = (tl.program_id(1).to(tl.int64) * queries + row) * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :]
    tl.store(dq_ptr + offsets, (dq * scale).to(dq_ptr.dtype.element_ty), mask=row < queries)


@gluon.jit
def find_keys(tiles, together):
    """(head, tile of keys) of this program: of `together` heads the first tiles come first, then their second ones.
    Causal, the first tiles have the most queries: the longest programs of the last heads must not start last."""
    program, all_heads = gl.program_id(0), gl.num_programs(0) // tiles
    first_head = program // (together * tiles) * together
    count = gl.minimum(together, all_heads - first_head)
    local = program - first_head * tiles
    return first_head + local % count, local // count


@gluon.jit
def query_tiles(first_key, queries, keys, CAUSAL: gl.constexpr, QUERIES: gl.constexpr):
    """(first tile of queries that attend to a key of this program, first that needs no mask, tiles of a head)."""
    tiles = gl.cdiv(queries, QUERIES)
    first, unmasked = 0, 0
    if CAUSAL:
        query = first_key - (keys - queries)  # at the position of the first key
        first = gl.minimum(gl.maximum(query, 0) // QUERIES, tiles)
        unmasked = gl.minimum(gl.cdiv(gl.maximum(query + KEYS - 1, 0), QUERIES), tiles)
    return first, gl.where(first_key + KEYS > keys, tiles, unmasked), tiles


@gluon.jit
def producer(shared, sizes, place, statistics_ptr, DOWN: gl.constexpr, CAUSAL: gl.constexpr):
    """The warp that loads: k and v once, then q and dout of each tile of queries."""
    q, k, v, dout, dk, dv, dq = shared[0]
    k_tiles, v_tiles, q_ring, dout_ring, statistics, dscores_tiles, dq_tiles = shared[1]
    kv_full, q_full, dout_full, free, dscores_full, dscores_free = shared[2]
    heads, group, queries, keys = sizes
    batch, kv_head, first_key = place
    QUERIES: gl.constexpr = q.block_type.shape[2]
    SLOTS: gl.constexpr = q_full.shape[0]
    mbarrier.expect(kv_full.index(0), 4 * k.block_type.nbytes)
    for warpgroup in gl.static_range(2):
        at = [batch, kv_head, first_key + warpgroup * ROWS, 0]
        load_tile(k, at, kv_full.index(0), k_tiles.index(warpgroup))
        load_tile(v, at, kv_full.index(0), v_tiles.index(warpgroup))
    first, _, tiles = query_tiles(first_key, queries, keys, CAUSAL, QUERIES)
    lane = gl.arange(0, 2 * QUERIES, gl.BlockedLayout([4], [32], [1], [0]))
    item = 0
    for head in range(kv_head * group, kv_head * group + group):
        tiles_before = (batch * heads + head).to(gl.int64) * tiles
        for step in range(first, tiles):
            tile = first + tiles - 1 - step if DOWN else step
            slot = item % SLOTS
            at = [batch, head, tile * QUERIES, 0]
            wait_for(free, item, FREE=True)
            copy_rows(statistics.index(slot), statistics_ptr + (tiles_before + tile) * 2 * QUERIES + lane)
            arrive_when_copied(q_full.index(slot), increment_count=False)
            mbarrier.expect(q_full.index(slot), q.block_type.nbytes)
            load_tile(q, at, q_full.index(slot), q_ring.index(slot))
            mbarrier.expect(dout_full.index(slot), q.block_type.nbytes)
            load_tile(dout, at, dout_full.index(slot), dout_ring.index(slot))
            item += 1


@gluon.jit
def start_transposed(rows, ring, statistics, ROW: gl.constexpr, item):
    """Start the matmul of k or v [ROWS, head_dim] and the transpose of an item of a ring: [ROWS, QUERIES]. The sums
    start at row ROW of the item's statistics, one number per query, instead of 0: that subtraction costs nothing."""
    QUERIES: gl.constexpr = ring.shape[3]
    HEAD_DIM: gl.constexpr = ring.shape[4]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, QUERIES, 16])
    rows = rows.reshape([ROWS, HEAD_DIM])
    tile = ring.index(item % ring.shape[0]).reshape([QUERIES, HEAD_DIM])
    start = statistics.index(item % ring.shape[0]).slice(ROW * QUERIES, QUERIES).load(gl.SliceLayout(0, layout))
    acc = gl.zeros([ROWS, QUERIES], gl.float32, layout) + start[None, :]
    return warpgroup_mma(rows, tile.permute((1, 0)), acc, is_async=True)


@gluon.jit
def start_gradient(factor, ring, item, acc):
    """Start to add the matmul of factor [ROWS, QUERIES], in registers, and an item of a ring to acc [ROWS,
    head_dim]."""
    operand = gl.convert_layout(factor, gl.DotOperandLayout(0, acc.type.layout, 2), assert_trivial=True)
    tile = ring.index(item % ring.shape[0]).reshape([ring.shape[3], ring.shape[4]])
    return warpgroup_mma(operand, tile, acc, is_async=True)


@gluon.jit
def start_dq(dscores_tiles, k_tiles, item, OWNER: gl.constexpr, WARPGROUP: gl.constexpr, acc, use_acc: gl.constexpr):
    """Start to add to acc [ROWS, columns], this warpgroup's half of a tile of dq, the matmul of the dscores and the
    keys that warpgroup OWNER owns. 64 queries: warpgroups share dq's columns; 128: its rows."""
    QUERIES: gl.constexpr = dscores_tiles.shape[2]
    HEAD_DIM: gl.constexpr = k_tiles.shape[4]
    ROW: gl.constexpr = 0 if QUERIES == ROWS else WARPGROUP * ROWS
    COLS: gl.constexpr = QUERIES * HEAD_DIM // KEYS
    COL: gl.constexpr = WARPGROUP * COLS if QUERIES == ROWS else 0
    dscores = dscores_tiles.index(item % BUFFERS * 2 + OWNER).slice(ROW, ROWS, dim=1)
    keys = k_tiles.index(OWNER).reshape([ROWS, HEAD_DIM]).slice(COL, COLS, dim=1)
    return warpgroup_mma(dscores.permute((1, 0)), keys, acc, use_acc=use_acc, is_async=True)


@gluon.jit
def in_register_order(x):
    """x [ROWS, cols] as [cols / 2, 128], in the order of a warpgroup's registers: four numbers per thread, 32 threads,
    so that an instruction stores 512 contiguous bytes and no two threads meet in a bank. No data moves."""
    COLS: gl.constexpr = x.shape[1]
    x = gl.reshape(x, [4, 2, 8, COLS // 16, 2, 4, 2])  # warp, 8 rows, row, 16 columns, 8 columns, thread, neighbor
    return gl.reshape(gl.permute(x, (0, 3, 1, 2, 5, 4, 6)), [COLS // 2, 128])


@gluon.jit
def add_dq(dq, dq_descriptor, half, dq_tile):
    """Start to add a warpgroup's half of a tile of dq to memory, from a tile [cols / 2, 128] of shared memory."""
    store_wait(0)  # of the tile before: dq_tile may be overwritten
    dq_tile.store(in_register_order(dq))
    fence_async_shared()  # TMA sees what threads wrote only behind a fence
    add_tile(dq_descriptor, [half * dq_tile.shape[0], 0], dq_tile)


@gluon.jit
def add_tiles(
    begin, end, last, state,
    shared, first_tile, scale, sizes, first_key,
    WARPGROUP: gl.constexpr, AHEAD: gl.constexpr, DOWN: gl.constexpr, MASKED: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """A consumer warpgroup's loop: the tiles of queries in [begin, end) of one head.

    Args:
        last: the program's last item.
        state: the item of the first of these tiles; dk, dv [ROWS, head_dim]; AHEAD, its scores [ROWS, QUERIES].
        first_tile: number of the head's first tile in dq.
        scale: of the scores, in units of log2(e).
        first_key: of the program.
        DOWN: from tile end - 1 to begin.

    Returns:
        state after these tiles.
    """
    item, dk, dv, scores = state
    heads, group, queries, keys = sizes
    k_tiles, v_tiles, q_ring, dout_ring, statistics, dscores_tiles, dq_tiles = shared[1]
    kv_full, q_full, dout_full, free, dscores_full, dscores_free = shared[2]
    QUERIES: gl.constexpr = q_ring.shape[3]
    HEAD_DIM: gl.constexpr = q_ring.shape[4]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, QUERIES, 16])
    COLS: gl.constexpr = QUERIES * HEAD_DIM // KEYS  # of this warpgroup's half of dq
    dq_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLS, 16])
    for step in range(begin, end):
        tile = begin + end - 1 - step if DOWN else step
        if not AHEAD:
            wait_for(q_full, item)
            scores = start_transposed(k_tiles.index(WARPGROUP), q_ring, statistics, 0, item)
        wait_for(dout_full, item)
        dweights = start_transposed(v_tiles.index(WARPGROUP), dout_ring, statistics, 1, item)
        if not AHEAD:
            scores = warpgroup_mma_wait(1, deps=(scores,))
        weights = gl.exp2(scores * scale)
        if MASKED:
            key = first_key + WARPGROUP * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
            query = tile * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(0, layout))[None, :]
            mask = key < keys
            if CAUSAL:
                mask = mask & (key <= query + keys - queries)
            weights = gl.where(mask, weights, 0.0)
        if not AHEAD:
            dv = start_gradient(weights.to(q_ring.dtype), dout_ring, item, dv)
        dweights = warpgroup_mma_wait(0 if AHEAD else 1, deps=(dweights,))
        dscores = (weights * dweights).to(q_ring.dtype)
        wait_for(dscores_free, item, FREE=True)
        dscores_tiles.index(item % BUFFERS * 2 + WARPGROUP).store(dscores)
        fence_async_shared()
        mbarrier.arrive(dscores_full.index(item % BUFFERS))
        if AHEAD:
            dv = start_gradient(weights.to(q_ring.dtype), dout_ring, item, dv)
        dq = gl.zeros([ROWS, COLS], gl.float32, dq_layout)
        dq = start_dq(dscores_tiles, k_tiles, item, WARPGROUP, WARPGROUP, dq, use_acc=False)
        dk = start_gradient(dscores, q_ring, item, dk)
        dv = warpgroup_mma_wait(2, deps=(dv,))
        wait_for(dscores_full, item)
        dq = start_dq(dscores_tiles, k_tiles, item, 1 - WARPGROUP, WARPGROUP, dq, use_acc=True)
        if AHEAD:
            following = gl.minimum(item + 1, last)  # after the last item its scores once more, which nobody reads
            wait_for(q_full, following)
            scores = start_transposed(k_tiles.index(WARPGROUP), q_ring, statistics, 0, following)
        dk = warpgroup_mma_wait(1, deps=(dk,))
        dq = warpgroup_mma_wait(1 if AHEAD else 0, deps=(dq,))
        release(free, item)
        release(dscores_free, item)
        add_dq(dq, shared[0][6], 2 * (first_tile + tile) + WARPGROUP, dq_tiles.index(WARPGROUP))
        if AHEAD:
            scores = warpgroup_mma_wait(0, deps=(scores,))
        item += 1
    return item, dk, dv, scores


@gluon.jit
def consumer(
    shared, sizes, place, scale,
    WARPGROUP: gl.constexpr, AHEAD: gl.constexpr, DOWN: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """A warpgroup that computes, from the wait for k and v to the store of its rows of dk and dv."""
    k_tiles, v_tiles, q_ring, dout_ring, statistics, dscores_tiles, dq_tiles = shared[1]
    kv_full, q_full, dout_full, free, dscores_full, dscores_free = shared[2]
    heads, group, queries, keys = sizes
    batch, kv_head, first_key = place
    QUERIES: gl.constexpr = q_ring.shape[3]
    HEAD_DIM: gl.constexpr = q_ring.shape[4]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    score_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, QUERIES, 16])
    dk = gl.zeros([ROWS, HEAD_DIM], gl.float32, layout)
    dv = gl.zeros([ROWS, HEAD_DIM], gl.float32, layout)
    scores = gl.zeros([ROWS, QUERIES], gl.float32, score_layout)
    first, unmasked, tiles = query_tiles(first_key, queries, keys, CAUSAL, QUERIES)
    last = group * (tiles - first) - 1
    mbarrier.wait(kv_full.index(0), 0)
    item = gl.to_tensor(0)
    if AHEAD:
        if last >= 0:
            wait_for(q_full, item)
            scores = start_transposed(k_tiles.index(WARPGROUP), q_ring, statistics, 0, item)
            scores = warpgroup_mma_wait(0, deps=(scores,))
    state = item, dk, dv, scores
    for head in range(kv_head * group, kv_head * group + group):
        operands = shared, (batch * heads + head) * tiles, scale[0], sizes, first_key
        if not DOWN:
            state = add_tiles(first, unmasked, last, state, *operands, WARPGROUP, AHEAD, DOWN, True, CAUSAL)
        state = add_tiles(unmasked, tiles, last, state, *operands, WARPGROUP, AHEAD, DOWN, False, CAUSAL)
        if DOWN:
            state = add_tiles(first, unmasked, last, state, *operands, WARPGROUP, AHEAD, DOWN, True, CAUSAL)
    item, dk, dv, scores = state
    k_tile, v_tile = k_tiles.index(WARPGROUP), v_tiles.index(WARPGROUP)
    v_tile.reshape([ROWS, HEAD_DIM]).store(dv.to(v_tiles.dtype))
    wait_for(dscores_free, item + 1, FREE=True)  # the other warpgroup has read these keys for its last dq
    k_tile.reshape([ROWS, HEAD_DIM]).store((dk * scale[1]).to(k_tiles.dtype))
    fence_async_shared()
    store_tile(shared[0][5], [batch, kv_head, first_key + WARPGROUP * ROWS, 0], v_tile)
    store_tile(shared[0][4], [batch, kv_head, first_key + WARPGROUP * ROWS, 0], k_tile)
    store_wait(0)


@gluon.jit(do_not_specialize=["kv_heads", "group", "queries", "keys", "together"])
def attention_backward_hopper_kernel(
    q, k, v, dout, dk, dv, dq, statistics_ptr,  # tensors; all but statistics_ptr: descriptors
    kv_heads, group, queries, keys, together, score_scale, scale,
    CAUSAL: gl.constexpr, SLOTS: gl.constexpr, AHEAD: gl.constexpr, DOWN: gl.constexpr,
):  # fmt: skip
    """KEYS keys of one KV head: q, dout [batch, heads, queries, head_dim] in tiles [1, 1, QUERIES, head_dim]; k, v, dk,
    dv [batch, kv_heads, keys, head_dim] in tiles [1, 1, ROWS, head_dim]; statistics and dq, fp32, as
    `backward_begin_kernel` leaves them, dq [rows, 128] in tiles of a warpgroup's half of a tile of queries."""
    QUERIES: gl.constexpr = q.block_type.shape[2]
    k_tiles = gl.allocate_shared_memory(k.dtype, [2] + k.block_type.shape, k.layout)
    v_tiles = gl.allocate_shared_memory(k.dtype, [2] + k.block_type.shape, k.layout)
    q_ring = gl.allocate_shared_memory(q.dtype, [SLOTS] + q.block_type.shape, q.layout)
    dout_ring = gl.allocate_shared_memory(q.dtype, [SLOTS] + q.block_type.shape, q.layout)
    statistics = gl.allocate_shared_memory(gl.float32, [SLOTS, 2 * QUERIES], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    dscores_layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    dscores_tiles = gl.allocate_shared_memory(q.dtype, [2 * BUFFERS, ROWS, QUERIES], dscores_layout)
    dq_tiles = gl.allocate_shared_memory(gl.float32, [2] + dq.block_type.shape, dq.layout)
    kv_full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    q_full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    dout_full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    dscores_full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    dscores_free = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    mbarrier.init(kv_full.index(0), count=1)
    for slot in gl.static_range(SLOTS):
        mbarrier.init(q_full.index(slot), count=33)  # the copy of q, and the producer's lanes with their statistics
        mbarrier.init(dout_full.index(slot), count=1)
        mbarrier.init(free.index(slot), count=2)  # both warpgroups
    for slot in gl.static_range(BUFFERS):
        mbarrier.init(dscores_full.index(slot), count=2)
        mbarrier.init(dscores_free.index(slot), count=2)
    fence_async_shared()

    batch_head, tile = find_keys(gl.cdiv(keys, KEYS), together)
    place = batch_head // kv_heads, batch_head % kv_heads, tile * KEYS
    sizes = kv_heads * group, group, queries, keys
    descriptors = q, k, v, dout, dk, dv, dq
    buffers = k_tiles, v_tiles, q_ring, dout_ring, statistics, dscores_tiles, dq_tiles
    shared = descriptors, buffers, (kv_full, q_full, dout_full, free, dscores_full, dscores_free)
    gl.warp_specialize(
        [
            (consumer, (shared, sizes, place, (score_scale, scale), 0, AHEAD, DOWN, CAUSAL)),
            (consumer, (shared, sizes, place, (score_scale, scale), 1, AHEAD, DOWN, CAUSAL)),
            (producer, (shared, sizes, place, statistics_ptr, DOWN, CAUSAL)),
        ],
        [4, 1],
        [240, 24],
    )


def launch(dout, q, k, v, out, lse, causal: bool, scale: float, config: dict | None = None) -> tuple:
    """(dq, dk, dv) of arguments that `attention_backward` takes, none of them empty, on a Hopper GPU."""
    batch, heads, queries, head_dim = q.shape
    kv_heads, keys = k.shape[1:3]
    config = dict(config or CONFIGS[head_dim])
    block = config.pop("QUERIES")
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    dout, out, lse = dout.contiguous(), out.contiguous(), lse.contiguous()
    tiles = cdiv(queries, block)
    statistics = torch.empty((batch * heads, tiles, 2, block), dtype=torch.float32, device=q.device)
    sums = torch.empty((batch * heads, tiles, block * head_dim), dtype=torch.float32, device=q.device)
    tile = {"QUERIES": block, "HEAD_DIM": head_dim, "num_warps": 8}
    grid = tiles, batch * heads
    backward_begin_kernel[grid](out, dout, lse, statistics, sums, queries, scale, **tile)
    rows = block, ROWS.value, ROWS.value, block, ROWS.value, ROWS.value
    descriptors = [describe_or_copy(x, n) for x, n in zip((q, k, v, dout, dk, dv), rows)]
    together = max(1, TOGETHER // cdiv(keys, KEYS.value)) if causal else 1
    half = block * head_dim // 2 // 128, 128  # of a tile of dq
    sums_descriptor = tensor_descriptor(
        sums, [sums.numel() // 128, 128], [128, 1], half, gl.NVMMASharedLayout(0, 32, 2)
    )
    attention_backward_hopper_kernel[(batch * kv_heads * cdiv(keys, KEYS.value),)](
        *descriptors, sums_descriptor, statistics,
        kv_heads, heads // kv_heads, queries, keys, together, scale * LOG2E.value, scale,
        CAUSAL=causal, **config, num_warps=4,
    )  # fmt: skip
    backward_end_kernel[grid](sums, dq, queries, scale, **tile)
    return dq, dk, dv
