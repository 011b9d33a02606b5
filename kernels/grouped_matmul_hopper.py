"""The grouped product for Hopper, in Gluon: warps with roles, as in fp8_hopper.py, over groups of any size.

Reference, minimum traffic and the Triton kernels are grouped_matmul.py's. One warp loads: its TMA copies fill a ring of
slots, each with BLOCK_K columns of x and as many rows of a group's weight. Where the rows of x are gathered, there are
four such warps, whose threads copy 16 bytes at a time. Two warpgroups multiply, ROWS rows of a tile each.

Tiles cost differently: a warpgroup that has no rows of the group multiplies nothing, and none does in the right half of
a tile that the last columns do not reach. So programs take the next tile from a queue, a counter in memory, when they
have loaded one; the warp that loads finds the tile's group from the offsets and leaves a note for the warpgroups with
the tile's first slot. Which program computes a tile does not show in its bits.

A tile may reach over the end of its group. Reading there does no harm: these rows of the product are not stored. They
are cut off by TMA itself, in a descriptor whose rows end wherever its coordinates say (grouped_matmul_persistent.py).
sm_90, no interpreter.
"""

from functools import cache

import torch

from instruments import backend
from instruments.gluon import (
    TensorDescriptor,
    fence_async_shared,
    gl,
    gluon,
    load_tile,
    mbarrier,
    reinterpret,
    store_wait,
)
from kernels import grouped_matmul_persistent as persistent
from kernels.attention_hopper import runs_on
from kernels.grouped_matmul_hopper_steps import (
    BLOCK_K,
    BLOCK_M,
    ROWS,
    WARPGROUPS,
    copy_columns,
    corner,
    one_tile,
    pass_by,
    read_notes,
    row_pointers,
    seek,
    write_notes,
)

LOADING_WARPS = gl.constexpr(4)  # where x is gathered; else one
LOADING_REGISTERS = gl.constexpr(64)  # of a thread
REGISTERS = gl.constexpr(224)  # of those that multiply: with the others no more than a multiprocessor's 65,536
LINE = gl.constexpr(128)  # bytes of a row of a tile in shared memory


@gluon.jit
def load(
    shared,
    queue,
    offsets,
    rows,
    sizes,
    BLOCK_N: gl.constexpr,
    GROUP_M: gl.constexpr,
    TRANSPOSED: gl.constexpr,
    SWIGLU: gl.constexpr,
):
    """The warp that loads: for each tile, BLOCK_K columns of x and rows of weight after the other."""
    x, weight, y, x_ring, weight_ring, y_tiles, notes, full, free = shared
    K, N, groups, pitch = sizes
    WARPS: gl.constexpr = 1 if rows is None else LOADING_WARPS
    SLOTS: gl.constexpr = full.shape[0]
    x_bytes: gl.constexpr = BLOCK_M * BLOCK_K * 2 if rows is None else 0  # of TMA
    part_bytes: gl.constexpr = weight.block_type.nbytes
    tiles_n = gl.cdiv(N, BLOCK_N)
    item, number = 0, gl.program_id(0)
    place = seek(number, (0, 0, gl.load(offsets), gl.load(offsets + 1)), offsets, groups, tiles_n)
    while place[0] < groups:
        row, col = corner(number, place, tiles_n, BLOCK_N, GROUP_M)
        number = gl.num_programs(0) + gl.atomic_add(queue, 1, sem="relaxed")
        right = N if SWIGLU else BLOCK_N // 2  # columns from a tile's left part to its right: up's, beside gate's
        wide = (col >= 0) if SWIGLU else (col + BLOCK_N // 2 < N)  # else y has nothing to the right
        if rows is not None:
            pointers, inside = row_pointers(x, rows, pitch, row, place[3])
        for step in range(gl.cdiv(K, BLOCK_K)):
            slot = item % SLOTS
            came = full.index(slot)
            mbarrier.wait(free.index(slot), item // SLOTS & 1 ^ 1)  # for every warpgroup to be done with it
            if step == 0:
                write_notes(notes, slot, row, place[3], col, WARPS)
            mbarrier.expect(came, x_bytes + 2 * part_bytes, pred=wide)
            mbarrier.expect(came, x_bytes + part_bytes, pred=wide == 0)
            if rows is None:
                load_tile(x, [row, step * BLOCK_K], came, x_ring.index(slot))
            for part in gl.static_range(2):
                tile = weight_ring.index(2 * slot + part)
                if TRANSPOSED:
                    at = [place[0], part * right + col, step * BLOCK_K]
                    load_tile(weight, at, came, tile, pred=wide | (part == 0))
                else:
                    at = [place[0], step * BLOCK_K, part * right + col]
                    load_tile(weight, at, came, tile, pred=wide | (part == 0))
            if rows is not None:
                copy_columns(pointers, inside, step, K, x_ring.index(slot), came)
            item += 1
        place = seek(number, place, offsets, groups, tiles_n)
    mbarrier.wait(free.index(item % SLOTS), item // SLOTS & 1 ^ 1)
    write_notes(notes, item % SLOTS, 0, 0, -1, WARPS)
    mbarrier.arrive(full.index(item % SLOTS), count=1 if rows is None else 1 + 32 * LOADING_WARPS)


@gluon.jit
def multiply(
    shared,
    sizes,
    WARPGROUP: gl.constexpr,
    BLOCK_N: gl.constexpr,
    TRANSPOSED: gl.constexpr,
    SWIGLU: gl.constexpr,
    GATHERED: gl.constexpr,
):
    """A warpgroup that multiplies: its ROWS rows of each tile, from the wait for x and weight to the store of y."""
    K, N, groups, pitch = sizes
    COLS: gl.constexpr = 2 * BLOCK_N if SWIGLU else BLOCK_N  # of a product
    steps = gl.cdiv(K, BLOCK_K)
    item = 0
    row, end, col = read_notes(item, shared)
    while col >= 0:
        row += WARPGROUP * ROWS
        if row >= end:
            item = pass_by(item, steps, shared)
        elif SWIGLU or col + BLOCK_N // 2 < N:
            item = one_tile(item, steps, shared, (row, end, col), COLS, WARPGROUP, TRANSPOSED, SWIGLU, GATHERED)
        else:
            item = one_tile(item, steps, shared, (row, end, col), COLS // 2, WARPGROUP, TRANSPOSED, SWIGLU, GATHERED)
        row, end, col = read_notes(item, shared)
    store_wait(0)


@gluon.jit(do_not_specialize=["K", "N", "groups", "pitch"])
def grouped_hopper_kernel(
    x,
    weight,
    y,
    queue,
    offsets,
    rows,
    K,
    N,
    groups,
    pitch,
    BLOCK_N: gl.constexpr,
    SLOTS: gl.constexpr,
    GROUP_M: gl.constexpr,
    TRANSPOSED: gl.constexpr,
    SWIGLU: gl.constexpr,
):
    """Descriptors: x [slots, K] in tiles [BLOCK_M, BLOCK_K]; weight [groups, K, N], with SWIGLU [groups, K,
    2 * N], in tiles of a part's columns, TRANSPOSED its .mT; y [slots, N], ragged. queue: a zero. offsets [groups + 1]
    int32. rows [slots] int32, and x a pointer to [tokens, K], pitch its row stride in units of 16 bytes; or None."""
    COLS: gl.constexpr = 2 * BLOCK_N if SWIGLU else BLOCK_N
    GATHERED: gl.constexpr = rows is not None
    ARRIVALS: gl.constexpr = 1 + 32 * LOADING_WARPS if GATHERED else 1  # TMA's copies are announced once
    flat: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=LINE, element_bitwidth=16, rank=2)
    x_ring = gl.allocate_shared_memory(y.dtype, [SLOTS, BLOCK_M, BLOCK_K], flat)
    weight_ring = gl.allocate_shared_memory(y.dtype, [2 * SLOTS] + weight.block_type.shape, weight.layout)
    y_tiles = gl.allocate_shared_memory(y.dtype, [2 * WARPGROUPS] + y.block_type.shape, y.layout)
    notes = gl.allocate_shared_memory(gl.int32, [3 * SLOTS, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=ARRIVALS)
        mbarrier.init(free.index(slot), count=WARPGROUPS)
    fence_async_shared()
    x_tiles = reinterpret(x_ring, y.dtype, [SLOTS * WARPGROUPS, ROWS, BLOCK_K], flat)  # each warpgroup its own
    if TRANSPOSED:  # both parts as one matrix
        weight_tiles = reinterpret(weight_ring, y.dtype, [SLOTS, COLS, BLOCK_K], flat)
    else:
        weight_tiles = reinterpret(weight_ring, y.dtype, [SLOTS, BLOCK_K, COLS], flat)
    sizes = K, N, groups, pitch
    ring = x, weight, y, x_ring, weight_ring, y_tiles, notes, full, free
    loading = ring, queue, offsets, rows, sizes, BLOCK_N, GROUP_M, TRANSPOSED, SWIGLU
    shared = x, weight, y, x_tiles, weight_tiles, y_tiles, notes, full, free
    gl.warp_specialize(
        [
            (multiply, (shared, sizes, 0, BLOCK_N, TRANSPOSED, SWIGLU, GATHERED)),
            (multiply, (shared, sizes, 1, BLOCK_N, TRANSPOSED, SWIGLU, GATHERED)),
            (load, loading),
        ],
        [4, LOADING_WARPS if GATHERED else 1],
        [REGISTERS, LOADING_REGISTERS],
    )


@cache
def _layout(rank: int):
    """How a tile lies in shared memory: its rows of a line each, swizzled."""
    return gl.NVMMASharedLayout(swizzle_byte_width=LINE.value, element_bitwidth=16, rank=rank)


def _describe(tensor: torch.Tensor, tile: list[int], shape: list | None = None, strides: list | None = None):
    """A descriptor of such tiles of 16-bit elements; of the tensor as it lies, unless seen otherwise."""
    shape, strides = shape or list(tensor.shape), strides or list(tensor.stride())
    return TensorDescriptor(tensor, shape, strides, tile, _layout(len(tile)))


def takes(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether it runs on the device, and TMA can address x, y, and the weight or its .mT as they lie."""
    return backend.mode() == "compiled" and runs_on(x.device) and persistent.takes(x, weight, y)


def launch(x, weight, offsets, rows, y, swiglu: bool, tile: dict, programs: int, group_m: int):
    """y [slots, N] = x, or x[rows], @ weight by groups of what `grouped_matmul` has checked and `takes` takes.

    tile: as Triton's kernels have it, with this BLOCK_M and BLOCK_K; num_stages: slots of the ring.
    """
    block_n = tile["BLOCK_N"]
    transposed = not persistent.describable(weight)
    part = block_n if swiglu else block_n // 2  # columns of a tile's left part, and of its right
    weight_box = [1, part, BLOCK_K.value] if transposed else [1, BLOCK_K.value, part]
    out_box = [1, 1, ROWS.value, part // 2]
    grouped_hopper_kernel[(programs,)](
        _describe(x, [BLOCK_M.value, BLOCK_K.value]) if rows is None else x,
        _describe(weight.mT if transposed else weight, weight_box),
        _describe(y, out_box, *persistent.ragged(y)),
        torch.zeros(1, dtype=torch.int32, device=y.device),
        offsets,
        rows,
        x.shape[1],
        y.shape[1],
        len(weight),
        x.stride(0) // 8,
        BLOCK_N=block_n,
        SLOTS=tile["num_stages"],
        GROUP_M=group_m,
        TRANSPOSED=transposed,
        SWIGLU=swiglu,
        num_warps=4,
    )
