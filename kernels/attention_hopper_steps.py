"""The role that loads in attention_hopper.py, and the steps that both take: whose tile is next, what is done with it.

The ring has slots for tiles [1, 1, KEYS, head_dim]: item 2n is the n-th tile of keys that a program loads, item 2n + 1
the values beside it, in slot item % slots. Each slot has two barriers: `full`, its copy has come; `free`, all have
read it. Tiles of queries have two slots, and barriers alike.
"""

from instruments.gluon import gl, gluon, load_tile, mbarrier, warpgroup_mma, warpgroup_mma_wait

ROWS = gl.constexpr(64)  # queries of a warpgroup: what one matrix instruction multiplies
KEYS = gl.constexpr(128)


@gluon.jit
def turns_of(heads, blocks, PAIRED: gl.constexpr):
    """How often the busiest program asks `tile_of`."""
    if PAIRED:
        return 2 * gl.cdiv(heads * gl.cdiv(blocks, 2), gl.num_programs(0))
    else:
        return gl.cdiv(heads * blocks, gl.num_programs(0))


@gluon.jit
def tile_of(turn, heads, blocks, CAUSAL: gl.constexpr, PAIRED: gl.constexpr):
    """(whether a program has a tile in a turn, its head, its block of queries); heads are those of all sequences.

    Causal, programs shall get alike, though blocks at the end have most to do. PAIRED: one from there, then the one as
    far from the beginning, so that programs at work at the same time share the keys of few heads. Else the longest come
    first, of all heads, and every other turn is dealt backwards.
    """
    program, programs = gl.program_id(0), gl.num_programs(0)
    if PAIRED:
        pairs = gl.cdiv(blocks, 2)
        number = turn // 2 * programs + program
        light = number % pairs
        block = light if turn % 2 else blocks - 1 - light
        middle = (turn % 2 == 1) & (blocks - 1 - light == light)  # it has been the heavy one
        return (number < heads * pairs) & (middle == 0), number // pairs, block
    elif CAUSAL:
        number = turn * programs + program + turn % 2 * (programs - 1 - 2 * program)
        return number < heads * blocks, number % heads, blocks - 1 - number // heads
    else:
        number = turn * programs + program
        return number < heads * blocks, number // blocks, number % blocks


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
    SLOTS: gl.constexpr = barriers.shape[0]
    mbarrier.wait(barriers.index(item % SLOTS), (item // SLOTS & 1) ^ FREE)


@gluon.jit
def done_with(free, item):
    """Say that this warpgroup has read an item: its slot may be loaded again when all have."""
    mbarrier.arrive(free.index(item % free.shape[0]))


@gluon.jit
def load(shared, sizes, CAUSAL: gl.constexpr, PAIRED: gl.constexpr):
    """The warp that loads: for each tile of queries q, then keys and values in turn, from the last keys seen down."""
    q, k, v, out, q_tiles, ring, out_tiles, q_full, q_free, full, free, turns = shared
    heads, group, queries, keys, all_heads, blocks = sizes
    WARPGROUPS: gl.constexpr = out_tiles.shape[0]
    item, tile = 0, 0
    for turn in range(turns_of(all_heads, blocks, PAIRED)):
        mine, place, block = tile_of(turn, all_heads, blocks, CAUSAL, PAIRED)
        if mine:
            batch, head, row = place // heads, place % heads, block * WARPGROUPS * ROWS
            wait_for(q_free, tile, FREE=True)  # for every warpgroup to be done with the q that it held
            q_came = q_full.index(tile % 2)
            mbarrier.expect(q_came, WARPGROUPS * q.block_type.nbytes)  # full when so many bytes have come
            for warpgroup in gl.static_range(WARPGROUPS):
                at = [batch, head, row + warpgroup * ROWS, 0]
                load_tile(q, at, q_came, q_tiles.index(tile % 2 * WARPGROUPS + warpgroup))
            count, whole = key_tiles(row, queries, keys, CAUSAL, WARPGROUPS * ROWS)
            for step in range(count):
                at = [batch, head // group, (count - 1 - step) * KEYS, 0]
                for second in gl.static_range(2):
                    slot = item % ring.shape[0]
                    wait_for(free, item, FREE=True)  # for every warpgroup to be done with what it held
                    mbarrier.expect(full.index(slot), k.block_type.nbytes)
                    load_tile(v if second else k, at, full.index(slot), ring.index(slot))
                    item += 1
            tile += 1


@gluon.jit
def take_turn(turns, item, WARPGROUP: gl.constexpr):
    """Wait until the warpgroup before has begun its products with the keys of an item. turns: a barrier for each, or a
    single one where they take none."""
    if turns.shape[0] > 1:
        mbarrier.wait(turns.index(WARPGROUP), (item // 2 & 1) ^ (WARPGROUP == 0))


@gluon.jit
def give_turn(turns, WARPGROUP: gl.constexpr):
    """Let the next warpgroup begin its products."""
    if turns.shape[0] > 1:
        mbarrier.arrive(turns.index((WARPGROUP + 1) % turns.shape[0]))


@gluon.jit
def pass_by(tiles, item, full, free, turns, WARPGROUP: gl.constexpr):
    """The item behind so many tiles of keys of no use to this warpgroup; it waits for each, or barriers lose count."""
    for _ in range(tiles):
        take_turn(turns, item, WARPGROUP)
        give_turn(turns, WARPGROUP)
        for second in gl.static_range(2):
            wait_for(full, item + second)
            done_with(free, item + second)
        item += 2
    return item


@gluon.jit
def start_scores(q_tile, ring, item):
    """Begin q [ROWS, head_dim] times the keys of an item: scores [ROWS, KEYS], to be read after a wait."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    keys = ring.index(item % ring.shape[0]).reshape([KEYS, ring.shape[4]])
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
    values = ring.index(item % ring.shape[0]).reshape([KEYS, ring.shape[4]])
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
def walk(
    count, key, item, state, q_tile, ring, full, free, turns, last, scale, WARPGROUP: gl.constexpr, HIDE: gl.constexpr
):
    """Down over `count` tiles of keys, the first of which begins at `key`: (item, state) behind them.

    state: out [ROWS, head_dim], packed weights that wait for the values of `item`, largest and total [ROWS].
    """
    out, weights, largest, total = state
    for step in range(count):
        wait_for(full, item + 1)  # for the copy of the keys
        take_turn(turns, item + 1, WARPGROUP)
        scores = start_scores(q_tile, ring, item + 1)
        wait_for(full, item)  # for that of the values before them
        out = start_out(weights, ring, item, out)  # runs on under exponentials: its own, or in turns the others'
        give_turn(turns, WARPGROUP)
        scores = warpgroup_mma_wait(1, deps=(scores,))  # for all products but the one begun last
        done_with(free, item + 1)  # the loading warp may overwrite the keys
        if HIDE:
            scores = hide(scores, key - step * KEYS, last)
        unpacked, largest, total, repair = softmax_step(scores, largest, total, scale)
        if turns.shape[0] == 1:
            wait_for(full, item)  # again: ends a basic block, else ptxas moves exponentials behind the next wait
        out = warpgroup_mma_wait(0, deps=(out,))
        done_with(free, item)
        weights = packed(unpacked, ring.dtype)  # not before the wait: ptxas would then run products one by one
        out = out * gl.convert_layout(repair, gl.SliceLayout(1, out.type.layout))[:, None]
        item += 2
    return item, (out, weights, largest, total)
