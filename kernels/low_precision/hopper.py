"""FP8 matmuls for Hopper, in Gluon: warp specialization, with sums promoted while other warpgroups multiply.

References, minimum traffic and the plain kernels are in scaled.py and block_scaled.py; on a Hopper GPU both run this
kernel. One producer warp loads: its TMA copies fill a ring of SLOTS slots in shared memory, each with BLOCK_K columns
of x (ROWS rows for each warpgroup) and of weight (a row for each column of the tile), and with x's scales where each
block has one. Two or three consumer warpgroups (four warps, 64 rows of y each) multiply. Fast: the tensor core
accumulates all matmuls of a tile. Promoted: the matmul of BLOCK_K columns starts from zero, and its result, times its
scales, is added to an fp32 accumulator in registers while another warpgroup's matmul runs. The kernel is persistent:
programs loop over tiles, so that the loads of the next tile overlap with the store of this one.

Item n is the n-th slot that a program fills: slot n % SLOTS. Each slot has two mbarriers: `full`, its copies have
arrived; `free`, all warpgroups are done with it. The tuple `shared` holds x, weight, y, their tiles, the barriers, and
x's block scales and their tiles.

Promotion is DeepSeek-V3's (2024), the warp specialization that of its DeepGEMM (2025). sm_90, no interpreter.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil

import torch

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
from kernels.quantization.schemes import Quantized
from kernels.shared.device import DescriptorPlan, device_of, is_hopper

WARPGROUP_ROWS = 64  # rows of a warpgroup, which one instruction multiplies
SWIZZLE = 128  # bytes of a row of a tile in shared memory
ROWS = gl.constexpr(WARPGROUP_ROWS)
BLOCK_K = gl.constexpr(128)  # columns of a slot, and of a block of scales
BLOCK_SCALE_N = gl.constexpr(128)  # rows of weight that share a scale
GROUP_M = gl.constexpr(8)  # rows of tiles in a group of the tile order


@gluon.jit
def tile_at(number, sizes, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    """(row, column) at which a tile begins, in the grouped order of kernels/matmul/tile_order.py."""
    M, N, K, tiles, pitch = sizes
    tiles_n = gl.cdiv(N, BLOCK_N)
    first = number // (GROUP_M * tiles_n) * GROUP_M
    height = gl.minimum(gl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = number - first * tiles_n
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@gluon.jit
def start_matmul(acc, item, shared, WARPGROUP: gl.constexpr, ADD: gl.constexpr):
    """Wait for a slot and start the matmul of its tiles; ADD accumulates into acc, else acc is overwritten."""
    x, weight, y, x_ring, weight_ring, y_tiles, full, free, x_scales, x_scale_ring = shared
    slot = item % full.shape[0]
    x_tile = x_ring.index(slot * y_tiles.shape[0] + WARPGROUP)
    mbarrier.wait(full.index(slot), item // full.shape[0] & 1)
    return warpgroup_mma(x_tile, weight_ring.index(slot).permute((1, 0)), acc, use_acc=ADD, is_async=True)


@gluon.jit
def release(item, shared, pred=True):
    """Tell the producer warp that this warpgroup is done with the slot of an item."""
    x, weight, y, x_ring, weight_ring, y_tiles, full, free, x_scales, x_scale_ring = shared
    mbarrier.arrive(free.index(item % full.shape[0]), pred=pred)


@gluon.jit
def accumulate_fast(acc, item, steps, shared, WARPGROUP: gl.constexpr):
    """Accumulate the matmuls of `steps` slots from `item` on in the tensor core; the last one is still running."""
    for step in range(steps):
        acc = start_matmul(acc, item, shared, WARPGROUP, ADD=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))  # for all but the last
        release(item - 1, shared, step > 0)
        item += 1
    return acc, item


@gluon.jit
def accumulate_promoted(acc, item, steps, shared, WARPGROUP: gl.constexpr):
    """Add the matmuls of `steps` slots from `item` on to acc, each in registers."""
    for _ in range(steps):
        part = start_matmul(acc, item, shared, WARPGROUP, ADD=False)
        part = warpgroup_mma_wait(0, deps=(part,))
        release(item, shared)
        acc += part
        item += 1
    return acc, item


@gluon.jit
def accumulate_scaled(acc, item, steps, shared, weight_scales, WARPGROUP: gl.constexpr):
    """The same, each matmul times its block scales: x's [ROWS] are in the slot, weight_scales points to weight's."""
    x, weight, y, x_ring, weight_ring, y_tiles, full, free, x_scales, x_scale_ring = shared
    rows: gl.constexpr = gl.SliceLayout(1, acc.type.layout)
    weight_scale = gl.load(weight_scales)
    for step in range(steps):
        part = start_matmul(acc, item, shared, WARPGROUP, ADD=False)
        x_scale = x_scale_ring.index(item % full.shape[0] * y_tiles.shape[0] + WARPGROUP).load(rows)
        next_weight_scale = gl.load(weight_scales + gl.minimum(step + 1, steps - 1))  # loads during this matmul
        part = warpgroup_mma_wait(0, deps=(part,))
        release(item, shared)
        acc += part * (x_scale * weight_scale)[:, None]
        weight_scale = next_weight_scale
        item += 1
    return acc, item


@gluon.jit
def store_acc(acc, y, y_tile, row, col):
    """Store acc [ROWS, COLS] to y at (row, col) by way of y_tile, whose columns divide COLS by a power of two."""
    COLS: gl.constexpr = acc.shape[1]
    if COLS > y_tile.shape[1]:
        left, right = gl.split(gl.permute(gl.reshape(acc, [ROWS, 2, COLS // 2]), (0, 2, 1)))
        store_acc(left, y, y_tile, row, col)
        store_acc(right, y, y_tile, row, col + COLS // 2)
    else:
        store_wait(0)  # until the last store has read y_tile
        y_tile.store(acc.to(y.dtype))
        fence_async_shared()  # TMA sees what threads wrote only behind a fence
        store_tile(y, [row, col], y_tile)


@gluon.jit
def load(shared, sizes):
    """The producer warp: for each tile, the slots of x and weight along K, with x's block scales if it has them."""
    x, weight, y, x_ring, weight_ring, y_tiles, full, free, x_scales, x_scale_ring = shared
    M, N, K, tiles, pitch = sizes
    SLOTS: gl.constexpr = full.shape[0]
    WARPGROUPS: gl.constexpr = y_tiles.shape[0]
    BLOCK_N: gl.constexpr = weight_ring.shape[1]
    codes_bytes: gl.constexpr = WARPGROUPS * x.block_type.nbytes + weight.block_type.nbytes
    item = 0
    for number in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = tile_at(number, sizes, WARPGROUPS * ROWS, BLOCK_N)
        for step in range(gl.cdiv(K, BLOCK_K)):
            slot = item % SLOTS
            mbarrier.wait(free.index(slot), item // SLOTS & 1 ^ 1)  # until every warpgroup is done with it
            if x_scales is None:
                mbarrier.expect(full.index(slot), codes_bytes)
            else:
                mbarrier.expect(full.index(slot), codes_bytes + WARPGROUPS * x_scales.block_type.nbytes)
                for part in gl.static_range(WARPGROUPS):
                    tile = x_scale_ring.index(slot * WARPGROUPS + part)
                    load_tile(x_scales, [step * pitch + row + part * ROWS], full.index(slot), tile)
            for part in gl.static_range(WARPGROUPS):
                tile = x_ring.index(slot * WARPGROUPS + part)
                load_tile(x, [row + part * ROWS, step * BLOCK_K], full.index(slot), tile)
            load_tile(weight, [col, step * BLOCK_K], full.index(slot), weight_ring.index(slot))
            item += 1


@gluon.jit
def multiply(common, WARPGROUP: gl.constexpr, PROMOTE: gl.constexpr, BLOCK_SCALES: gl.constexpr):
    """A consumer warpgroup: its ROWS rows of each tile, from the wait for x and weight to the store of y."""
    shared, sizes, scales = common
    x, weight, y, x_ring, weight_ring, y_tiles, full, free, x_scales, x_scale_ring = shared
    M, N, K, tiles, pitch = sizes
    x_scale, weight_scale, x_step, weight_step = scales
    WARPGROUPS: gl.constexpr = y_tiles.shape[0]
    BLOCK_N: gl.constexpr = weight_ring.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 32])
    steps = gl.cdiv(K, BLOCK_K)
    item = 0
    for number in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = tile_at(number, sizes, WARPGROUPS * ROWS, BLOCK_N)
        row += WARPGROUP * ROWS
        acc = gl.zeros([ROWS, BLOCK_N], gl.float32, layout)
        if BLOCK_SCALES:
            weight_scales = weight_scale + col // BLOCK_SCALE_N * steps
            acc, item = accumulate_scaled(acc, item, steps, shared, weight_scales, WARPGROUP)
        else:
            if PROMOTE:
                acc, item = accumulate_promoted(acc, item, steps, shared, WARPGROUP)
            else:
                acc, item = accumulate_fast(acc, item, steps, shared, WARPGROUP)
            x_row = gl.minimum(row + gl.arange(0, ROWS, gl.SliceLayout(1, layout)), M - 1)  # [ROWS]
            weight_row = gl.minimum(col + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout)), N - 1)  # [BLOCK_N]
            x_row_scale = gl.load(x_scale + x_row * x_step)
            weight_row_scale = gl.load(weight_scale + weight_row * weight_step)
            if not PROMOTE:
                acc = warpgroup_mma_wait(0, deps=(acc,))
                release(item - 1, shared)
            acc = acc * x_row_scale[:, None] * weight_row_scale[None, :]
        store_acc(acc, y, y_tiles.index(WARPGROUP), row, col)
    store_wait(0)


@gluon.jit(do_not_specialize=["M", "N", "K", "tiles", "x_step", "weight_step"])
def fp8_hopper_kernel(
    x, weight, y, x_scale, weight_scale,
    M, N, K, tiles, x_step, weight_step,
    PROMOTE: gl.constexpr, BLOCK_SCALES: gl.constexpr,
    WARPGROUPS: gl.constexpr, SLOTS: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Descriptors: x [M, K] in tiles of ROWS, weight [N, K] in tiles of BLOCK_N rows, y [M, N] in tiles of ROWS.

    Scales: pointers to one per row, or to one for all rows where the step is 0. With BLOCK_SCALES, x_scale is a
    descriptor of x's scales [K / BLOCK_K * x_step], in tiles of ROWS: those of all rows for the first block of K, then
    for the next; and weight_scale points to weight's [N / BLOCK_SCALE_N, K / BLOCK_K]. Divisions are rounded up.
    """
    x_ring = gl.allocate_shared_memory(x.dtype, [SLOTS * WARPGROUPS] + x.block_type.shape, x.layout)
    weight_ring = gl.allocate_shared_memory(x.dtype, [SLOTS] + weight.block_type.shape, weight.layout)
    y_tiles = gl.allocate_shared_memory(y.dtype, [WARPGROUPS] + y.block_type.shape, y.layout)
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)  # the producer announces the bytes once
        mbarrier.init(free.index(slot), count=WARPGROUPS)
    fence_async_shared()
    if BLOCK_SCALES:
        ring = gl.allocate_shared_memory(gl.float32, [SLOTS * WARPGROUPS] + x_scale.block_type.shape, x_scale.layout)
        x_scales, x_scale_ring = x_scale, ring
    else:
        x_scales, x_scale_ring = None, None
    shared = x, weight, y, x_ring, weight_ring, y_tiles, full, free, x_scales, x_scale_ring
    sizes = M, N, K, tiles, x_step
    common = shared, sizes, (x_scale, weight_scale, x_step, weight_step)
    if WARPGROUPS == 2:
        gl.warp_specialize(
            [
                (multiply, (common, 0, PROMOTE, BLOCK_SCALES)),
                (multiply, (common, 1, PROMOTE, BLOCK_SCALES)),
                (load, (shared, sizes)),
            ],
            [4, 1],
            [REGISTERS, 24],
        )
    else:
        gl.warp_specialize(
            [
                (multiply, (common, 0, PROMOTE, BLOCK_SCALES)),
                (multiply, (common, 1, PROMOTE, BLOCK_SCALES)),
                (multiply, (common, 2, PROMOTE, BLOCK_SCALES)),
                (load, (shared, sizes)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, 24],
        )


@dataclass(frozen=True)
class Fp8HopperPlan:
    """Tile and warps of a launch.

    Args:
        warpgroups: consumer warpgroups, each with 64 rows of a tile.
        block_n: columns of a tile.
        slots: of the ring.
        out_n: 16-bit columns of y that pass through shared memory at a time.
        registers: per consumer thread.
        relative_time: time per element of y where every wave is full, relative to the first plan of its table, measured
            on an H200 at 8192 x 8192 x 8192.
    """

    warpgroups: int
    block_n: int
    slots: int
    out_n: int
    registers: int
    relative_time: float

    def tiles(self, M: int, N: int) -> int:
        """Tiles of y [M, N]."""
        return ceil(M / (self.warpgroups * WARPGROUP_ROWS)) * ceil(N / self.block_n)

    def cost(self, M: int, N: int, sms: int) -> float:
        """Relative time of a matmul: its waves of tiles, in columns of 64 elements."""
        return ceil(self.tiles(M, N) / sms) * self.warpgroups * self.block_n * self.relative_time


FAST = (Fp8HopperPlan(2, 256, 4, 128, 240, 1.0), Fp8HopperPlan(2, 128, 5, 128, 240, 1.05))
PROMOTED = (Fp8HopperPlan(3, 128, 4, 128, 160, 1.0), Fp8HopperPlan(2, 128, 5, 128, 240, 1.1))


@cache
def choose_plan(M: int, N: int, sms: int, promote: bool) -> Fp8HopperPlan:
    """The plan of the lowest cost."""
    return min(PROMOTED if promote else FAST, key=lambda plan: plan.cost(M, N, sms))


@cache
def _layout(swizzle: int, bits: int, rank: int):
    """A layout in shared memory, cached: each construction unwraps six constexprs."""
    return gl.NVMMASharedLayout(swizzle_byte_width=swizzle, element_bitwidth=bits, rank=rank)


def _tiles(matrix: torch.Tensor, rows: int, cols: int = SWIZZLE) -> DescriptorPlan:
    """Of descriptors of contiguous matrices like this one, in tiles [rows, cols]."""
    layout = _layout(SWIZZLE, 8 * matrix.element_size(), 2)
    return DescriptorPlan(matrix.shape, (matrix.shape[1], 1), [rows, cols], layout)


def _pitch(rows: int) -> int:
    """Elements from column to column of `_columns`."""
    return -(-rows // 4) * 4


def _columns(scales: torch.Tensor) -> torch.Tensor:
    """x's scales [M, blocks], transposed and flat: a column starts at a multiple of 16 bytes, as TMA requires."""
    rows, blocks = scales.shape
    columns = scales.new_empty(blocks, _pitch(rows))
    columns[:, :rows] = scales.t()
    return columns.view(-1)


def takes(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether the device is a Hopper GPU and TMA can address codes x and weight, and y, all contiguous."""
    if not is_hopper(x.device):
        return False
    return all(m.shape[1] * m.element_size() % 16 == 0 and m.data_ptr() % 16 == 0 for m in (x, weight, y))


@dataclass(frozen=True)
class Fp8Call:
    """A call's plan. x, weight, y: of descriptors of codes and of y. columns: of the descriptor of x's block scales,
    which are transposed first, so that the 64 of a warpgroup are adjacent; None for other scales."""

    x: DescriptorPlan
    weight: DescriptorPlan
    y: DescriptorPlan
    columns: DescriptorPlan | None
    kernel: Launch

    def __call__(self, x: Quantized, weight: Quantized, y: torch.Tensor):
        """y = x @ weight.T."""
        scales = self.columns(_columns(x.scales)) if self.columns else x.scales
        self.kernel(self.x(x.codes), self.weight(weight.codes), self.y(y), scales, weight.scales)


def plan_call(
    x: Quantized, weight: Quantized, y: torch.Tensor, promote: bool = True, plan: Fp8HopperPlan | None = None
) -> Fp8Call:
    """The plan for arguments like these, none of them empty. Block scales are always promoted.

    Args:
        y: [M, N]; of its metadata only shape and dtype matter.
    """
    (M, N), K, sms = y.shape, weight.codes.shape[1], device_of(weight.codes.device).sms
    plan = plan or choose_plan(M, N, sms, promote)
    block_scales, columns = x.scheme.block[1] is not None, None
    x_step, weight_step = (int(q.scheme.block[0] == 1) for q in (x, weight))
    if block_scales:
        x_step, weight_step = _pitch(M), 0
        columns = DescriptorPlan([x.scales.shape[1] * x_step], [1], [WARPGROUP_ROWS], _layout(0, 32, 1))
    tiles = plan.tiles(M, N)
    kernel = Launch(
        fp8_hopper_kernel, (min(sms, tiles),),
        M, N, K, tiles, x_step, weight_step,
        PROMOTE=promote, BLOCK_SCALES=block_scales,
        WARPGROUPS=plan.warpgroups, SLOTS=plan.slots, REGISTERS=plan.registers, num_warps=4,
    )  # fmt: skip
    return Fp8Call(
        _tiles(x.codes, WARPGROUP_ROWS),
        _tiles(weight.codes, plan.block_n),
        _tiles(y, WARPGROUP_ROWS, plan.out_n * 2 // y.element_size()),
        columns,
        kernel,
    )


def launch(x: Quantized, weight: Quantized, y: torch.Tensor, promote: bool = True, plan: Fp8HopperPlan | None = None):
    """y = x @ weight.T by a plan that is not kept."""
    plan_call(x, weight, y, promote, plan)(x, weight, y)
