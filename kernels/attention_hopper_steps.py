"""The steps that the roles of attention_hopper.py take: whose tile is next, and what a warpgroup does with one.

The ring holds SLOTS tiles [1, 1, KEYS, head_dim]: item 2n is the n-th tile of keys that a program loads, item 2n + 1
the values beside it, in slot item % SLOTS. Each slot has two barriers: `full`, its copy has come; `free`, all have
read it.
"""

from instruments.gluon import gl, gluon, mbarrier, warpgroup_mma, warpgroup_mma_wait

ROWS = gl.constexpr(64)  # queries of a warpgroup: what one matrix instruction multiplies
KEYS = gl.constexpr(128)
SLOTS = gl.constexpr(4)


@gluon.jit
def tile_of(turn, heads, blocks, CAUSAL: gl.constexpr):
    """(number, head, block of queries) of a program's tile in a turn, of heads * blocks in all; heads are those of all
    sequences. Causal, the longest come first and every other turn is dealt backwards: programs get alike."""
    program, programs = gl.program_id(0), gl.num_programs(0)
    if CAUSAL:
        number = turn * programs + program + turn % 2 * (programs - 1 - 2 * program)
        return number, number % heads, blocks - 1 - number // heads
    else:
        number = turn * programs + program
        return number, number // blocks, number % blocks


@gluon.jit
def key_tiles(row, queries, keys, CAUSAL: gl.constexpr, QUERIES: gl.constexpr):
    """(tiles of keys that the QUERIES queries from `row` on see, at least 1; tiles that each of them sees whole)."""
    seen, whole = keys, keys
    if CAUSAL:
        position = row + keys - queries
        seen, whole = gl.minimum(position + QUERIES, keys), gl.minimum(position + 1, keys)
    return gl.maximum(gl.cdiv(seen, KEYS), 1), gl.maximum(whole, 0) // KEYS


@gluon.jit
def wait_for(barriers, item, FREE: gl.constexpr = False):
    """Wait until the slot of an item is full of it; FREE: until it is free for it, which at first it is."""
    mbarrier.wait(barriers.index(item % SLOTS), (item // SLOTS & 1) ^ FREE)


@gluon.jit
def start_scores(q_tile, ring, item):
    """Begin q [ROWS, head_dim] times the keys of an item: scores [ROWS, KEYS], to be read after a wait."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    keys = ring.index(item % SLOTS).reshape([KEYS, ring.shape[4]])
    zeros = gl.zeros([ROWS, KEYS], gl.float32, layout)
    return warpgroup_mma(q_tile, keys.permute((1, 0)), zeros, use_acc=False, is_async=True)


@gluon.jit
def start_out(weights, ring, item, out):
    """Begin to add packed weights [ROWS, KEYS / 2] times the values of an item to out [ROWS, head_dim]."""
    layout: gl.constexpr = gl.DotOperandLayout(0, out.type.layout, 2)
    dtype: gl.constexpr = ring.dtype
    even, odd = weights.to(gl.int16), (weights >> 16).to(gl.int16)
    pairs = gl.join(even.to(dtype, bitcast=True), odd.to(dtype, bitcast=True))  # [ROWS, KEYS / 2, 2]
    operand = gl.convert_layout(gl.reshape(pairs, [ROWS, KEYS]), layout, assert_trivial=True)
    values = ring.index(item % SLOTS).reshape([KEYS, ring.shape[4]])
    return warpgroup_mma(operand, values, out, is_async=True)


@gluon.jit
def packed(weights, dtype: gl.constexpr):
    """weights [ROWS, KEYS] rounded to dtype, two to an int32 [ROWS, KEYS / 2]: as 16-bit numbers, a loop would carry
    each in a register of its own."""
    even, odd = gl.split(gl.reshape(weights, [ROWS, KEYS // 2, 2]))
    if dtype == gl.bfloat16:
        round_both: gl.constexpr = "cvt.rn.bf16x2.f32 $0, $2, $1;"
    else:
        round_both: gl.constexpr = "cvt.rn.f16x2.f32 $0, $2, $1;"
    return gl.inline_asm_elementwise(round_both, "=r,r,r", [even, odd], dtype=gl.int32, is_pure=True, pack=1)


@gluon.jit
def hide(scores, key, last):
    """scores [ROWS, KEYS] of the keys from `key` on, -inf behind the last [ROWS] that a query sees."""
    column = key + gl.arange(0, KEYS, gl.SliceLayout(0, scores.type.layout))  # [KEYS]
    return gl.where(column[None, :] <= last[:, None], scores, float("-inf"))


@gluon.jit
def softmax_step(scores, largest, total, scale):
    """Lesson 06's recurrence: (weights [ROWS, KEYS], largest, total, repair [ROWS] of what was added up before)."""
    larger = gl.maximum(largest, gl.max(scores, axis=1) * scale)
    weights = gl.exp2(scores * scale - larger[:, None])
    repair = gl.exp2(largest - larger)
    return weights, larger, total * repair + gl.sum(weights, axis=1), repair


@gluon.jit
def walk(count, key, item, state, q_tile, ring, full, free, last, scale, HIDE: gl.constexpr):
    """Down over `count` tiles of keys, the first of which begins at `key`: (item, state) behind them.

    state: out [ROWS, head_dim], packed weights that wait for the values of `item`, largest and total [ROWS].
    """
    out, weights, largest, total = state
    for step in range(count):
        wait_for(full, item + 1)  # for the copy of the keys
        scores = start_scores(q_tile, ring, item + 1)
        wait_for(full, item)  # for that of the values before them
        out = start_out(weights, ring, item, out)  # runs on under the exponentials
        scores = warpgroup_mma_wait(1, deps=(scores,))  # for all products but the one begun last
        mbarrier.arrive(free.index((item + 1) % SLOTS))  # the loading warp may overwrite the keys
        if HIDE:
            scores = hide(scores, key - step * KEYS, last)
        unpacked, largest, total, repair = softmax_step(scores, largest, total, scale)
        wait_for(full, item)  # again: ends a basic block, else ptxas moves exponentials behind the next wait
        out = warpgroup_mma_wait(0, deps=(out,))
        mbarrier.arrive(free.index(item % SLOTS))
        weights = packed(unpacked, ring.dtype)  # not before the wait: ptxas would then run products one by one
        out = out * gl.convert_layout(repair, gl.SliceLayout(1, out.type.layout))[:, None]
        item += 2
    return item, (out, weights, largest, total)
