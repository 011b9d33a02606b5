"""The steps that the roles of grouped_matmul_hopper.py take: whose tile is next, and what a warpgroup does with it.

A slot of the ring holds BLOCK_K columns of x, ROWS rows for each warpgroup, and as many rows of a group's weight.
Item n is the n-th slot that a program fills, slot n % SLOTS of the ring. Each slot has two barriers: `full`, its copies
have come; `free`, all warpgroups are done with it. It has notes, too: of which tile of y it is the first. shared: x,
weight, y, their tiles, the notes, and the barriers.
"""

from instruments.gluon import (
    arrive_when_copied,
    copy_rows,
    fence_async_shared,
    gl,
    gluon,
    mbarrier,
    store_tile,
    store_wait,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from kernels.grouped_matmul_persistent import RAGGED
from kernels.tiles import LOG2E

ROWS = gl.constexpr(64)  # of a warpgroup: what one matrix instruction multiplies
WARPGROUPS = gl.constexpr(2)  # that multiply
BLOCK_M = gl.constexpr(128)  # rows of both
BLOCK_K = gl.constexpr(64)  # columns of a slot: a line of 128 bytes


@gluon.jit
def seek(number, place, offsets, groups, tiles_n):
    """The place of the group that has tile `number`, at or behind `place`; its group is `groups` where none has."""
    group, first, start, end = place
    tiles = gl.cdiv(end - start, BLOCK_M) * tiles_n
    while (group < groups) & (number >= first + tiles):
        first += tiles
        group += 1
        start = end
        end = gl.load(offsets + gl.minimum(group + 1, groups))
        tiles = gl.cdiv(end - start, BLOCK_M) * tiles_n
    return group, first, start, end


@gluon.jit
def corner(number, place, tiles_n, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr):
    """(row, column) at which tile `number` of a group begins, in the groups of matmul_order.py."""
    group, first, start, end = place
    within = number - first
    above = within // (GROUP_M * tiles_n) * GROUP_M
    height = gl.minimum(gl.cdiv(end - start, BLOCK_M) - above, GROUP_M)
    within -= above * tiles_n
    return start + (above + within % height) * BLOCK_M, within // height * BLOCK_N


@gluon.jit
def row_pointers(x, rows, pitch, row, end):
    """(pointers to the first BLOCK_K columns of the BLOCK_M rows of x that `rows` names from `row` on, in the layout of
    their copies: 16 bytes a thread; whether a row lies before `end`). Others are not read. pitch: in 16 bytes."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    slot = row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, layout))  # [BLOCK_M]
    token = gl.load(rows + slot, mask=slot < end, other=0).to(gl.int64)
    column = gl.arange(0, BLOCK_K, gl.SliceLayout(0, layout))  # [BLOCK_K]
    return x + (token * pitch * 8)[:, None] + column[None, :], (slot < end)[:, None]


@gluon.jit
def copy_columns(pointers, inside, step, K, tile, came):
    """Copy BLOCK_K columns of the rows of `row_pointers` into a tile [BLOCK_M, BLOCK_K]; each thread arrives at `came`
    when its own have come."""
    layout: gl.constexpr = pointers.type.layout
    eight = gl.arange(0, BLOCK_K, gl.SliceLayout(0, layout)) // 8 * 8  # the first of the 16 bytes that a column is in
    copy_rows(tile, pointers + step * BLOCK_K, inside & (eight < K - step * BLOCK_K)[None, :])
    arrive_when_copied(came, increment_count=False)


@gluon.jit
def write_notes(notes, slot, row, end, col, WARPS: gl.constexpr):
    """Leave with a slot where its tile of y begins and the row behind its group's last; a negative column ends all."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    notes.index(3 * slot).store(gl.full([1], row, gl.int32, layout))
    notes.index(3 * slot + 1).store(gl.full([1], end, gl.int32, layout))
    notes.index(3 * slot + 2).store(gl.full([1], col, gl.int32, layout))


@gluon.jit
def read_notes(item, shared):
    """(row, end, col) as `write_notes` left them with the slot of an item, when it is full."""
    x, weight, y, x_ring, weight_tiles, y_tiles, notes, full, free = shared
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    slot = item % full.shape[0]
    mbarrier.wait(full.index(slot), item // full.shape[0] & 1)
    row = gl.max(notes.index(3 * slot).load(layout), 0)
    end = gl.max(notes.index(3 * slot + 1).load(layout), 0)
    return row, end, gl.max(notes.index(3 * slot + 2).load(layout), 0)


@gluon.jit
def release(item, free, pred=True):
    """Tell the warp that loads that this warpgroup is done with the slot of an item."""
    mbarrier.arrive(free.index(item % free.shape[0]), pred=pred)


@gluon.jit
def pass_by(item, steps, shared):
    """The item behind `steps` slots of no use to this warpgroup; it waits for each, or barriers lose count."""
    x, weight, y, x_ring, weight_tiles, y_tiles, notes, full, free = shared
    for _ in range(steps):
        mbarrier.wait(full.index(item % full.shape[0]), item // full.shape[0] & 1)
        release(item, free)
        item += 1
    return item


@gluon.jit
def product(
    item, steps, shared, COLS: gl.constexpr, WARPGROUP: gl.constexpr, TRANSPOSED: gl.constexpr, GATHERED: gl.constexpr
):
    """(product [ROWS, COLS] of the rows of a warpgroup with the first COLS columns of a tile, item behind its slots).

    Two slots are at work at a time: one in the matrix unit, the next behind it.
    """
    x, weight, y, x_ring, weight_tiles, y_tiles, notes, full, free = shared
    SLOTS: gl.constexpr = full.shape[0]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLS, 16])
    total = gl.zeros([ROWS, COLS], gl.float32, layout)
    for step in range(steps):
        slot = item % SLOTS
        mbarrier.wait(full.index(slot), item // SLOTS & 1)
        if GATHERED:
            fence_async_shared()  # the matrix unit sees what threads copied only behind a fence
        weight_tile = weight_tiles.index(slot).slice(0, COLS, 0 if TRANSPOSED else 1)
        if TRANSPOSED:
            weight_tile = weight_tile.permute((1, 0))
        total = warpgroup_mma(x_ring.index(slot * WARPGROUPS + WARPGROUP), weight_tile, total, is_async=True)
        total = warpgroup_mma_wait(1, deps=(total,))  # for all but the product begun last
        release(item - 1, free, step > 0)
        item += 1
    total = warpgroup_mma_wait(0, deps=(total,))
    release(item - 1, free)
    return total, item


@gluon.jit
def halves(total):
    """(left, right) half of the columns of total."""
    rows: gl.constexpr = total.shape[0]
    return gl.split(gl.permute(gl.reshape(total, [rows, 2, total.shape[1] // 2]), (0, 2, 1)))


@gluon.jit
def swiglu(total):
    """silu(gate) * up of a tile whose left half is gate, the right one up."""
    gate, up = halves(total)
    return gate / (1 + gl.exp2(gate * -LOG2E)) * up


@gluon.jit
def store_ragged(total, y, y_tiles, row, end, col, WARPGROUP: gl.constexpr, NUMBER: gl.constexpr = 0):
    """total [ROWS, a power of two times the columns of y_tiles] to y at (row, col), by way of this
    warpgroup's two in turn; nothing from row `end` on: there the descriptor's rows end, if its coordinates are these.
    NUMBER: of a piece, from the left. A tile has an even number of them."""
    COLS: gl.constexpr = y_tiles.shape[4]
    if total.shape[1] > COLS:
        left, right = halves(total)
        store_ragged(left, y, y_tiles, row, end, col, WARPGROUP, 2 * NUMBER)
        store_ragged(right, y, y_tiles, row, end, col + total.shape[1] // 2, WARPGROUP, 2 * NUMBER + 1)
    else:
        y_tile = y_tiles.index(2 * WARPGROUP + NUMBER % 2)
        store_wait(1)  # for all but the piece before, which lies in the other
        y_tile.reshape([ROWS, COLS]).store(total.to(y.dtype))
        fence_async_shared()  # a copy sees what threads wrote only behind a fence
        store_tile(y, [RAGGED, end, RAGGED - end + row, col], y_tile)


@gluon.jit
def one_tile(
    item,
    steps,
    shared,
    at,
    COLS: gl.constexpr,
    WARPGROUP: gl.constexpr,
    TRANSPOSED: gl.constexpr,
    SWIGLU: gl.constexpr,
    GATHERED: gl.constexpr,
):
    """The item behind the slots of a tile whose product of COLS columns, or its SwiGLU, has gone to y at (row, col)."""
    x, weight, y, x_ring, weight_tiles, y_tiles, notes, full, free = shared
    row, end, col = at
    total, item = product(item, steps, shared, COLS, WARPGROUP, TRANSPOSED, GATHERED)
    if SWIGLU:
        store_ragged(swiglu(total), y, y_tiles, row, end, col, WARPGROUP)
    else:
        store_ragged(total, y, y_tiles, row, end, col, WARPGROUP)
    return item
