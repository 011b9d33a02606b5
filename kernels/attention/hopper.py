"""Attention's forward for Hopper, in Gluon: warp specialization, so that matmuls run under exponentials.

Reference, minimum traffic and the Triton kernels are those of forward.py. The loop over tiles of keys is the same; here
the author, not the compiler, says which warp does what. One producer warp loads: its TMA copies fill a ring of tiles,
keys and values in turn. Two or three consumer warpgroups (four warps, 64 queries each) compute: under the exponentials
of one, the tensor cores run the matmuls of the others. They synchronize through mbarriers only: counters in shared
memory at which copies and warpgroups arrive, and others wait. The kernel is persistent: a program processes many tiles
of queries, so that the loads of the next one run under the last matmuls of this one. Causal, a warpgroup skips the
tiles of keys that only later warpgroups attend to.

The ring has slots for tiles [1, 1, KEYS, head_dim]: item 2n is the n-th tile of keys that a program loads, item 2n + 1
the values beside it, in slot item % slots. Each slot has two mbarriers: `full`, its copy has arrived; `free`, all
warpgroups have read it. Tiles of queries have two slots, and mbarriers alike.

Warp specialization and ping-pong scheduling are FlashAttention-3's (Shah and others, 2024): the warpgroups take turns
to start their matmuls, so that their exponentials do not all come at once. Its other overlap, of softmax with the same
warpgroup's second matmul, added to the turns, made this kernel slower, by 2 to 4% with heads of 128 and 10 to 14% with
64 (bench/results/experiments/attention_overlap_h200.json). sm_90, head_dim 64 or 128, no interpreter.
"""

from dataclasses import dataclass

import torch

from instruments.backend import cdiv
from instruments.gluon import (
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
from instruments.launcher import Launch
from kernels.attention.configs import FORWARD, HOPPER_KEYS, HOPPER_ROWS, Operand, check_attention, plan_operand
from kernels.attention.masks import LOG2E, MIN_SCORE
from kernels.shared.arguments import check_no_grad
from kernels.shared.device import device_of, is_hopper
from kernels.shared.metadata import by_metadata

CONFIGS = FORWARD["hopper"]  # by head_dim
ROWS = gl.constexpr(HOPPER_ROWS)  # queries per warpgroup
KEYS = gl.constexpr(HOPPER_KEYS)  # keys per tile

#: Programs at work on a head of 128; where there are too many heads for that, tiles come in pairs (`find_tile`), with
#: which an H200 was faster at 64 heads of 4,096 tokens, and slower at 32 of 16,384.
SHARING = 4
#: Bytes of keys and values of the heads of 64 that are worked on at a time, less than half of an H200's L2: 2 to 5%
#: faster than all heads at once, 13% than pairs. Where fewer heads than TOGETHER_LEAST fit, and with heads of 128, all
#: at once are faster (bench/results/experiments/attention_order_h200.json).
TOGETHER_BYTES, TOGETHER_LEAST = 25_165_824, 16


@gluon.jit
def count_turns(heads, blocks, PAIRED: gl.constexpr):
    """How often the busiest program calls `find_tile`."""
    if PAIRED:
        return 2 * gl.cdiv(heads * gl.cdiv(blocks, 2), gl.num_programs(0))
    else:
        return gl.cdiv(heads * blocks, gl.num_programs(0))


@gluon.jit
def find_tile(turn, heads, blocks, together, CAUSAL: gl.constexpr, PAIRED: gl.constexpr):
    """(whether this program has a tile in a turn, its head, its block of queries); heads: of all sequences.

    Causal, the load must be balanced, though blocks at the end have the most work. PAIRED: a block from the end, then
    the one as far from the beginning, so that programs running at the same time share the keys of few heads. Else
    `together` heads, whose keys and values L2 holds, come after each other: of each such group the longest blocks of
    all its heads first, and every other turn is dealt in reverse.
    """
    program, programs = gl.program_id(0), gl.num_programs(0)
    if PAIRED:
        pairs = gl.cdiv(blocks, 2)
        number = turn // 2 * programs + program
        light = number % pairs
        block = light if turn % 2 else blocks - 1 - light
        middle = (turn % 2 == 1) & (blocks - 1 - light == light)  # it was the heavy one already
        return (number < heads * pairs) & (middle == 0), number // pairs, block
    elif CAUSAL:
        number = turn * programs + program + turn % 2 * (programs - 1 - 2 * program)
        first, place = number // (together * blocks) * together, number % (together * blocks)
        count = gl.minimum(together, heads - first)
        return number < heads * blocks, first + place % count, blocks - 1 - place // count
    else:
        number = turn * programs + program
        return number < heads * blocks, number // blocks, number % blocks


@gluon.jit
def key_tiles(row, queries, keys, CAUSAL: gl.constexpr, QUERIES: gl.constexpr):
    """(tiles of keys that the QUERIES queries from `row` on attend to, at least 1; those of them that need no mask)."""
    last, unmasked = keys, keys
    if CAUSAL:
        position = row + keys - queries
        last, unmasked = gl.minimum(position + QUERIES, keys), gl.minimum(position + 1, keys)
    return gl.maximum(gl.cdiv(last, KEYS), 1), gl.maximum(unmasked, 0) // KEYS


@gluon.jit
def wait_for(barriers, item, FREE: gl.constexpr = False):
    """Wait until an item has arrived in its slot; FREE: until its slot is free for it, as all slots are at first."""
    SLOTS: gl.constexpr = barriers.shape[0]
    mbarrier.wait(barriers.index(item % SLOTS), (item // SLOTS & 1) ^ FREE)


@gluon.jit
def release(free, item):
    """Signal that this warpgroup has read an item: once all have, its slot may be loaded again."""
    mbarrier.arrive(free.index(item % free.shape[0]))


@gluon.jit
def producer(shared, sizes, CAUSAL: gl.constexpr, PAIRED: gl.constexpr):
    """The warp that loads: for each tile of queries q, then keys and values in turn, from the last keys down."""
    q, k, v, out, q_tiles, ring, out_tiles, q_full, q_free, full, free, turns = shared
    heads, group, queries, keys, all_heads, blocks, together = sizes
    WARPGROUPS: gl.constexpr = out_tiles.shape[0]
    item, tile = 0, 0
    for turn in range(count_turns(all_heads, blocks, PAIRED)):
        valid, batch_head, block = find_tile(turn, all_heads, blocks, together, CAUSAL, PAIRED)
        if valid:
            batch, head, row = batch_head // heads, batch_head % heads, block * WARPGROUPS * ROWS
            wait_for(q_free, tile, FREE=True)  # for every warpgroup to release the q before
            q_arrival = q_full.index(tile % 2)
            mbarrier.expect(q_arrival, WARPGROUPS * q.block_type.nbytes)  # full once so many bytes have arrived
            for warpgroup in gl.static_range(WARPGROUPS):
                at = [batch, head, row + warpgroup * ROWS, 0]
                load_tile(q, at, q_arrival, q_tiles.index(tile % 2 * WARPGROUPS + warpgroup))
            count, _ = key_tiles(row, queries, keys, CAUSAL, WARPGROUPS * ROWS)
            for step in range(count):
                at = [batch, head // group, (count - 1 - step) * KEYS, 0]
                for values in gl.static_range(2):
                    slot = item % ring.shape[0]
                    wait_for(free, item, FREE=True)  # for every warpgroup to release the item before
                    mbarrier.expect(full.index(slot), k.block_type.nbytes)
                    load_tile(v if values else k, at, full.index(slot), ring.index(slot))
                    item += 1
            tile += 1


@gluon.jit
def take_turn(turns, item, WARPGROUP: gl.constexpr):
    """Wait for this warpgroup's turn to start its matmuls with the keys of an item. turns: an mbarrier for each."""
    mbarrier.wait(turns.index(WARPGROUP), (item // 2 & 1) ^ (WARPGROUP == 0))


@gluon.jit
def give_turn(turns, WARPGROUP: gl.constexpr):
    """Let the next warpgroup start its matmuls."""
    mbarrier.arrive(turns.index((WARPGROUP + 1) % turns.shape[0]))


@gluon.jit
def skip_tiles(tiles, item, full, free, turns, WARPGROUP: gl.constexpr):
    """The item after so many tiles of keys that only others need; waits for each of them, or mbarriers lose count."""
    for _ in range(tiles):
        take_turn(turns, item, WARPGROUP)
        give_turn(turns, WARPGROUP)
        for values in gl.static_range(2):
            wait_for(full, item + values)
            release(free, item + values)
        item += 2
    return item


@gluon.jit
def start_scores(q_tile, ring, item):
    """Start the matmul of q [ROWS, head_dim] and the keys of an item: scores [ROWS, KEYS], to be read after a wait."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    keys = ring.index(item % ring.shape[0]).reshape([KEYS, ring.shape[4]])
    zeros = gl.zeros([ROWS, KEYS], gl.float32, layout)
    return warpgroup_mma(q_tile, keys.permute((1, 0)), zeros, use_acc=False, is_async=True)


@gluon.jit
def start_out(weights, ring, item, acc):
    """Start to add the matmul of packed weights [ROWS, KEYS / 2] and the values of an item to acc [ROWS, head_dim]."""
    layout: gl.constexpr = gl.DotOperandLayout(0, acc.type.layout, 2)
    dtype: gl.constexpr = ring.dtype
    even, odd = weights.to(gl.int16), (weights >> 16).to(gl.int16)
    pairs = gl.join(even.to(dtype, bitcast=True), odd.to(dtype, bitcast=True))  # [ROWS, KEYS / 2, 2]
    operand = gl.convert_layout(gl.reshape(pairs, [ROWS, KEYS]), layout, assert_trivial=True)
    values = ring.index(item % ring.shape[0]).reshape([KEYS, ring.shape[4]])
    return warpgroup_mma(operand, values, acc, is_async=True)


@gluon.jit
def pack(weights, dtype: gl.constexpr):
    """weights [ROWS, KEYS] rounded to dtype, two per int32 [ROWS, KEYS / 2]: as 16-bit numbers, a loop would carry each
    in a register of its own."""
    even, odd = gl.split(gl.reshape(weights, [ROWS, KEYS // 2, 2]))
    if dtype == gl.bfloat16:
        round_both: gl.constexpr = "cvt.rn.bf16x2.f32 $0, $2, $1;"
    else:
        round_both: gl.constexpr = "cvt.rn.f16x2.f32 $0, $2, $1;"
    return gl.inline_asm_elementwise(round_both, "=r,r,r", [even, odd], dtype=gl.int32, is_pure=True, pack=1)


@gluon.jit
def mask_scores(scores, key, last):
    """scores [ROWS, KEYS] of the keys from `key` on, -inf past `last` [ROWS], the last key that a query attends to."""
    column = key + gl.arange(0, KEYS, gl.SliceLayout(0, scores.type.layout))  # [KEYS]
    return gl.where(column[None, :] <= last[:, None], scores, float("-inf"))


@gluon.jit
def softmax_step(scores, running_max, running_sum, scale):
    """Online softmax of one tile.

    Args:
        scores: [ROWS, KEYS], fp32, not scaled.
        running_max, running_sum: [ROWS], of the tiles before; the max in units of log2(e).
        scale: of the scores, in units of log2(e).

    Returns:
        (weights [ROWS, KEYS], running_max, running_sum, correction), the last three [ROWS].
    """
    new_max = gl.maximum(running_max, gl.max(scores, axis=1) * scale)
    weights = gl.exp2(scores * scale - new_max[:, None])
    correction = gl.exp2(running_max - new_max)
    return weights, new_max, running_sum * correction + gl.sum(weights, axis=1), correction


@gluon.jit
def attend_keys(
    count, key, item, state,
    q_tile, ring, full, free, turns, last, scale,
    WARPGROUP: gl.constexpr, MASKED: gl.constexpr,
):  # fmt: skip
    """A consumer warpgroup's loop: it starts the scores of a tile of keys and, queued behind them, the second matmul of
    the tile before; then its softmax runs under the matmuls of the other warpgroups.

    Args:
        count: tiles of keys, from the one that starts at `key` downwards.
        item: of the ring; the values that the weights in `state` wait for.
        state: acc [ROWS, head_dim], packed weights, running_max and running_sum [ROWS].
        q_tile, ring: in shared memory.
        full, free, turns: mbarriers.
        last: [ROWS], the last key that each query attends to.
        scale: of the scores, in units of log2(e).

    Returns:
        (item, state) after these tiles.
    """
    # of two warpgroups, the other one starts its scores before this one's second matmul
    EARLY: gl.constexpr = turns.shape[0] == 2
    acc, weights, running_max, running_sum = state
    for step in range(count):
        wait_for(full, item + 1)  # for the copy of the keys
        take_turn(turns, item + 1, WARPGROUP)
        scores = start_scores(q_tile, ring, item + 1)
        if EARLY:
            give_turn(turns, WARPGROUP)
        wait_for(full, item)  # for that of the values before them
        acc = start_out(weights, ring, item, acc)
        if not EARLY:
            give_turn(turns, WARPGROUP)
        scores = warpgroup_mma_wait(1, deps=(scores,))  # for all matmuls but the one that started last
        release(free, item + 1)  # the producer may overwrite the keys
        acc = warpgroup_mma_wait(0, deps=(acc,))
        release(free, item)
        if MASKED:
            scores = mask_scores(scores, key - step * KEYS, last)
        unpacked, running_max, running_sum, correction = softmax_step(scores, running_max, running_sum, scale)
        weights = pack(unpacked, ring.dtype)
        acc = acc * gl.convert_layout(correction, gl.SliceLayout(1, acc.type.layout))[:, None]
        item += 2
    return item, (acc, weights, running_max, running_sum)


@gluon.jit
def consumer(common, WARPGROUP: gl.constexpr, CAUSAL: gl.constexpr, PAIRED: gl.constexpr):
    """A warpgroup that computes its ROWS queries of each tile, from the wait for q to the store of out and lse."""
    shared, sizes, scale, lse_ptr = common
    q, k, v, out_descriptor, q_tiles, ring, out_tiles, q_full, q_free, full, free, turns = shared
    heads, group, queries, keys, all_heads, blocks, together = sizes
    WARPGROUPS: gl.constexpr = out_tiles.shape[0]
    HEAD_DIM: gl.constexpr = ring.shape[4]
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    row_layout: gl.constexpr = gl.SliceLayout(1, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16]))
    out_tile = out_tiles.index(WARPGROUP)
    item, tile = 0, 0
    for turn in range(count_turns(all_heads, blocks, PAIRED)):
        valid, batch_head, block = find_tile(turn, all_heads, blocks, together, CAUSAL, PAIRED)
        if valid:
            q_tile = q_tiles.index(tile % 2 * WARPGROUPS + WARPGROUP).reshape([ROWS, HEAD_DIM])
            first = block * WARPGROUPS * ROWS  # keys are counted from here below: masks then need fewer registers
            row = first + WARPGROUP * ROWS + gl.arange(0, ROWS, row_layout)  # [ROWS]
            last = gl.minimum(row + keys - (queries if CAUSAL else 0), keys - 1) - first  # key that a query attends to
            running_max = gl.full([ROWS], MIN_SCORE, gl.float32, row_layout)
            running_sum = gl.zeros([ROWS], gl.float32, row_layout)
            acc = gl.zeros([ROWS, HEAD_DIM], gl.float32, acc_layout)

            all_tiles, _ = key_tiles(first, queries, keys, CAUSAL, WARPGROUPS * ROWS)  # that the producer loads
            count, unmasked = key_tiles(first + WARPGROUP * ROWS, queries, keys, CAUSAL, ROWS)  # for this warpgroup
            item = skip_tiles(all_tiles - count, item, full, free, turns, WARPGROUP)
            key = (count - 1) * KEYS - first
            wait_for(q_full, tile)  # for the copies of q,
            wait_for(full, item)  # and of the first keys
            take_turn(turns, item, WARPGROUP)
            scores = start_scores(q_tile, ring, item)
            give_turn(turns, WARPGROUP)
            scores = warpgroup_mma_wait(0, deps=(scores,))
            release(free, item)
            scores = mask_scores(scores, key, last)
            weights, running_max, running_sum, _ = softmax_step(scores, running_max, running_sum, scale)
            state = acc, pack(weights, ring.dtype), running_max, running_sum
            unmasked = gl.minimum(unmasked, count - 1)
            masked = count - 1 - unmasked
            operands = q_tile, ring, full, free, turns, last, scale
            item, state = attend_keys(masked, key - KEYS, item + 1, state, *operands, WARPGROUP, MASKED=True)
            item, state = attend_keys(unmasked, 0, item, state, *operands, WARPGROUP, MASKED=False)
            acc, weights, running_max, running_sum = state
            release(q_free, tile)
            wait_for(full, item)
            acc = warpgroup_mma_wait(0, deps=(start_out(weights, ring, item, acc),))
            release(free, item)
            item += 1

            empty = running_sum == 0.0
            inverse = gl.convert_layout(1.0 / gl.where(empty, 1.0, running_sum), gl.SliceLayout(1, acc_layout))
            store_wait(0)  # of the tile before: out_tile may be overwritten
            out_tile.reshape([ROWS, HEAD_DIM]).store((acc * inverse[:, None]).to(ring.dtype))
            fence_async_shared()  # a copy sees what threads wrote only behind a fence
            store_tile(out_descriptor, [batch_head // heads, batch_head % heads, first + WARPGROUP * ROWS, 0], out_tile)
            if lse_ptr is not None:
                lse = gl.where(empty, float("-inf"), (running_max + gl.log2(running_sum)) / LOG2E)
                gl.store(lse_ptr + batch_head.to(gl.int64) * queries + row, lse, mask=row < queries)
            tile += 1
    store_wait(0)


@gluon.jit(do_not_specialize=["heads", "group", "queries", "keys", "all_heads", "blocks", "together"])
def attention_hopper_kernel(
    q, k, v, out, lse_ptr,  # tensors; q, k, v, out: descriptors
    heads, group, queries, keys, all_heads, blocks, together, scale,
    CAUSAL: gl.constexpr, PAIRED: gl.constexpr,
    WARPGROUPS: gl.constexpr, REGISTERS: gl.constexpr, SLOTS: gl.constexpr,
):  # fmt: skip
    """Many tiles of queries: q, out [batch, heads, queries, head_dim] in tiles [1, 1, ROWS, head_dim]; k, v [batch,
    heads // group, keys, head_dim] in tiles [1, 1, KEYS, head_dim]; lse [batch, heads, queries] fp32, or None.
    all_heads: batch * heads; blocks: tiles of queries per head; together: heads worked on at a time, where causal."""
    q_tiles = gl.allocate_shared_memory(q.dtype, [2 * WARPGROUPS] + q.block_type.shape, q.layout)
    out_tiles = gl.allocate_shared_memory(q.dtype, [WARPGROUPS] + q.block_type.shape, q.layout)
    ring = gl.allocate_shared_memory(k.dtype, [SLOTS] + k.block_type.shape, k.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [WARPGROUPS, 1], mbarrier.MBarrierLayout())
    for warpgroup in gl.static_range(WARPGROUPS):
        mbarrier.init(turns.index(warpgroup), count=1)
    for slot in gl.static_range(2):
        mbarrier.init(q_full.index(slot), count=1)  # full: one producer arrives; free: every warpgroup
        mbarrier.init(q_free.index(slot), count=WARPGROUPS)
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(free.index(slot), count=WARPGROUPS)
    fence_async_shared()

    shared = q, k, v, out, q_tiles, ring, out_tiles, q_full, q_free, full, free, turns
    sizes = heads, group, queries, keys, all_heads, blocks, together
    common = shared, sizes, scale, lse_ptr
    if WARPGROUPS == 2:
        gl.warp_specialize(
            [
                (consumer, (common, 0, CAUSAL, PAIRED)),
                (consumer, (common, 1, CAUSAL, PAIRED)),
                (producer, (shared, sizes, CAUSAL, PAIRED)),
            ],
            [4, 1],
            [REGISTERS, 24],
        )
    else:
        gl.warp_specialize(
            [
                (consumer, (common, 0, CAUSAL, PAIRED)),
                (consumer, (common, 1, CAUSAL, PAIRED)),
                (consumer, (common, 2, CAUSAL, PAIRED)),
                (producer, (shared, sizes, CAUSAL, PAIRED)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, 24],
        )


@dataclass(frozen=True)
class HopperPlan:
    """A call's plan. operands: q, k, v and out. returns_lse: whether lse is computed."""

    operands: tuple[Operand, ...]
    kernel: Launch
    returns_lse: bool

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple:
        """(out, lse or None)."""
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device) if self.returns_lse else None
        self.kernel(*[describe(x) for describe, x in zip(self.operands, (q, k, v, out))], lse)
        return out, lse


def plan_launch(q, k, v, causal: bool, scale: float, return_lse: bool = False, programs: int = 132) -> HopperPlan:
    """The plan for arguments like these, which `flash_attention` has checked, none of them empty."""
    batch, heads, queries, head_dim = q.shape
    config = CONFIGS[head_dim]
    out = torch.empty(q.shape, dtype=q.dtype, device="meta")  # strides and alignment as of the real one
    blocks = cdiv(queries, config["WARPGROUPS"] * HOPPER_ROWS)
    group = heads // k.shape[1]
    paired = causal and head_dim == 128 and SHARING * batch * heads > programs
    fitting = TOGETHER_BYTES * group // (2 * max(k.shape[2], 1) * head_dim * k.itemsize)  # heads of q
    together = fitting if head_dim == 64 and fitting >= TOGETHER_LEAST else batch * heads
    rows = HOPPER_ROWS, HOPPER_KEYS, HOPPER_KEYS, HOPPER_ROWS
    # fmt: off
    kernel = Launch(
        attention_hopper_kernel, (min(programs, batch * heads * blocks),),
        heads, group, queries, k.shape[2], batch * heads, blocks, together, scale * LOG2E.value,
        CAUSAL=causal, PAIRED=paired, **config, num_warps=4,
    )
    # fmt: on
    return HopperPlan(tuple(plan_operand(x, n) for x, n in zip((q, k, v, out), rows)), kernel, return_lse)


def launch(q, k, v, causal: bool, scale: float, return_lse: bool = False, programs: int = 132) -> tuple:
    """(out, lse or None) by a plan that is not kept."""
    return plan_launch(q, k, v, causal, scale, return_lse, programs)(q, k, v)


@by_metadata
def _plan(q, k, v, causal, scale, return_lse) -> HopperPlan | None:
    """The plan of `flash_attention_hopper`, whose arguments it checks; None where there is nothing to compute."""
    scale = check_attention(q, k, v, scale)
    check_no_grad("flash_attention_hopper", q=q, k=k, v=v)
    if q.shape[3] not in CONFIGS:
        raise ValueError(f"q: got a head_dim of {q.shape[3]}, expected {' or '.join(map(str, CONFIGS))}")
    if not is_hopper(q.device):
        device = torch.cuda.get_device_name(q.device) if q.is_cuda else q.device
        raise ValueError(f"q: got device {device}, expected a Hopper GPU (9.0); flash_attention runs on others too")
    if not (q.numel() and k.numel()):
        return None
    return plan_launch(q, k, v, causal, scale, return_lse, device_of(q.device).sms)


def flash_attention_hopper(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    *,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """The Gluon kernel called directly: `flash_attention` with path='hopper', forward only.

    Args:
        q: [batch, heads, queries, head_dim], fp16 or bf16, any strides; head_dim 64 or 128.
        k: [batch, kv_heads, keys, head_dim], q's dtype, any strides.
        v: [batch, kv_heads, keys, head_dim], q's dtype, any strides.
        causal: as for `flash_attention`.
        scale: as for `flash_attention`.
        return_lse: also return the log-sum-exp of each row's scores.

    Returns:
        out, and with return_lse lse: as from `flash_attention`.

    Raises:
        ValueError: an argument that does not fit, by name: also on a GPU other than Hopper (compute capability 9.0).

    Note:
        Tensors that TMA cannot address are copied.
    """
    plan = _plan(q, k, v, causal, scale, return_lse)
    if plan:
        out, lse = plan(q, k, v)
    else:
        out = torch.zeros_like(q, memory_format=torch.contiguous_format)
        lse = q.new_full(q.shape[:3], float("-inf"), dtype=torch.float32)
    return (out, lse) if return_lse else out
