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
    """The warp that loads: for each tile, BLOCK_K columns of x and of weight after the other."""
    x, weight, y, x_ring, weight_ring, y_tiles, full, free = shared
    M, N, K, tiles = sizes
    SLOTS: gl.constexpr = full.shape[0]
    WARPGROUPS: gl.constexpr = y_tiles.shape[0]
    BLOCK_N: gl.constexpr = weight_ring.shape[1]
    item = 0
    for number in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = tile_at(number, sizes, WARPGROUPS * ROWS, BLOCK_N)
        for k in range(0, K, BLOCK_K):
            slot = item % SLOTS
            mbarrier.wait(free.index(slot), item // SLOTS & 1 ^ 1)  # for every warpgroup to be done with it
            mbarrier.expect(full.index(slot), WARPGROUPS * x.block_type.nbytes + weight.block_type.nbytes)
            for part in gl.static_range(WARPGROUPS):
                load_tile(x, [row + part * ROWS, k], full.index(slot), x_ring.index(slot * WARPGROUPS + part))
            load_tile(weight, [col, k], full.index(slot), weight_ring.index(slot))
            item += 1


@gluon.jit
def multiply(common, WARPGROUP: gl.constexpr, PROMOTE: gl.constexpr, BLOCK_SCALES: gl.constexpr):
    """A warpgroup that multiplies: its ROWS rows of each tile, from the wait for x and weight to the store of y."""
    shared, sizes, scales = common
    x, weight, y, x_ring, weight_ring, y_tiles, full, free = shared
    M, N, K, tiles = sizes
    x_scale_ptr, weight_scale_ptr, x_step, weight_step = scales
    WARPGROUPS: gl.constexpr = y_tiles.shape[0]
    BLOCK_N: gl.constexpr = weight_ring.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 32])
    steps = gl.cdiv(K, BLOCK_K)
    item = 0
    for number in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = tile_at(number, sizes, WARPGROUPS * ROWS, BLOCK_N)
        row += WARPGROUP * ROWS
        x_row = gl.minimum(row + gl.arange(0, ROWS, gl.SliceLayout(1, layout)), M - 1)  # [ROWS]
        total = gl.zeros([ROWS, BLOCK_N], gl.float32, layout)
        if BLOCK_SCALES:
            weight_scales = weight_scale_ptr + col // BLOCK_SCALE_N * weight_step
            total, item = sum_scaled(total, item, steps, shared, x_scale_ptr + x_row, x_step, weight_scales, WARPGROUP)
        else:
            if PROMOTE:
                total, item = sum_promoted(total, item, steps, shared, WARPGROUP)
            else:
                total, item = sum_fast(total, item, steps, shared, WARPGROUP)
            weight_row = gl.minimum(col + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout)), N - 1)  # [BLOCK_N]
            x_scale = gl.load(x_scale_ptr + x_row * x_step)
            weight_scale = gl.load(weight_scale_ptr + weight_row * weight_step)
            if not PROMOTE:
                total = warpgroup_mma_wait(0, deps=(total,))
                release(item - 1, shared)
            total = total * x_scale[:, None] * weight_scale[None, :]
        store_pieces(total, y, y_tiles.index(WARPGROUP), row, col)
    store_wait(0)


@gluon.jit(do_not_specialize=["M", "N", "K", "tiles", "x_step", "weight_step"])
def fp8_hopper_kernel(
    x,
    weight,
    y,
    x_scale_ptr,
    weight_scale_ptr,
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

    Scales: one for each row, or for all where its step is 0; or BLOCK_SCALES: x_scale [K / BLOCK_K, M], x_step apart,
    and weight_scale [N / BLOCK_SCALE_N, K / BLOCK_K], weight_step apart, divisions rounded up.
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
    shared = x, weight, y, x_ring, weight_ring, y_tiles, full, free
    sizes = M, N, K, tiles
    common = shared, sizes, (x_scale_ptr, weight_scale_ptr, x_step, weight_step)
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
    that go through shared memory at a time. registers: of a thread. weight: time of an element of y, of the first plan
    where it is alone."""

    warpgroups: int
    block_n: int
    slots: int
    out_n: int
    registers: int
    weight: float

    def cost(self, M: int, N: int, sms: int) -> float:
        """Of a product: waves of tiles."""
        tiles = triton.cdiv(M, self.warpgroups * ROWS.value) * triton.cdiv(N, self.block_n)
        return triton.cdiv(tiles, sms) * self.warpgroups * self.block_n * self.weight


FAST = (Plan(2, 256, 4, 128, 240, 1.0), Plan(2, 128, 6, 64, 240, 1.03))
PROMOTED = (Plan(3, 128, 4, 128, 160, 1.0), Plan(2, 128, 6, 64, 240, 1.1))


def _describe(matrix: torch.Tensor, rows: int, cols: int = LINE):
    """A descriptor of tiles of so many rows and columns."""
    layout = gl.NVMMASharedLayout(swizzle_byte_width=LINE, element_bitwidth=8 * matrix.element_size(), rank=2)
    return TensorDescriptor(matrix, list(matrix.shape), list(matrix.stride()), [rows, cols], layout)


def takes(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether it runs on the device, and TMA can address codes x and weight, and y, all contiguous, as they lie."""
    if x.device.type != "cuda" or torch.cuda.get_device_capability(x.device) != (9, 0):
        return False
    return all(m.shape[1] * m.element_size() % 16 == 0 and m.data_ptr() % 16 == 0 for m in (x, weight, y))


def launch(x: Quantized, weight: Quantized, y: torch.Tensor, promote: bool = True, plan: Plan | None = None):
    """y [M, N] = x @ weight.T of what `scaled_matmul` or `block_scaled_matmul` has checked, none of it empty; block
    scales are always promoted. Those of x are transposed: the 64 rows of a warpgroup's lie together then."""
    (M, N), K, sms = y.shape, weight.codes.shape[1], device_of(y.device).sms
    plan = plan or min(PROMOTED if promote else FAST, key=lambda plan: plan.cost(M, N, sms))
    block_scales = x.scheme.block[1] is not None
    if block_scales:
        scales, steps = (x.scales.t().contiguous(), weight.scales), (M, weight.scales.shape[1])
    else:
        scales, steps = (x.scales, weight.scales), [int(q.scheme.block[0] == 1) for q in (x, weight)]
    tiles = triton.cdiv(M, plan.warpgroups * ROWS.value) * triton.cdiv(N, plan.block_n)
    fp8_hopper_kernel[(min(sms, tiles),)](
        _describe(x.codes, ROWS.value),
        _describe(weight.codes, plan.block_n),
        _describe(y, ROWS.value, plan.out_n * 2 // y.element_size()),
        *scales,
        M,
        N,
        K,
        tiles,
        *steps,
        PROMOTE=promote,
        BLOCK_SCALES=block_scales,
        WARPGROUPS=plan.warpgroups,
        SLOTS=plan.slots,
        REGISTERS=plan.registers,
        num_warps=4,
    )
