"""The grouped product for Hopper, in Gluon: warps with roles, as in fp8_hopper.py, over groups of any size.

Reference, minimum traffic and the Triton kernels are grouped_matmul.py's. One warp loads: its TMA copies fill a ring of
slots, each with BLOCK_K columns of x and as many rows of a group's weight. The warpgroups multiply, ROWS rows of a
tile each. A program walks over many tiles; which group a tile belongs to, each role finds by itself from the offsets.
While one warpgroup stores its rows, the other still multiplies, and the loads of the next tile run.

A tile may reach over the end of its group. Reading there does no harm: these rows of the product are not stored. They
are cut off by TMA itself, in a descriptor whose rows end wherever its coordinates say (`describe_ragged`). A warpgroup
without rows of its group multiplies nothing, nor does any in the right half of a tile that the last columns do not
reach. sm_90, no interpreter.
"""

from dataclasses import dataclass

import torch

from instruments.backend import triton
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
from kernels.grouped_matmul_hopper_steps import (
    BLOCK_K,
    RAGGED,
    ROWS,
    copy_columns,
    corner,
    one_tile,
    pass_by,
    read_notes,
    row_pointers,
    seek,
    write_notes,
)
from kernels.rows import device_of

LOADING_WARPS = gl.constexpr(4)  # where x is gathered; else one
LOADING_REGISTERS = gl.constexpr(64)
LINE = gl.constexpr(128)  # bytes of a row of a tile in shared memory


@gluon.jit
def load(shared, queue, offsets, rows, sizes, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr, TRANSPOSED: gl.constexpr):
    """The warp that loads: for each tile, BLOCK_K columns of x and rows of weight after the other."""
    x, weight, y, x_ring, weight_ring, y_tiles, notes, full, free = shared
    K, N, groups, pitch = sizes
    WARPS: gl.constexpr = 1 if rows is None else LOADING_WARPS
    SLOTS: gl.constexpr = full.shape[0]
    WARPGROUPS: gl.constexpr = x_ring.shape[1] // ROWS
    PARTS: gl.constexpr = weight_ring.shape[0] // SLOTS  # of a tile's weight: 2 with gate and up
    BLOCK_M: gl.constexpr = WARPGROUPS * ROWS
    weight_bytes: gl.constexpr = PARTS * weight.block_type.nbytes
    tiles_n = gl.cdiv(N, BLOCK_N)
    item, number = 0, gl.program_id(0)
    place = seek(number, (0, 0, gl.load(offsets), gl.load(offsets + 1)), offsets, groups, tiles_n, BLOCK_M)
    while place[0] < groups:
        row, col = corner(number, place, tiles_n, BLOCK_M, BLOCK_N, GROUP_M)
        if queue is None:
            number += gl.num_programs(0)
        else:
            number = gl.num_programs(0) + gl.atomic_add(queue, 1, sem="relaxed")  # comes under the copies
        if rows is not None:
            pointers, inside = row_pointers(x, rows, pitch, row, place[3], BLOCK_M)
        for step in range(gl.cdiv(K, BLOCK_K)):
            slot = item % SLOTS
            came = full.index(slot)
            mbarrier.wait(free.index(slot), item // SLOTS & 1 ^ 1)  # for every warpgroup to be done with it
            if step == 0:
                write_notes(notes, slot, row, place[3], col, WARPS)
            if rows is None:
                mbarrier.expect(came, weight_bytes + BLOCK_M * BLOCK_K * 2)
                load_tile(x, [row, step * BLOCK_K], came, x_ring.index(slot))
            else:
                mbarrier.expect(came, weight_bytes)
            for part in gl.static_range(PARTS):
                tile = weight_ring.index(slot * PARTS + part)
                if TRANSPOSED:
                    load_tile(weight, [place[0], part * N + col, step * BLOCK_K], came, tile)
                else:
                    load_tile(weight, [place[0], step * BLOCK_K, part * N + col], came, tile)
            if rows is not None:
                copy_columns(pointers, inside, step, K, x_ring.index(slot), came)
            item += 1
        place = seek(number, place, offsets, groups, tiles_n, BLOCK_M)
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
    WARPGROUPS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    SLOTS: gl.constexpr,
    GROUP_M: gl.constexpr,
    REGISTERS: gl.constexpr,
    TRANSPOSED: gl.constexpr,
    SWIGLU: gl.constexpr,
    OUT_TILES: gl.constexpr,
):
    """Descriptors: x [rows, K] in tiles of ROWS; weight [groups, K, N], with SWIGLU [groups, K, 2 * N], in tiles of
    BLOCK_N columns of y, TRANSPOSED its .mT; y [rows, N] as `describe_ragged` makes them. offsets: a pointer to
    [groups + 1] int32. N: columns of y."""
    COLS: gl.constexpr = 2 * BLOCK_N if SWIGLU else BLOCK_N
    PARTS: gl.constexpr = 2 if SWIGLU else 1
    GATHERED: gl.constexpr = rows is not None
    flat: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=LINE, element_bitwidth=16, rank=2)
    x_ring = gl.allocate_shared_memory(y.dtype, [SLOTS, WARPGROUPS * ROWS, BLOCK_K], flat)
    weight_ring = gl.allocate_shared_memory(y.dtype, [SLOTS * PARTS] + weight.block_type.shape, weight.layout)
    y_tiles = gl.allocate_shared_memory(y.dtype, [WARPGROUPS * OUT_TILES] + y.block_type.shape, y.layout)
    notes = gl.allocate_shared_memory(gl.int32, [3 * SLOTS, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(
            full.index(slot), count=1 + 32 * LOADING_WARPS if GATHERED else 1
        )  # copies of TMA, announced once
        mbarrier.init(free.index(slot), count=WARPGROUPS)
    fence_async_shared()
    x_tiles = reinterpret(x_ring, y.dtype, [SLOTS * WARPGROUPS, ROWS, BLOCK_K], flat)  # each warpgroup its own
    if TRANSPOSED:  # gate and up, or the one tile there is, as a matrix
        weight_tiles = reinterpret(weight_ring, y.dtype, [SLOTS, COLS, BLOCK_K], flat)
    else:
        weight_tiles = reinterpret(weight_ring, y.dtype, [SLOTS, BLOCK_K, COLS], flat)
    sizes = K, N, groups, pitch
    ring = x, weight, y, x_ring, weight_ring, y_tiles, notes, full, free
    loading = ring, queue, offsets, rows, sizes, BLOCK_N, GROUP_M, TRANSPOSED
    shared = x, weight, y, x_tiles, weight_tiles, y_tiles, notes, full, free
    if WARPGROUPS == 1:
        gl.warp_specialize(
            [(multiply, (shared, sizes, 0, BLOCK_N, TRANSPOSED, SWIGLU, GATHERED)), (load, loading)],
            [LOADING_WARPS if GATHERED else 1],
            [LOADING_REGISTERS],
        )
    else:
        gl.warp_specialize(
            [
                (multiply, (shared, sizes, 0, BLOCK_N, TRANSPOSED, SWIGLU, GATHERED)),
                (multiply, (shared, sizes, 1, BLOCK_N, TRANSPOSED, SWIGLU, GATHERED)),
                (load, loading),
            ],
            [4, LOADING_WARPS if GATHERED else 1],
            [REGISTERS, LOADING_REGISTERS],
        )


@dataclass(frozen=True)
class Plan:
    """warpgroups: of ROWS rows of a tile each. cols: of a product; with SwiGLU half as many of y. slots: of the ring.
    out_cols: columns of y that go through shared memory at a time. registers: of a thread. group_m: rows of tiles that
    programs walk over together."""

    warpgroups: int
    cols: int
    slots: int
    out_cols: int
    registers: int
    group_m: int
    queue: bool = True
    out_tiles: int = 1


PLANS = (Plan(2, 256, 4, 64, 224, 16, True, 2), Plan(1, 128, 8, 32, 224, 16, True, 2))


def _describe(tensor: torch.Tensor, tile: list[int]):
    """A descriptor of such tiles of 16-bit elements."""
    layout = gl.NVMMASharedLayout(swizzle_byte_width=LINE.value, element_bitwidth=16, rank=len(tile))
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), tile, layout)


def describe_ragged(y: torch.Tensor, cols: int):
    """A descriptor of tiles [1, 1, ROWS, cols] of y [rows, N] that end at a row which each copy chooses.

    At (RAGGED, end, RAGGED - end + row, column) lies y[row, column], and nothing from row `end` on: the third index
    would be beyond the last. The strides of the first two make up for the large indices, modulo the 2^64 of an address.
    The way of triton.tools.ragged_tma (2025).
    """
    rows, N = y.shape
    pitch = y.stride(0)
    layout = gl.NVMMASharedLayout.get_default_for([1, 1, ROWS.value, cols], gl.float16)  # bf16's is the same
    shape = [0x7FFF0000, 0x7FFF0000, RAGGED.value, N]
    return TensorDescriptor(y, shape, [2**34 - pitch, pitch, pitch, 1], [1, 1, ROWS.value, cols], layout)


def addressable(tensor: torch.Tensor) -> bool:
    """Whether TMA can address a tensor of 16-bit elements as it lies: its last stride 1, all rows on 16 bytes."""
    *outer, last = tensor.stride()
    return (
        tensor.element_size() == 2
        and last == 1
        and tensor.data_ptr() % 16 == 0
        and all(stride % 8 == 0 < stride for stride in outer)
    )


def takes(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether it runs on the device of x [rows, K], weight [groups, K, N] and y, and TMA can address them as they lie,
    the weight with either of its last dimensions contiguous."""
    if x.device.type != "cuda" or torch.cuda.get_device_capability(x.device) != (9, 0):
        return False
    return addressable(x) and addressable(y) and (addressable(weight) or addressable(weight.mT))


def launch(x, weight, offsets, y, swiglu: bool = False, plan: Plan | None = None, rows: torch.Tensor | None = None):
    """y [rows, N] = x @ weight by groups of what `grouped_matmul` has checked and `takes` takes, none of it empty."""
    groups, K, _ = weight.shape
    slots, N = y.shape
    sms = device_of(y.device).sms
    plan = plan or PLANS[0]
    transposed = not addressable(weight)
    block_m, block_n = plan.warpgroups * ROWS.value, plan.cols // 2 if swiglu else plan.cols
    if transposed:
        weight_tiles = _describe(weight.mT, [1, block_n, BLOCK_K.value])
    else:
        weight_tiles = _describe(weight, [1, BLOCK_K.value, block_n])
    most = (slots // block_m + min(slots, groups)) * triton.cdiv(N, block_n)  # tiles
    grouped_hopper_kernel[(min(sms, most),)](
        _describe(x, [block_m, BLOCK_K.value]) if rows is None else x,
        weight_tiles,
        describe_ragged(y, min(plan.out_cols, plan.cols // 2)),
        torch.zeros(1, dtype=torch.int32, device=y.device) if plan.queue else None,
        offsets,
        rows,
        K,
        N,
        groups,
        x.stride(0) // 8,
        WARPGROUPS=plan.warpgroups,
        BLOCK_N=block_n,
        SLOTS=plan.slots,
        GROUP_M=plan.group_m,
        REGISTERS=plan.registers,
        TRANSPOSED=transposed,
        SWIGLU=swiglu,
        OUT_TILES=plan.out_tiles,
        num_warps=4,
    )
