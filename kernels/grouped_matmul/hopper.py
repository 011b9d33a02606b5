"""Grouped matmul for Hopper, in Gluon: warp specialization and asynchronous matmuls, for groups of any size.

forward.py has the reference, the minimum traffic and the public function. One producer warp fills a ring of slots in
shared memory by TMA. Each slot holds BLOCK_K columns of x and as many rows of a group's weight. Where the rows of x are
gathered, there are four producer warps, whose threads copy 16 bytes at a time. Two consumer warpgroups multiply, each
ROWS rows of a tile.

Item n is the n-th slot that a program fills, slot n % SLOTS of the ring. Each slot has two mbarriers: `full`, its
copies have arrived, and `empty`, every warpgroup is done with it. Each slot also has room for three integers: where the
tile of y begins whose first item it is, and where that tile's group ends.

Tiles differ in cost: a warpgroup without rows of the group multiplies nothing, and neither does any in the right half
of a tile that lies outside y. So programs take their next tile from a queue, a counter in memory. The producer finds
the tile's group from the offsets and leaves the tile's place with its first slot. The result has the same bits,
whichever program computes a tile.

A tile may reach beyond the end of its group. That does no harm, because those rows are not stored: TMA discards them,
by a descriptor whose rows end where the coordinates say (`ragged` in persistent.py). sm_90 only; never interpreted.
"""

from dataclasses import dataclass
from functools import cache

import torch

from instruments import backend
from instruments.gluon import (
    arrive_when_copied,
    copy_rows,
    fence_async_shared,
    gl,
    gluon,
    load_tile,
    mbarrier,
    reinterpret,
    store_tile,
    store_wait,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from instruments.launcher import Launch
from kernels.grouped_matmul import persistent
from kernels.grouped_matmul.persistent import RAGGED
from kernels.shared.device import DescriptorPlan, is_hopper
from kernels.shared.tiles import LOG2E

ROWS = gl.constexpr(64)  # of a warpgroup: the M of one wgmma instruction
WARPGROUPS = gl.constexpr(2)  # consumers
BLOCK_M = gl.constexpr(128)  # rows of both warpgroups
BLOCK_K = gl.constexpr(64)  # columns of x in a slot: a line of 128 bytes
LINE = gl.constexpr(128)  # bytes of a row of a tile in shared memory
PRODUCER_WARPS = gl.constexpr(4)  # where x is gathered; else one
PRODUCER_REGISTERS = gl.constexpr(64)  # per thread
CONSUMER_REGISTERS = gl.constexpr(224)  # per thread: all together at most the 65,536 of an SM


@gluon.jit
def find_group(tile, group_state, offsets, groups, tiles_n):
    """The state (group, its first tile, its first row, its end) of the group that has a tile, searched from a state on;
    group is `groups` where no group has it."""
    group, first, start, end = group_state
    tiles = gl.cdiv(end - start, BLOCK_M) * tiles_n
    while (group < groups) & (tile >= first + tiles):
        first += tiles
        group += 1
        start = end
        end = gl.load(offsets + gl.minimum(group + 1, groups))
        tiles = gl.cdiv(end - start, BLOCK_M) * tiles_n
    return group, first, start, end


@gluon.jit
def tile_origin(tile, group_state, tiles_n, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr):
    """(row, column) at which a tile begins, in the grouped order of kernels/matmul/tile_order.py."""
    group, first, start, end = group_state
    index = tile - first
    above = index // (GROUP_M * tiles_n) * GROUP_M
    height = gl.minimum(gl.cdiv(end - start, BLOCK_M) - above, GROUP_M)
    index -= above * tiles_n
    return start + (above + index % height) * BLOCK_M, index // height * BLOCK_N


@gluon.jit
def row_pointers(x, rows, pitch, row, end):
    """(pointers to the first BLOCK_K columns of BLOCK_M gathered rows of x, from slot `row` on, in the layout of their
    copies, 16 bytes per thread; mask of the rows before `end`). pitch: row stride in units of 16 bytes."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    slot = row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, layout))  # [BLOCK_M]
    token = gl.load(rows + slot, mask=slot < end, other=0).to(gl.int64)
    column = gl.arange(0, BLOCK_K, gl.SliceLayout(0, layout))  # [BLOCK_K]
    return x + (token * pitch * 8)[:, None] + column[None, :], (slot < end)[:, None]


@gluon.jit
def copy_columns(pointers, row_mask, step, K, tile, full):
    """Copy BLOCK_K columns of the rows of `row_pointers` into a tile [BLOCK_M, BLOCK_K]. Each thread arrives at the
    barrier `full` when its own copies have."""
    layout: gl.constexpr = pointers.type.layout
    chunk = gl.arange(0, BLOCK_K, gl.SliceLayout(0, layout)) // 8 * 8  # first column of the 16 bytes a column is in
    copy_rows(tile, pointers + step * BLOCK_K, row_mask & (chunk < K - step * BLOCK_K)[None, :])
    arrive_when_copied(full, increment_count=False)


@gluon.jit
def write_place(places, slot, row, end, col, WARPS: gl.constexpr):
    """Leave with a slot where its tile of y begins and where the tile's group ends; a negative column ends the loop."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    places.index(3 * slot).store(gl.full([1], row, gl.int32, layout))
    places.index(3 * slot + 1).store(gl.full([1], end, gl.int32, layout))
    places.index(3 * slot + 2).store(gl.full([1], col, gl.int32, layout))


@gluon.jit
def read_place(item, shared):
    """(row, end, col) as `write_place` left them with an item's slot, once the slot is full."""
    x, weight, y, x_ring, weight_ring, y_tiles, places, full, empty = shared
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    slot = item % full.shape[0]
    mbarrier.wait(full.index(slot), item // full.shape[0] & 1)
    row = gl.max(places.index(3 * slot).load(layout), 0)
    end = gl.max(places.index(3 * slot + 1).load(layout), 0)
    return row, end, gl.max(places.index(3 * slot + 2).load(layout), 0)


@gluon.jit
def release(item, empty, pred=True):
    """Tell the producer that this warpgroup is done with an item's slot."""
    mbarrier.arrive(empty.index(item % empty.shape[0]), pred=pred)


@gluon.jit
def skip_items(item, steps, shared):
    """The item after `steps` items that this warpgroup skips. It waits for each, to keep the count of the barriers."""
    x, weight, y, x_ring, weight_ring, y_tiles, places, full, empty = shared
    for _ in range(steps):
        mbarrier.wait(full.index(item % full.shape[0]), item // full.shape[0] & 1)
        release(item, empty)
        item += 1
    return item


@gluon.jit
def multiply_tile(
    item, steps, shared,
    COLS: gl.constexpr, WARPGROUP: gl.constexpr, TRANSPOSED: gl.constexpr, GATHERED: gl.constexpr,
):  # fmt: skip
    """(acc [ROWS, COLS] of a warpgroup's rows and the first COLS columns of a tile, the item after its items).

    Two items are in flight at a time: one in the tensor core, the next queued behind it.
    """
    x, weight, y, x_ring, weight_ring, y_tiles, places, full, empty = shared
    SLOTS: gl.constexpr = full.shape[0]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLS, 16])
    acc = gl.zeros([ROWS, COLS], gl.float32, layout)
    for step in range(steps):
        slot = item % SLOTS
        mbarrier.wait(full.index(slot), item // SLOTS & 1)
        if GATHERED:
            fence_async_shared()  # the tensor core sees what threads copied only after a fence
        weight_tile = weight_ring.index(slot).slice(0, COLS, 0 if TRANSPOSED else 1)
        if TRANSPOSED:
            weight_tile = weight_tile.permute((1, 0))
        acc = warpgroup_mma(x_ring.index(slot * WARPGROUPS + WARPGROUP), weight_tile, acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))  # for all but the newest
        release(item - 1, empty, step > 0)
        item += 1
    acc = warpgroup_mma_wait(0, deps=(acc,))
    release(item - 1, empty)
    return acc, item


@gluon.jit
def halves(tile):
    """(left, right) half of a tile's columns."""
    rows: gl.constexpr = tile.shape[0]
    return gl.split(gl.permute(gl.reshape(tile, [rows, 2, tile.shape[1] // 2]), (0, 2, 1)))


@gluon.jit
def swiglu_halves(tile):
    """silu(gate) * up of a tile whose left half is gate and whose right half is up."""
    gate, up = halves(tile)
    return gate / (1 + gl.exp2(gate * -LOG2E)) * up


@gluon.jit
def store_ragged(out, y, y_tiles, row, end, col, WARPGROUP: gl.constexpr, PIECE: gl.constexpr = 0):
    """Store out [ROWS, a power of two times the columns of y_tiles] to y at (row, col), without the rows from `end` on,
    through this warpgroup's two y_tiles in turn. PIECE: number from the left; there is an even number of pieces."""
    COLS: gl.constexpr = y_tiles.shape[4]
    if out.shape[1] > COLS:
        left, right = halves(out)
        store_ragged(left, y, y_tiles, row, end, col, WARPGROUP, 2 * PIECE)
        store_ragged(right, y, y_tiles, row, end, col + out.shape[1] // 2, WARPGROUP, 2 * PIECE + 1)
    else:
        y_tile = y_tiles.index(2 * WARPGROUP + PIECE % 2)
        store_wait(1)  # for all but the previous piece, which is in the other y_tile
        y_tile.reshape([ROWS, COLS]).store(out.to(y.dtype))
        fence_async_shared()  # TMA sees what threads wrote only after a fence
        store_tile(y, [RAGGED, end, RAGGED - end + row, col], y_tile)


@gluon.jit
def compute_tile(
    item, steps, shared, place,
    COLS: gl.constexpr, WARPGROUP: gl.constexpr,
    TRANSPOSED: gl.constexpr, SWIGLU: gl.constexpr, GATHERED: gl.constexpr,
):  # fmt: skip
    """Multiply COLS columns of a tile and store them, or their SwiGLU, to y at (row, col); returns the next item."""
    x, weight, y, x_ring, weight_ring, y_tiles, places, full, empty = shared
    row, end, col = place
    acc, item = multiply_tile(item, steps, shared, COLS, WARPGROUP, TRANSPOSED, GATHERED)
    if SWIGLU:
        store_ragged(swiglu_halves(acc), y, y_tiles, row, end, col, WARPGROUP)
    else:
        store_ragged(acc, y, y_tiles, row, end, col, WARPGROUP)
    return item


@gluon.jit
def produce(
    shared, queue, offsets, rows, sizes,
    BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr, TRANSPOSED: gl.constexpr, SWIGLU: gl.constexpr,
):  # fmt: skip
    """The producer: for each tile, loads BLOCK_K columns of x and rows of the weight, one slot after the other."""
    x, weight, y, x_ring, weight_ring, y_tiles, places, full, empty = shared
    K, N, groups, pitch = sizes
    WARPS: gl.constexpr = 1 if rows is None else PRODUCER_WARPS
    SLOTS: gl.constexpr = full.shape[0]
    x_bytes: gl.constexpr = BLOCK_M * BLOCK_K * 2 if rows is None else 0  # by TMA
    part_bytes: gl.constexpr = weight.block_type.nbytes
    tiles_n = gl.cdiv(N, BLOCK_N)
    item, tile = 0, gl.program_id(0)
    group_state = find_group(tile, (0, 0, gl.load(offsets), gl.load(offsets + 1)), offsets, groups, tiles_n)
    while group_state[0] < groups:
        row, col = tile_origin(tile, group_state, tiles_n, BLOCK_N, GROUP_M)
        tile = gl.num_programs(0) + gl.atomic_add(queue, 1, sem="relaxed")
        right = N if SWIGLU else BLOCK_N // 2  # columns from a tile's left part to its right: up's, beside gate's
        wide = (col >= 0) if SWIGLU else (col + BLOCK_N // 2 < N)  # else the right part lies outside y
        if rows is not None:
            pointers, row_mask = row_pointers(x, rows, pitch, row, group_state[3])
        for step in range(gl.cdiv(K, BLOCK_K)):
            slot = item % SLOTS
            slot_full = full.index(slot)
            mbarrier.wait(empty.index(slot), item // SLOTS & 1 ^ 1)  # every warpgroup is done with it
            if step == 0:
                write_place(places, slot, row, group_state[3], col, WARPS)
            mbarrier.expect(slot_full, x_bytes + 2 * part_bytes, pred=wide)
            mbarrier.expect(slot_full, x_bytes + part_bytes, pred=wide == 0)
            if rows is None:
                load_tile(x, [row, step * BLOCK_K], slot_full, x_ring.index(slot))
            for part in gl.static_range(2):
                part_tile = weight_ring.index(2 * slot + part)
                if TRANSPOSED:
                    at = [group_state[0], part * right + col, step * BLOCK_K]
                    load_tile(weight, at, slot_full, part_tile, pred=wide | (part == 0))
                else:
                    at = [group_state[0], step * BLOCK_K, part * right + col]
                    load_tile(weight, at, slot_full, part_tile, pred=wide | (part == 0))
            if rows is not None:
                copy_columns(pointers, row_mask, step, K, x_ring.index(slot), slot_full)
            item += 1
        group_state = find_group(tile, group_state, offsets, groups, tiles_n)
    mbarrier.wait(empty.index(item % SLOTS), item // SLOTS & 1 ^ 1)
    write_place(places, item % SLOTS, 0, 0, -1, WARPS)
    mbarrier.arrive(full.index(item % SLOTS), count=1 if rows is None else 1 + 32 * PRODUCER_WARPS)


@gluon.jit
def consume(
    shared, sizes,
    WARPGROUP: gl.constexpr, BLOCK_N: gl.constexpr,
    TRANSPOSED: gl.constexpr, SWIGLU: gl.constexpr, GATHERED: gl.constexpr,
):  # fmt: skip
    """A consumer warpgroup: its ROWS rows of each tile, from the wait for x and weight to the store of y."""
    K, N, groups, pitch = sizes
    COLS: gl.constexpr = 2 * BLOCK_N if SWIGLU else BLOCK_N  # of the accumulator
    steps = gl.cdiv(K, BLOCK_K)
    item = 0
    row, end, col = read_place(item, shared)
    while col >= 0:
        row += WARPGROUP * ROWS
        if row >= end:
            item = skip_items(item, steps, shared)
        elif SWIGLU or col + BLOCK_N // 2 < N:
            item = compute_tile(item, steps, shared, (row, end, col), COLS, WARPGROUP, TRANSPOSED, SWIGLU, GATHERED)
        else:
            half: gl.constexpr = COLS // 2
            item = compute_tile(item, steps, shared, (row, end, col), half, WARPGROUP, TRANSPOSED, SWIGLU, GATHERED)
        row, end, col = read_place(item, shared)
    store_wait(0)


@gluon.jit(do_not_specialize=["K", "N", "groups", "pitch"])
def grouped_hopper_kernel(
    x, weight, y, queue, offsets, rows,  # tensors
    K, N, groups, pitch,
    BLOCK_N: gl.constexpr, SLOTS: gl.constexpr, GROUP_M: gl.constexpr,
    TRANSPOSED: gl.constexpr, SWIGLU: gl.constexpr,
):  # fmt: skip
    """Descriptors: x [slots, K] in tiles [BLOCK_M, BLOCK_K]; weight [groups, K, N], or [groups, K, 2 * N] with SWIGLU,
    in tiles of half of the columns, .mT if TRANSPOSED; y [slots, N], ragged. queue: a zero. offsets [groups + 1] int32.
    rows: None, or [slots] int32; then x is a pointer to [tokens, K] and pitch its row stride in units of 16 bytes."""
    COLS: gl.constexpr = 2 * BLOCK_N if SWIGLU else BLOCK_N
    GATHERED: gl.constexpr = rows is not None
    ARRIVALS: gl.constexpr = 1 + 32 * PRODUCER_WARPS if GATHERED else 1  # TMA's copies arrive as one
    flat: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=LINE, element_bitwidth=16, rank=2)
    x_ring = gl.allocate_shared_memory(y.dtype, [SLOTS, BLOCK_M, BLOCK_K], flat)
    part_ring = gl.allocate_shared_memory(y.dtype, [2 * SLOTS] + weight.block_type.shape, weight.layout)
    y_tiles = gl.allocate_shared_memory(y.dtype, [2 * WARPGROUPS] + y.block_type.shape, y.layout)
    places = gl.allocate_shared_memory(gl.int32, [3 * SLOTS, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=ARRIVALS)
        mbarrier.init(empty.index(slot), count=WARPGROUPS)
    fence_async_shared()
    x_tiles = reinterpret(x_ring, y.dtype, [SLOTS * WARPGROUPS, ROWS, BLOCK_K], flat)  # one per warpgroup
    if TRANSPOSED:  # both parts as one matrix
        weight_tiles = reinterpret(part_ring, y.dtype, [SLOTS, COLS, BLOCK_K], flat)
    else:
        weight_tiles = reinterpret(part_ring, y.dtype, [SLOTS, BLOCK_K, COLS], flat)
    sizes = K, N, groups, pitch
    producer_shared = x, weight, y, x_ring, part_ring, y_tiles, places, full, empty
    producer = producer_shared, queue, offsets, rows, sizes, BLOCK_N, GROUP_M, TRANSPOSED, SWIGLU
    shared = x, weight, y, x_tiles, weight_tiles, y_tiles, places, full, empty
    gl.warp_specialize(
        [
            (consume, (shared, sizes, 0, BLOCK_N, TRANSPOSED, SWIGLU, GATHERED)),
            (consume, (shared, sizes, 1, BLOCK_N, TRANSPOSED, SWIGLU, GATHERED)),
            (produce, producer),
        ],
        [4, PRODUCER_WARPS if GATHERED else 1],
        [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
    )


@cache
def _layout(rank: int):
    """The layout of a tile in shared memory: one line per row, swizzled."""
    return gl.NVMMASharedLayout(swizzle_byte_width=LINE.value, element_bitwidth=16, rank=rank)


def takes(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether the weight's device is a Hopper GPU and TMA can address x, y, and the weight or its .mT as they lie."""
    return backend.mode() == "compiled" and is_hopper(weight.device) and persistent.takes(x, weight, y)


@dataclass(frozen=True)
class HopperCall(persistent.PersistentCall):
    """The launch of a plan, with a queue beside the tensors."""

    def __call__(self, x, weight, offsets, rows, y):
        queue = torch.zeros(1, dtype=torch.int32, device=y.device)
        self.kernel(self.x(x) if self.x else x, self.weight(weight), self.y(y), queue, offsets, rows)


def plan_call(x, weight, gathered: bool, y, swiglu: bool, plan) -> HopperCall:
    """As in persistent.py, with this file's BLOCK_M and BLOCK_K; num_stages is the number of slots."""
    block_n = plan.tile["BLOCK_N"]
    transposed = not persistent.describable(weight)
    part = block_n if swiglu else block_n // 2  # columns of a tile's left part, and of its right
    matrix, box = (weight.mT, [1, part, BLOCK_K.value]) if transposed else (weight, [1, BLOCK_K.value, part])
    kernel = Launch(
        grouped_hopper_kernel, (plan.programs,),
        x.shape[1], y.shape[1], weight.shape[0], x.stride(0) // 8,
        BLOCK_N=block_n, SLOTS=plan.tile["num_stages"], GROUP_M=plan.group_m,
        TRANSPOSED=transposed, SWIGLU=swiglu, num_warps=4,
    )  # fmt: skip
    return HopperCall(
        None if gathered else DescriptorPlan(x.shape, x.stride(), [BLOCK_M.value, BLOCK_K.value], _layout(2)),
        DescriptorPlan(matrix.shape, matrix.stride(), box, _layout(3)),
        DescriptorPlan(*persistent.ragged(y), [1, 1, ROWS.value, part // 2], _layout(4)),
        kernel,
    )
