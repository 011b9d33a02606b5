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
dout. Eight consumer warps, two warpgroups, compute: each warpgroup owns 64 of the keys. weights^T and dscores^T
multiply from registers; only dq, whose matmul sums over the keys of both warpgroups, takes dscores from shared memory.
Matmuls run asynchronously: dweights under the exponentials, dv under the arithmetic of dscores, dk under the atomics of
dq. Item n is the n-th tile of queries that a program loads, in slot n % SLOTS.

Three launches: delta and a dq of zeros; this kernel; dq rounded to q's dtype. The split of the work is
FlashAttention-3's (Shah and others, 2024). sm_90, head_dim 64 or 128, no interpreter.
"""

import torch

from instruments.backend import cdiv, tl, triton
from instruments.gluon import (
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

KEYS = gl.constexpr(128)  # keys per program
CONFIGS = BACKWARD["hopper"]  # by head_dim


def _adds(count: int) -> tuple:
    """(PTX, its constraints) by which a thread adds `count` vectors of four numbers to memory, one every 512 bytes."""
    lines = []
    for n in range(count):
        vector = ", ".join(f"${(2 + part) * count + n}" for part in range(4))
        lines.append(f"red.global.add.v4.f32 [${count} + {512 * n}], {{{vector}}}; mov.u32 ${n}, 0;")
    return gl.constexpr("\n".join(lines)), gl.constexpr(",".join(["=r"] * count + ["l"] * count + ["f"] * 4 * count))


ADD_4, CONSTRAINTS_4 = _adds(4)
ADD_8, CONSTRAINTS_8 = _adds(8)


@triton.jit
def place_in_tile(row, col, HEAD_DIM: tl.constexpr):
    """Where element (row, col) of a tile of dq stands in the fp32 buffer. The order is that of a warp's registers: four
    numbers of a lane side by side, then 32 lanes, so that an instruction adds 512 contiguous bytes, then 8 rows."""
    block = row // 16 * (HEAD_DIM // 16) + col // 16  # of 16 rows and 16 columns
    return block * 256 + row // 8 % 2 * 128 + row % 8 * 16 + col % 8 // 2 * 4 + col // 8 % 2 * 2 + col % 2


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
    local = tl.arange(0, QUERIES)[:, None]
    col = tl.arange(0, HEAD_DIM)[None, :]
    row = tl.program_id(0) * QUERIES + local
    dq = tl.load(sum_ptr + tile * QUERIES * HEAD_DIM + place_in_tile(local, col, HEAD_DIM))
    offsets = (tl.program_id(1).to(tl.int64) * queries + row) * HEAD_DIM + col
    tl.store(dq_ptr + offsets, (dq * scale).to(dq_ptr.dtype.element_ty), mask=row < queries)


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
def producer(shared, sizes, place, statistics_ptr, CAUSAL: gl.constexpr):
    """The warp that loads: k and v once, then q and dout of each tile of queries."""
    q, k, v, dout, dk, dv = shared[0]
    k_tile, v_tile, q_ring, dout_ring, statistics, dscores_tile = shared[1]
    kv_full, q_full, dout_full, free = shared[2]
    heads, group, queries, keys = sizes
    batch, kv_head, first_key = place
    QUERIES: gl.constexpr = q.block_type.shape[2]
    SLOTS: gl.constexpr = q_full.shape[0]
    mbarrier.expect(kv_full.index(0), 2 * k.block_type.nbytes)
    load_tile(k, [batch, kv_head, first_key, 0], kv_full.index(0), k_tile)
    load_tile(v, [batch, kv_head, first_key, 0], kv_full.index(0), v_tile)
    first, _, tiles = query_tiles(first_key, queries, keys, CAUSAL, QUERIES)
    lane = gl.arange(0, 2 * QUERIES, gl.BlockedLayout([4], [32], [1], [0]))
    item = 0
    for head in range(kv_head * group, kv_head * group + group):
        tiles_before = (batch * heads + head).to(gl.int64) * tiles
        for tile in range(first, tiles):
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
    """Start the matmul of k or v [KEYS, head_dim] and the transpose of an item of a ring: [KEYS, QUERIES]. The sums
    start at row ROW of the item's statistics, one number per query, instead of 0: that subtraction costs nothing."""
    QUERIES: gl.constexpr = ring.shape[3]
    HEAD_DIM: gl.constexpr = ring.shape[4]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, QUERIES, 16])
    rows = rows.reshape([KEYS, HEAD_DIM])
    tile = ring.index(item % ring.shape[0]).reshape([QUERIES, HEAD_DIM])
    start = statistics.index(item % ring.shape[0]).slice(ROW * QUERIES, QUERIES).load(gl.SliceLayout(0, layout))
    acc = gl.zeros([KEYS, QUERIES], gl.float32, layout) + start[None, :]
    return warpgroup_mma(rows, tile.permute((1, 0)), acc, is_async=True)


@gluon.jit
def start_gradient(factor, ring, item, acc):
    """Start to add the matmul of factor [KEYS, QUERIES], in registers, and an item of a ring to acc [KEYS,
    head_dim]."""
    operand = gl.convert_layout(factor, gl.DotOperandLayout(0, acc.type.layout, 2), assert_trivial=True)
    tile = ring.index(item % ring.shape[0]).reshape([ring.shape[3], ring.shape[4]])
    return warpgroup_mma(operand, tile, acc, is_async=True)


@gluon.jit
def quads(x):
    """x [rows, cols] as four tensors [rows, cols // 16, 4]: what a thread holds of a row's 16 columns, two neighbors
    among the first eight and two among the others. No data moves."""
    x = gl.reshape(x, [x.shape[0], x.shape[1] // 16, 2, 4, 2])  # row, block, half, thread, neighbor
    low, high = gl.split(gl.permute(x, (0, 1, 3, 4, 2)))
    first, second = gl.split(low)
    third, fourth = gl.split(high)
    return first, second, third, fourth


@gluon.jit
def add_dq(dq, dq_ptr):
    """Add dq [QUERIES, head_dim] to a tile of the fp32 buffer, 16 bytes per thread and instruction."""
    HEAD_DIM: gl.constexpr = dq.shape[1]
    layout: gl.constexpr = dq.type.layout
    COLS: gl.constexpr = layout.instr_shape[1]  # columns per warp
    COUNT: gl.constexpr = dq.shape[0] * HEAD_DIM // 1024  # vectors per thread
    row = gl.arange(0, dq.shape[0], gl.SliceLayout(1, layout))[:, None]
    col = gl.arange(0, HEAD_DIM, gl.SliceLayout(0, layout))[None, :]
    # of a thread's first vector, whichever of its elements it is computed from: the others follow every 512 bytes
    place = place_in_tile(row // 16 * 16 + row % 8, col // COLS * COLS + col % 8 // 2 * 2, HEAD_DIM)
    place, _, _, _ = quads(place)
    first, second, third, fourth = quads(dq)
    operands = (dq_ptr + place).to(gl.int64), first, second, third, fourth
    if COUNT == 8:
        gl.inline_asm_elementwise(ADD_8, CONSTRAINTS_8, operands, dtype=gl.int32, is_pure=False, pack=COUNT)
    else:
        gl.inline_asm_elementwise(ADD_4, CONSTRAINTS_4, operands, dtype=gl.int32, is_pure=False, pack=COUNT)


@gluon.jit
def add_tiles(
    begin, end, item, dk, dv,
    shared, dq_ptr, scale, sizes, first_key, tiles,
    MASKED: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """(item, dk, dv) after the tiles of queries in [begin, end) of one head."""
    heads, group, queries, keys = sizes
    k_tile, v_tile, q_ring, dout_ring, statistics, dscores_tile = shared[1]
    kv_full, q_full, dout_full, free = shared[2]
    QUERIES: gl.constexpr = q_ring.shape[3]
    HEAD_DIM: gl.constexpr = q_ring.shape[4]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, QUERIES, 16])
    SPLIT: gl.constexpr = 128 // QUERIES  # of dq's columns between the warpgroups, where they share its rows
    dq_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8 // SPLIT, SPLIT], [16, HEAD_DIM // SPLIT, 16])
    for tile in range(begin, end):
        wait_for(q_full, item)
        scores = start_transposed(k_tile, q_ring, statistics, 0, item)
        wait_for(dout_full, item)
        dweights = start_transposed(v_tile, dout_ring, statistics, 1, item)
        scores = warpgroup_mma_wait(1, deps=(scores,))
        weights = gl.exp2(scores * scale)
        if MASKED:
            key = first_key + gl.arange(0, KEYS, gl.SliceLayout(1, layout))[:, None]
            query = tile * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(0, layout))[None, :]
            mask = key < keys
            if CAUSAL:
                mask = mask & (key <= query + keys - queries)
            weights = gl.where(mask, weights, 0.0)
        dv = start_gradient(weights.to(q_ring.dtype), dout_ring, item, dv)
        dweights = warpgroup_mma_wait(1, deps=(dweights,))
        dscores = (weights * dweights).to(q_ring.dtype)
        dscores_tile.store(dscores)
        fence_async_shared()
        zeros = gl.zeros([QUERIES, HEAD_DIM], gl.float32, dq_layout)
        k_rows = k_tile.reshape([KEYS, HEAD_DIM])
        dq = warpgroup_mma(dscores_tile.permute((1, 0)), k_rows, zeros, use_acc=False, is_async=True)
        dk = start_gradient(dscores, q_ring, item, dk)
        dv = warpgroup_mma_wait(2, deps=(dv,))
        dq = warpgroup_mma_wait(1, deps=(dq,))
        add_dq(dq, dq_ptr + tile * QUERIES * HEAD_DIM)
        dk = warpgroup_mma_wait(0, deps=(dk,))
        release(free, item)
        item += 1
    return item, dk, dv


@gluon.jit
def consumer(shared, sizes, place, dq_ptr, scale, CAUSAL: gl.constexpr):
    """The two warpgroups that compute, from the wait for k and v to the store of dk and dv."""
    k_tile, v_tile, q_ring, dout_ring, statistics, dscores_tile = shared[1]
    kv_full, q_full, dout_full, free = shared[2]
    heads, group, queries, keys = sizes
    batch, kv_head, first_key = place
    QUERIES: gl.constexpr = q_ring.shape[3]
    HEAD_DIM: gl.constexpr = q_ring.shape[4]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, HEAD_DIM, 16])
    dk = gl.zeros([KEYS, HEAD_DIM], gl.float32, layout)
    dv = gl.zeros([KEYS, HEAD_DIM], gl.float32, layout)
    first, unmasked, tiles = query_tiles(first_key, queries, keys, CAUSAL, QUERIES)
    mbarrier.wait(kv_full.index(0), 0)
    item = gl.to_tensor(0)
    for head in range(kv_head * group, kv_head * group + group):
        head_ptr = dq_ptr + (batch * heads + head).to(gl.int64) * tiles * QUERIES * HEAD_DIM
        operands = shared, head_ptr, scale[0], sizes, first_key, tiles
        item, dk, dv = add_tiles(first, unmasked, item, dk, dv, *operands, True, CAUSAL)
        item, dk, dv = add_tiles(unmasked, tiles, item, dk, dv, *operands, False, CAUSAL)
    v_tile.reshape([KEYS, HEAD_DIM]).store(dv.to(v_tile.dtype))
    k_tile.reshape([KEYS, HEAD_DIM]).store((dk * scale[1]).to(k_tile.dtype))
    fence_async_shared()
    store_tile(shared[0][5], [batch, kv_head, first_key, 0], v_tile)
    store_tile(shared[0][4], [batch, kv_head, first_key, 0], k_tile)
    store_wait(0)


@gluon.jit(do_not_specialize=["kv_heads", "group", "queries", "keys"])
def attention_backward_hopper_kernel(
    q, k, v, dout, dk, dv, statistics_ptr, dq_ptr,  # tensors; q, k, v, dout, dk, dv: descriptors
    kv_heads, group, queries, keys, score_scale, scale,
    CAUSAL: gl.constexpr, SLOTS: gl.constexpr,
):  # fmt: skip
    """One tile of KEYS keys of one KV head: q, dout [batch, heads, queries, head_dim] in tiles [1, 1, QUERIES,
    head_dim]; k, v, dk, dv [batch, kv_heads, keys, head_dim] in tiles [1, 1, KEYS, head_dim]; statistics and dq, fp32,
    as `backward_begin_kernel` leaves them."""
    QUERIES: gl.constexpr = q.block_type.shape[2]
    k_tile = gl.allocate_shared_memory(k.dtype, k.block_type.shape, k.layout)
    v_tile = gl.allocate_shared_memory(k.dtype, k.block_type.shape, k.layout)
    q_ring = gl.allocate_shared_memory(q.dtype, [SLOTS] + q.block_type.shape, q.layout)
    dout_ring = gl.allocate_shared_memory(q.dtype, [SLOTS] + q.block_type.shape, q.layout)
    statistics = gl.allocate_shared_memory(gl.float32, [SLOTS, 2 * QUERIES], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    dscores_layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    dscores = gl.allocate_shared_memory(q.dtype, [KEYS, QUERIES], dscores_layout)
    kv_full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    q_full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    dout_full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    mbarrier.init(kv_full.index(0), count=1)
    for slot in gl.static_range(SLOTS):
        mbarrier.init(q_full.index(slot), count=33)  # the copy of q, and the producer's lanes with their statistics
        mbarrier.init(free.index(slot), count=1)
        mbarrier.init(dout_full.index(slot), count=1)
    fence_async_shared()

    tiles = gl.cdiv(keys, KEYS)
    batch_head = gl.program_id(0) // tiles
    place = batch_head // kv_heads, batch_head % kv_heads, gl.program_id(0) % tiles * KEYS
    sizes = kv_heads * group, group, queries, keys
    tensors = q, k, v, dout, dk, dv
    shared = tensors, (k_tile, v_tile, q_ring, dout_ring, statistics, dscores), (kv_full, q_full, dout_full, free)
    gl.warp_specialize(
        [
            (consumer, (shared, sizes, place, dq_ptr, (score_scale, scale), CAUSAL)),
            (producer, (shared, sizes, place, statistics_ptr, CAUSAL)),
        ],
        [1],
        [24],
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
    rows = block, KEYS.value, KEYS.value, block, KEYS.value, KEYS.value
    descriptors = [describe_or_copy(x, n) for x, n in zip((q, k, v, dout, dk, dv), rows)]
    attention_backward_hopper_kernel[(batch * kv_heads * cdiv(keys, KEYS.value),)](
        *descriptors, statistics, sums,
        kv_heads, heads // kv_heads, queries, keys, scale * LOG2E.value, scale,
        CAUSAL=causal, **config, num_warps=8,
    )  # fmt: skip
    backward_end_kernel[grid](sums, dq, queries, scale, **tile)
    return dq, dk, dv
