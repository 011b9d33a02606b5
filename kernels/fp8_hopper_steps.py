"""The steps that the roles of fp8_hopper.py take: whose tile is next, and what a warpgroup does with a slot of the
ring.

A slot holds BLOCK_K columns of x, ROWS rows for each warpgroup, and of weight, a row for each column of the tile; and
the scales of x, where each block has one. Item n is the n-th slot that a program fills, slot n % SLOTS of the ring.
Each slot has two barriers: `full`, its copies have come; `free`, all warpgroups are done with it. shared: x, weight, y,
their tiles, the barriers, and x's scales and their tiles.
"""

from instruments.gluon import (
    fence_async_shared,
    gl,
    gluon,
    mbarrier,
    store_tile,
    store_wait,
    warpgroup_mma,
    warpgroup_mma_wait,
)

ROWS = gl.constexpr(64)  # of a warpgroup: what one matrix instruction multiplies
BLOCK_K = gl.constexpr(128)  # columns of a slot, and of a block of scales
GROUP_M = gl.constexpr(8)  # rows of tiles that programs walk over together


@gluon.jit
def tile_at(number, sizes, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    """(row, column) at which a tile begins, in the groups of matmul_order.py."""
    M, N, K, tiles, pitch = sizes
    tiles_n = gl.cdiv(N, BLOCK_N)
    first = number // (GROUP_M * tiles_n) * GROUP_M
    height = gl.minimum(gl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = number - first * tiles_n
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@gluon.jit
def start_product(total, item, shared, WARPGROUP: gl.constexpr, ADD: gl.constexpr):
    """Wait for a slot, begin the product of what it holds, and, with ADD, add it to total."""
    x, weight, y, x_ring, weight_ring, y_tiles, full, free, x_scales, x_scale_ring = shared
    slot = item % full.shape[0]
    x_tile = x_ring.index(slot * y_tiles.shape[0] + WARPGROUP)
    mbarrier.wait(full.index(slot), item // full.shape[0] & 1)
    return warpgroup_mma(x_tile, weight_ring.index(slot).permute((1, 0)), total, use_acc=ADD, is_async=True)


@gluon.jit
def release(item, shared, pred=True):
    """Tell the warp that loads that this warpgroup is done with the slot of an item."""
    x, weight, y, x_ring, weight_ring, y_tiles, full, free, x_scales, x_scale_ring = shared
    mbarrier.arrive(free.index(item % full.shape[0]), pred=pred)


@gluon.jit
def sum_fast(total, item, steps, shared, WARPGROUP: gl.constexpr):
    """Begin to add the products of `steps` slots from `item` on to total, in the matrix unit: the last runs on."""
    for step in range(steps):
        total = start_product(total, item, shared, WARPGROUP, ADD=True)
        total = warpgroup_mma_wait(1, deps=(total,))  # for all but the product begun last
        release(item - 1, shared, step > 0)
        item += 1
    return total, item


@gluon.jit
def sum_promoted(total, item, steps, shared, WARPGROUP: gl.constexpr):
    """Add the products of `steps` slots from `item` on to total, each in registers."""
    for _ in range(steps):
        part = start_product(total, item, shared, WARPGROUP, ADD=False)
        part = warpgroup_mma_wait(0, deps=(part,))
        release(item, shared)
        total += part
        item += 1
    return total, item


@gluon.jit
def sum_scaled(total, item, steps, shared, weight_scales, WARPGROUP: gl.constexpr):
    """The same, each product times its scales: those of x, [ROWS], lie in the slot, weight_scales points to its own."""
    x, weight, y, x_ring, weight_ring, y_tiles, full, free, x_scales, x_scale_ring = shared
    rows: gl.constexpr = gl.SliceLayout(1, total.type.layout)
    weight_scale = gl.load(weight_scales)
    for step in range(steps):
        part = start_product(total, item, shared, WARPGROUP, ADD=False)
        x_scale = x_scale_ring.index(item % full.shape[0] * y_tiles.shape[0] + WARPGROUP).load(rows)
        next_weight_scale = gl.load(weight_scales + gl.minimum(step + 1, steps - 1))  # comes under this product
        part = warpgroup_mma_wait(0, deps=(part,))
        release(item, shared)
        total += part * (x_scale * weight_scale)[:, None]
        weight_scale = next_weight_scale
        item += 1
    return total, item


@gluon.jit
def store_pieces(total, y, y_tile, row, col):
    """total [ROWS, a power of two times y_tile's columns] to y at (row, col), by way of y_tile."""
    COLS: gl.constexpr = total.shape[1]
    if COLS > y_tile.shape[1]:
        left, right = gl.split(gl.permute(gl.reshape(total, [ROWS, 2, COLS // 2]), (0, 2, 1)))
        store_pieces(left, y, y_tile, row, col)
        store_pieces(right, y, y_tile, row, col + COLS // 2)
    else:
        store_wait(0)  # of the piece before: y_tile may be written again
        y_tile.store(total.to(y.dtype))
        fence_async_shared()  # a copy sees what threads wrote only behind a fence
        store_tile(y, [row, col], y_tile)
