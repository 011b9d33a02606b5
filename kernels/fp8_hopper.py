"""FP8 products for Hopper, in Gluon: the warps of a program have roles, so that sums are promoted under products.

References, minimum traffic and the plain kernels are scaled_matmul.py's and block_scaled_matmul.py's; on a Hopper GPU
both run this. One warp loads: its TMA copies fill a ring of slots, each with BLOCK_K columns of x and of weight. Two or
three warpgroups (four warps, 64 rows of y each) multiply. Fast, the products of a warpgroup follow each other into the
sum that the matrix unit keeps. Promoted, the product of BLOCK_K columns starts from zero and is then added, in fp32 and
times its scales, to the sum in registers: under the next product of another warpgroup. A program walks over many tiles,
so that the loads of the next run under the store of this one.

Promotion is DeepSeek-V3's (2024), the roles are those of its DeepGEMM (2025). sm_90, no interpreter.
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
    store_wait,
    warpgroup_mma_wait,
)
from kernels.fp8_hopper_steps import BLOCK_K, ROWS, release, store_pieces, sum_fast, sum_promoted, sum_scaled, tile_at
from kernels.quantize_schemes import Quantized
from kernels.rows import device_of

BLOCK_SCALE_N = gl.constexpr(128)  # rows of weight that share a scale
LINE = 128  # bytes of a row of a tile in shared memory


@gluon.jit
def load(shared, sizes):
    """The warp that loads: for each tile, BLOCK_K columns of x and of weight after the other; with x's block scales."""
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
            mbarrier.wait(free.index(slot), item // SLOTS & 1 ^ 1)  # for every warpgroup to be done with it
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
    """A warpgroup that multiplies: its ROWS rows of each tile, from the wait for x and weight to the store of y."""
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
        total = gl.zeros([ROWS, BLOCK_N], gl.float32, layout)
        if BLOCK_SCALES:
            weight_scales = weight_scale + col // BLOCK_SCALE_N * steps
            total, item = sum_scaled(total, item, steps, shared, weight_scales, WARPGROUP)
        else:
            if PROMOTE:
                total, item = sum_promoted(total, item, steps, shared, WARPGROUP)
            else:
                total, item = sum_fast(total, item, steps, shared, WARPGROUP)
            x_row = gl.minimum(row + gl.arange(0, ROWS, gl.SliceLayout(1, layout)), M - 1)  # [ROWS]
            weight_row = gl.minimum(col + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout)), N - 1)  # [BLOCK_N]
            x_row_scale = gl.load(x_scale + x_row * x_step)
            weight_row_scale = gl.load(weight_scale + weight_row * weight_step)
            if not PROMOTE:
                total = warpgroup_mma_wait(0, deps=(total,))
                release(item - 1, shared)
            total = total * x_row_scale[:, None] * weight_row_scale[None, :]
        store_pieces(total, y, y_tiles.index(WARPGROUP), row, col)
    store_wait(0)


@gluon.jit(do_not_specialize=["M", "N", "K", "tiles", "x_step", "weight_step"])
def fp8_hopper_kernel(
    x,
    weight,
    y,
    x_scale,
    weight_scale,
    M,
    N,
    K,
    tiles,
    x_step,
    weight_step,
    PROMOTE: gl.constexpr,
    BLOCK_SCALES: gl.constexpr,
    WARPGROUPS: gl.constexpr,
    SLOTS: gl.constexpr,
    REGISTERS: gl.constexpr,
):
    """Descriptors: x [M, K] in tiles of ROWS, weight [N, K] in tiles of BLOCK_N rows, y [M, N] in tiles of ROWS.

    Scales: pointers to one for each row, or to one for all where the step is 0. With BLOCK_SCALES a descriptor of x's
    [K / BLOCK_K * x_step], those of all rows for the first block of K, then for the next, in tiles of ROWS; and a
    pointer to weight's [N / BLOCK_SCALE_N, K / BLOCK_K]. Divisions are rounded up.
    """
    x_ring = gl.allocate_shared_memory(x.dtype, [SLOTS * WARPGROUPS] + x.block_type.shape, x.layout)
    weight_ring = gl.allocate_shared_memory(x.dtype, [SLOTS] + weight.block_type.shape, weight.layout)
    y_tiles = gl.allocate_shared_memory(y.dtype, [WARPGROUPS] + y.block_type.shape, y.layout)
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)  # announced once
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
class Plan:
    """warpgroups: of 64 rows of a tile each. block_n: its columns. slots: of the ring. out_n: columns of y, of 16 bits,
    that go through shared memory at a time. registers: of a thread. weight: time of an element of y where every wave
    is full, in units of the table's first plan, as an H200 took it at 8192 x 8192 x 8192."""

    warpgroups: int
    block_n: int
    slots: int
    out_n: int
    registers: int
    weight: float

    def cost(self, M: int, N: int, sms: int) -> float:
        """Of a product: its waves of tiles, in columns of 64 elements."""
        tiles = triton.cdiv(M, self.warpgroups * ROWS.value) * triton.cdiv(N, self.block_n)
        return triton.cdiv(tiles, sms) * self.warpgroups * self.block_n * self.weight


FAST = (Plan(2, 256, 4, 128, 240, 1.0), Plan(2, 128, 5, 128, 240, 1.05))
PROMOTED = (Plan(3, 128, 4, 128, 160, 1.0), Plan(2, 128, 5, 128, 240, 1.1))


def _describe(matrix: torch.Tensor, rows: int, cols: int = LINE):
    """A descriptor of tiles of so many rows and columns."""
    layout = gl.NVMMASharedLayout(swizzle_byte_width=LINE, element_bitwidth=8 * matrix.element_size(), rank=2)
    return TensorDescriptor(matrix, list(matrix.shape), list(matrix.stride()), [rows, cols], layout)


def _describe_columns(scales: torch.Tensor):
    """(descriptor of x's scales [M, blocks], column by column, ROWS at a time; the pitch): a column begins on 16 bytes,
    as the coordinates of a copy have to."""
    rows, blocks = scales.shape
    pitch = triton.cdiv(rows, 4) * 4
    columns = scales.new_empty(blocks, pitch)
    columns[:, :rows] = scales.t()
    layout = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=1)
    return TensorDescriptor(columns.view(-1), [columns.numel()], [1], [ROWS.value], layout), pitch


def takes(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether it runs on the device, and TMA can address codes x and weight, and y, all contiguous, as they lie."""
    if x.device.type != "cuda" or torch.cuda.get_device_capability(x.device) != (9, 0):
        return False
    return all(m.shape[1] * m.element_size() % 16 == 0 and m.data_ptr() % 16 == 0 for m in (x, weight, y))


def launch(x: Quantized, weight: Quantized, y: torch.Tensor, promote: bool = True, plan: Plan | None = None):
    """y [M, N] = x @ weight.T of what `scaled_matmul` or `block_scaled_matmul` has checked, none of it empty; block
    scales are always promoted. Those of x are transposed, so that the 64 of a warpgroup lie together."""
    (M, N), K, sms = y.shape, weight.codes.shape[1], device_of(y.device).sms
    plan = plan or min(PROMOTED if promote else FAST, key=lambda plan: plan.cost(M, N, sms))
    block_scales = x.scheme.block[1] is not None
    if block_scales:
        x_scale, x_step = _describe_columns(x.scales)
        weight_step = 0
    else:
        x_scale = x.scales
        x_step, weight_step = (int(q.scheme.block[0] == 1) for q in (x, weight))
    tiles = triton.cdiv(M, plan.warpgroups * ROWS.value) * triton.cdiv(N, plan.block_n)
    fp8_hopper_kernel[(min(sms, tiles),)](
        _describe(x.codes, ROWS.value),
        _describe(weight.codes, plan.block_n),
        _describe(y, ROWS.value, plan.out_n * 2 // y.element_size()),
        x_scale,
        weight.scales,
        M,
        N,
        K,
        tiles,
        x_step,
        weight_step,
        PROMOTE=promote,
        BLOCK_SCALES=block_scales,
        WARPGROUPS=plan.warpgroups,
        SLOTS=plan.slots,
        REGISTERS=plan.registers,
        num_warps=4,
    )
