"""The Hopper matmul step by step: TMA and wgmma in one loop, then a ring of slots, then a producer warp.

Minimum traffic and reference are those of tiled.py; hopper.py is the last step. Every step computes one tile of c per
program, 128 x 256, in the grouped order, and differs from the step before in one thing:

    matmul_one_slot_kernel        TMA copies one slot of a and b; all warps wait for it, multiply, and wait again
    matmul_ring_kernel            a ring of slots: the copies of the next slots run under the matmul of this one
    matmul_producer_kernel        warp specialization: a producer warp copies, two consumer warpgroups multiply

16-bit operands that TMA can address as they lie, row-major. sm_90, no interpreter.
"""

import torch

from instruments.backend import cdiv
from instruments.gluon import (
    barrier,
    fence_async_shared,
    gl,
    gluon,
    load_tile,
    mbarrier,
    store_wait,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from kernels.matmul.hopper import OUT_N, ROWS, describe, store_acc, tile_at

BLOCK_M, BLOCK_N, BLOCK_K = 128, 256, 64
GROUP_M = 8
SLOTS = 4
REGISTERS = 240  # per consumer thread


@gluon.jit(do_not_specialize=["M", "N", "K"])
def matmul_one_slot_kernel(a, b, c, M, N, K, GROUP_M: gl.constexpr):
    """One tile of c per program, eight warps: descriptors of a [M, K] in tiles [BLOCK_M, BLOCK_K], b [K, N] in tiles
    [BLOCK_K, BLOCK_N], c [M, N] in tiles [BLOCK_M, OUT_N]."""
    BLOCK_M: gl.constexpr = a.block_type.shape[0]
    BLOCK_K: gl.constexpr = b.block_type.shape[0]
    BLOCK_N: gl.constexpr = b.block_type.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, BLOCK_N, 16])
    a_tile = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    b_tile = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    c_tiles = gl.allocate_shared_memory(c.dtype, [2] + c.block_type.shape, c.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)  # one thread announces the bytes
    fence_async_shared()

    row, col = tile_at(gl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout)
    for step in range(gl.cdiv(K, BLOCK_K)):
        barrier()  # every warp is done with the tiles
        mbarrier.expect(full, a.block_type.nbytes + b.block_type.nbytes)
        load_tile(a, [row, step * BLOCK_K], full, a_tile)
        load_tile(b, [step * BLOCK_K, col], full, b_tile)
        mbarrier.wait(full, step & 1)  # until all bytes have arrived
        acc = warpgroup_mma(a_tile, b_tile, acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(acc,))
    store_acc(acc, c, c_tiles, row, col)
    store_wait(0)


@gluon.jit
def start_copies(step, steps, tensors, rings, full, row, col):
    """Start to copy the tiles of a step along K into its slot, if there is such a step."""
    a, b = tensors
    a_ring, b_ring = rings
    BLOCK_K: gl.constexpr = b.block_type.shape[0]
    slot = step % full.shape[0]
    mbarrier.expect(full.index(slot), a.block_type.nbytes + b.block_type.nbytes, pred=step < steps)
    load_tile(a, [row, step * BLOCK_K], full.index(slot), a_ring.index(slot), pred=step < steps)
    load_tile(b, [step * BLOCK_K, col], full.index(slot), b_ring.index(slot), pred=step < steps)


@gluon.jit(do_not_specialize=["M", "N", "K"])
def matmul_ring_kernel(a, b, c, M, N, K, GROUP_M: gl.constexpr, SLOTS: gl.constexpr):
    """One tile of c per program, eight warps, SLOTS slots; descriptors as above."""
    BLOCK_M: gl.constexpr = a.block_type.shape[0]
    BLOCK_K: gl.constexpr = b.block_type.shape[0]
    BLOCK_N: gl.constexpr = b.block_type.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, BLOCK_N, 16])
    a_ring = gl.allocate_shared_memory(a.dtype, [SLOTS] + a.block_type.shape, a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [SLOTS] + b.block_type.shape, b.layout)
    c_tiles = gl.allocate_shared_memory(c.dtype, [2] + c.block_type.shape, c.layout)
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for number in gl.static_range(SLOTS):
        mbarrier.init(full.index(number), count=1)
    fence_async_shared()
    barrier()  # every thread sees the barriers

    row, col = tile_at(gl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    steps = gl.cdiv(K, BLOCK_K)
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout)
    for early in gl.static_range(SLOTS - 1):
        start_copies(early, steps, (a, b), (a_ring, b_ring), full, row, col)
    for step in range(steps):
        slot = step % SLOTS
        mbarrier.wait(full.index(slot), step // SLOTS & 1)
        acc = warpgroup_mma(a_ring.index(slot), b_ring.index(slot), acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))  # for all matmuls but this one
        barrier()  # both warpgroups are done with the step before: its slot is free
        start_copies(step + SLOTS - 1, steps, (a, b), (a_ring, b_ring), full, row, col)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    store_acc(acc, c, c_tiles, row, col)
    store_wait(0)


@gluon.jit
def produce_tile(shared, sizes, GROUP_M: gl.constexpr):
    """The producer warp: the slots of one tile along K, as soon as they are free."""
    a, b, c, a_ring, b_ring, c_tiles, full, free = shared
    M, N, K = sizes
    SLOTS: gl.constexpr = full.shape[0]
    BLOCK_K: gl.constexpr = b.block_type.shape[0]
    row, col = tile_at(gl.program_id(0), M, N, 2 * ROWS, b.block_type.shape[1], GROUP_M)
    for step in range(gl.cdiv(K, BLOCK_K)):
        slot = step % SLOTS
        mbarrier.wait(free.index(slot), step // SLOTS & 1 ^ 1)  # until both warpgroups are done with it
        mbarrier.expect(full.index(slot), 2 * a.block_type.nbytes + b.block_type.nbytes)
        for part in gl.static_range(2):
            load_tile(a, [row + part * ROWS, step * BLOCK_K], full.index(slot), a_ring.index(slot * 2 + part))
        load_tile(b, [step * BLOCK_K, col], full.index(slot), b_ring.index(slot))


@gluon.jit
def consume_tile(shared, sizes, WARPGROUP: gl.constexpr, GROUP_M: gl.constexpr):
    """A consumer warpgroup: ROWS rows of one tile, from the wait for a and b to the store."""
    a, b, c, a_ring, b_ring, c_tiles, full, free = shared
    M, N, K = sizes
    SLOTS: gl.constexpr = full.shape[0]
    BLOCK_K: gl.constexpr = b.block_type.shape[0]
    BLOCK_N: gl.constexpr = b.block_type.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    row, col = tile_at(gl.program_id(0), M, N, 2 * ROWS, BLOCK_N, GROUP_M)
    acc = gl.zeros([ROWS, BLOCK_N], gl.float32, layout)
    steps = gl.cdiv(K, BLOCK_K)
    for step in range(steps):
        slot = step % SLOTS
        mbarrier.wait(full.index(slot), step // SLOTS & 1)
        acc = warpgroup_mma(a_ring.index(slot * 2 + WARPGROUP), b_ring.index(slot), acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))  # for all matmuls but this one
        mbarrier.arrive(free.index((step - 1) % SLOTS), pred=step > 0)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    store_acc(acc, c, c_tiles, row + WARPGROUP * ROWS, col, WARPGROUP)
    store_wait(0)


@gluon.jit(do_not_specialize=["M", "N", "K"])
def matmul_producer_kernel(a, b, c, M, N, K, GROUP_M: gl.constexpr, SLOTS: gl.constexpr, REGISTERS: gl.constexpr):
    """One tile of c per program, two consumer warpgroups and a producer warp; descriptors as above, but a and c in
    tiles of ROWS rows."""
    a_ring = gl.allocate_shared_memory(a.dtype, [SLOTS * 2] + a.block_type.shape, a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [SLOTS] + b.block_type.shape, b.layout)
    c_tiles = gl.allocate_shared_memory(c.dtype, [4] + c.block_type.shape, c.layout)
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)  # the producer announces the bytes once
        mbarrier.init(free.index(slot), count=2)  # both warpgroups say that they are done
    fence_async_shared()
    shared = a, b, c, a_ring, b_ring, c_tiles, full, free
    sizes = M, N, K
    gl.warp_specialize(
        [
            (consume_tile, (shared, sizes, 0, GROUP_M)),
            (consume_tile, (shared, sizes, 1, GROUP_M)),
            (produce_tile, (shared, sizes, GROUP_M)),
        ],
        [4, 1],
        [REGISTERS, 24],
    )


def launch(step: str, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, slots: int = SLOTS):
    """c = a @ b by the kernel of a step: 'one slot', 'ring' or 'producer'. Contiguous 16-bit matrices that TMA can
    address, none of them empty."""
    (M, K), N = a.shape, b.shape[1]
    grid = (cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N),)
    rows = ROWS.value if step == "producer" else BLOCK_M  # of a descriptor's tile
    descriptors = describe(a, rows, BLOCK_K), describe(b, BLOCK_K, BLOCK_N), describe(c, rows, OUT_N)
    if step == "one slot":
        matmul_one_slot_kernel[grid](*descriptors, M, N, K, GROUP_M, num_warps=8)
    elif step == "ring":
        matmul_ring_kernel[grid](*descriptors, M, N, K, GROUP_M, SLOTS=slots, num_warps=8)
    elif step == "producer":
        matmul_producer_kernel[grid](*descriptors, M, N, K, GROUP_M, SLOTS=slots, REGISTERS=REGISTERS, num_warps=4)
    else:
        raise ValueError(f"step: got {step!r}, expected 'one slot', 'ring' or 'producer'")
