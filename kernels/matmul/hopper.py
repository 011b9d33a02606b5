"""The persistent matmul for Hopper, in Gluon: a producer warp, two consumer warpgroups, and an epilogue under loads.

Minimum traffic and reference are those of tiled.py; hopper_steps.py builds this kernel up, one change per step. One
producer warp loads: its TMA copies fill a ring of SLOTS slots in shared memory, each with BLOCK_K columns of a (ROWS
rows for each warpgroup) and BLOCK_K rows of b. The consumer warpgroups (four warps, ROWS rows of c each) multiply with
asynchronous wgmma instructions: two slots are in the tensor core at a time, one running and one queued behind it. The
kernel is persistent: programs loop over tiles of c, and the producer runs ahead into the next tile while the consumers
store this one.

Item n is the n-th slot that a program fills: slot n % SLOTS. Each slot has two mbarriers: `full`, its copies have
arrived; `free`, all warpgroups are done with it. The tuple `shared` holds a, b, c, their tiles and the barriers.

The design is CUTLASS's cooperative kernel (2023) and that of DeepGEMM (2025). sm_90, 16-bit operands, no interpreter.
"""

from dataclasses import dataclass
from functools import cache

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
from kernels.matmul.persistent import is_describable
from kernels.shared.device import device_of, is_hopper, tensor_descriptor

WARPGROUPS = gl.constexpr(2)  # that multiply
ROWS = gl.constexpr(64)  # rows of c per warpgroup, which one wgmma instruction multiplies
BLOCK_M = WARPGROUPS.value * ROWS.value
SWIZZLE = 128  # bytes of a row of a tile in shared memory
OUT_N = 64  # columns of c that a warpgroup stores at a time
STAMPS = gl.constexpr(5)  # of an item, in a trace


@gluon.jit
def tile_at(number, M, N, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr):
    """(row, column) at which a tile of c begins, in the grouped order of tile_order.py."""
    tiles_n = gl.cdiv(N, BLOCK_N)
    first = number // (GROUP_M * tiles_n) * GROUP_M
    height = gl.minimum(gl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = number - first * tiles_n
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@gluon.jit
def store_acc(acc, c, c_tiles, row, col, WARPGROUP: gl.constexpr = 0, PIECE: gl.constexpr = 0):
    """Store acc [rows, COLS] to c at (row, col) through this warpgroup's two c_tiles in turn, a tile's columns at a
    time."""
    COLS: gl.constexpr = acc.shape[1]
    if COLS > c_tiles.shape[2]:
        halves = gl.permute(gl.reshape(acc, [acc.shape[0], 2, COLS // 2]), (0, 2, 1))
        left, right = gl.split(halves)
        store_acc(left, c, c_tiles, row, col, WARPGROUP, 2 * PIECE)
        store_acc(right, c, c_tiles, row, col + COLS // 2, WARPGROUP, 2 * PIECE + 1)
    else:
        store_wait(1)  # for all but the piece before, which is in the other c_tile
        c_tile = c_tiles.index(2 * WARPGROUP + PIECE % 2)
        c_tile.store(acc.to(c.dtype))
        fence_async_shared()  # TMA sees what threads wrote only after a fence
        store_tile(c, [row, col], c_tile)


@gluon.jit
def stamp(trace, role, item, COLUMN: gl.constexpr):
    """Write this SM's clock to trace [roles, items, STAMPS] at (role, item, COLUMN), in program 0, if there is one."""
    pointer, items = trace
    if pointer is not None:
        clock = gl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=gl.int64, is_pure=False, pack=1)
        gl.store(pointer + (role * items + item) * STAMPS + COLUMN, clock, (gl.program_id(0) == 0) & (item < items))


@gluon.jit
def produce(shared, sizes, trace, B_TRANSPOSED: gl.constexpr, GROUP_M: gl.constexpr):
    """The producer warp: for each tile of c, the slots of a and b along K, as soon as they are free."""
    a, b, c, a_ring, b_ring, c_tiles, full, free = shared
    M, N, K, tiles = sizes
    SLOTS: gl.constexpr = full.shape[0]
    BLOCK_K: gl.constexpr = a.block_type.shape[1]
    BLOCK_N: gl.constexpr = b.block_type.shape[0 if B_TRANSPOSED else 1]
    item = 0
    for number in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = tile_at(number, M, N, WARPGROUPS * ROWS, BLOCK_N, GROUP_M)
        for k in range(0, K, BLOCK_K):
            slot = item % SLOTS
            stamp(trace, WARPGROUPS, item, 0)
            mbarrier.wait(free.index(slot), item // SLOTS & 1 ^ 1)  # until every warpgroup is done with it
            stamp(trace, WARPGROUPS, item, 1)
            mbarrier.expect(full.index(slot), WARPGROUPS * a.block_type.nbytes + b.block_type.nbytes)
            for part in gl.static_range(WARPGROUPS):
                load_tile(a, [row + part * ROWS, k], full.index(slot), a_ring.index(slot * WARPGROUPS + part))
            if B_TRANSPOSED:
                load_tile(b, [col, k], full.index(slot), b_ring.index(slot))
            else:
                load_tile(b, [k, col], full.index(slot), b_ring.index(slot))
            stamp(trace, WARPGROUPS, item, 2)
            item += 1


@gluon.jit
def consume(shared, sizes, trace, WARPGROUP: gl.constexpr, B_TRANSPOSED: gl.constexpr, GROUP_M: gl.constexpr):
    """A consumer warpgroup: its ROWS rows of each tile of c, from the wait for a and b to the store."""
    a, b, c, a_ring, b_ring, c_tiles, full, free = shared
    M, N, K, tiles = sizes
    SLOTS: gl.constexpr = full.shape[0]
    BLOCK_K: gl.constexpr = a.block_type.shape[1]
    BLOCK_N: gl.constexpr = b.block_type.shape[0 if B_TRANSPOSED else 1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    item = 0
    for number in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = tile_at(number, M, N, WARPGROUPS * ROWS, BLOCK_N, GROUP_M)
        acc = gl.zeros([ROWS, BLOCK_N], gl.float32, layout)
        for k in range(0, K, BLOCK_K):
            slot = item % SLOTS
            stamp(trace, WARPGROUP, item, 0)
            mbarrier.wait(full.index(slot), item // SLOTS & 1)
            stamp(trace, WARPGROUP, item, 1)
            a_tile, b_tile = a_ring.index(slot * WARPGROUPS + WARPGROUP), b_ring.index(slot)
            if B_TRANSPOSED:
                b_tile = b_tile.permute((1, 0))
            acc = warpgroup_mma(a_tile, b_tile, acc, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(acc,))  # for all matmuls but this one
            mbarrier.arrive(free.index((item - 1) % SLOTS), pred=k > 0)
            stamp(trace, WARPGROUP, item, 2)
            item += 1
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(free.index((item - 1) % SLOTS))
        stamp(trace, WARPGROUP, item - 1, 3)
        store_acc(acc, c, c_tiles, row + WARPGROUP * ROWS, col, WARPGROUP)
        stamp(trace, WARPGROUP, item - 1, 4)
    store_wait(0)


@gluon.jit(do_not_specialize=["M", "N", "K", "tiles", "items"])
def matmul_hopper_kernel(
    a, b, c, trace_ptr,
    M, N, K, tiles, items,
    B_TRANSPOSED: gl.constexpr, GROUP_M: gl.constexpr,
    SLOTS: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Many tiles [WARPGROUPS * ROWS, BLOCK_N] of c, one after another. Descriptors: a [M, K] in tiles [ROWS, BLOCK_K],
    b [K, N] in tiles [BLOCK_K, BLOCK_N], or [N, K] in tiles [BLOCK_N, BLOCK_K] if B_TRANSPOSED, c [M, N] in tiles
    [ROWS, OUT_N]. trace [WARPGROUPS + 1, items, STAMPS] int64, or None."""
    a_ring = gl.allocate_shared_memory(a.dtype, [SLOTS * WARPGROUPS] + a.block_type.shape, a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [SLOTS] + b.block_type.shape, b.layout)
    c_tiles = gl.allocate_shared_memory(c.dtype, [2 * WARPGROUPS] + c.block_type.shape, c.layout)
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)  # the producer announces the bytes once
        mbarrier.init(free.index(slot), count=WARPGROUPS)
    fence_async_shared()
    shared = a, b, c, a_ring, b_ring, c_tiles, full, free
    sizes = M, N, K, tiles
    trace = trace_ptr, items
    gl.warp_specialize(
        [
            (consume, (shared, sizes, trace, 0, B_TRANSPOSED, GROUP_M)),
            (consume, (shared, sizes, trace, 1, B_TRANSPOSED, GROUP_M)),
            (produce, (shared, sizes, trace, B_TRANSPOSED, GROUP_M)),
        ],
        [4, 1],  # warps of the second and the third
        [REGISTERS, 24],  # and their registers per thread; the first has the rest
    )


@dataclass(frozen=True)
class HopperPlan:
    """Tile and warps of a launch.

    Args:
        block_n: columns of a tile; its rows are WARPGROUPS * ROWS.
        block_k: columns of a and rows of b in a slot.
        slots: of the ring.
        registers: per consumer thread.
        group_m: rows of tiles in a group of the tile order.
    """

    block_n: int = 256
    block_k: int = 64
    slots: int = 4
    registers: int = 240
    group_m: int = 8

    def tiles(self, M: int, N: int) -> int:
        """Tiles of c [M, N]."""
        return cdiv(M, BLOCK_M) * cdiv(N, self.block_n)


PLAN = HopperPlan()
#: Other plans that lesson 03b compares.
VARIANTS = {
    "3 slots": HopperPlan(slots=3),
    "2 slots of 128": HopperPlan(block_k=128, slots=2),
    "128 columns": HopperPlan(block_n=128, slots=6),
    "groups of 16": HopperPlan(group_m=16),
}


@cache
def _layout():
    """The layout of a tile of 16-bit elements in shared memory."""
    return gl.NVMMASharedLayout(swizzle_byte_width=SWIZZLE, element_bitwidth=16, rank=2)


def describe(matrix: torch.Tensor, rows: int, cols: int):
    """A descriptor of tiles [rows, cols] of a 16-bit matrix."""
    return tensor_descriptor(matrix, matrix.shape, matrix.stride(), [rows, cols], _layout())


def takes(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> bool:
    """Whether the device is a Hopper GPU, and TMA can address 16-bit a and c, and b or its transpose."""
    if not is_hopper(a.device) or a.itemsize != 2:
        return False
    return is_describable(a) and is_describable(c) and (is_describable(b) or is_describable(b.T))


def launch(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, plan: HopperPlan = PLAN, trace: torch.Tensor | None = None
):
    """c = a @ b for 16-bit a [M, K], b [K, N] and c [M, N] that `takes` accepts, none of them empty.

    Args:
        trace: [WARPGROUPS + 1, items, STAMPS] int64, where program 0 writes its SM's clock: for consumer warpgroups
            before and after the wait for an item, once its matmul is queued and the one before is done, and, at the
            last item of a tile, before and after the epilogue; for the producer (last) before and after the wait for
            a free slot, and once the copies are issued.
    """
    (M, K), N = a.shape, b.shape[1]
    transposed = not is_describable(b)
    b_tile = (plan.block_n, plan.block_k) if transposed else (plan.block_k, plan.block_n)
    tiles = plan.tiles(M, N)
    matmul_hopper_kernel[(min(tiles, device_of(c.device).sms),)](
        describe(a, ROWS.value, plan.block_k), describe(b.T if transposed else b, *b_tile),
        describe(c, ROWS.value, OUT_N), trace,
        M, N, K, tiles, 0 if trace is None else trace.shape[1],
        B_TRANSPOSED=transposed, GROUP_M=plan.group_m,
        SLOTS=plan.slots, REGISTERS=plan.registers, num_warps=4,
    )  # fmt: skip
