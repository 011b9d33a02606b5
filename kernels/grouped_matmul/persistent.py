"""Grouped matmul of many rows per group, 16 bits, with tiles loaded by TMA.

forward.py has the reference, the minimum traffic, the public function and the plain kernel. As in
kernels/matmul/persistent.py, TMA copies tiles to shared memory, and the loops over tiles and over K are flattened, so
the loads of a program's next tile start while it stores this one, even if the two belong to different groups. A tile of
x may reach beyond the end of its group. That does no harm, because those rows are not stored: the descriptor of y ends
at whichever row the coordinates of an access choose (`ragged`). triton.tools.ragged_tma (2025) does the same.

No descriptor covers rows that are still to be gathered. They are loaded row by row, and only the weight by TMA. With
two accumulators per tile, or with rows to gather, the flattened loop was slower on an H200 than a nested one.
"""

from dataclasses import dataclass

import torch

from instruments.backend import next_power_of_2, tl, triton
from instruments.launcher import Launch
from kernels.matmul.tile_order import ragged_ends, ragged_tile
from kernels.shared.device import DescriptorPlan, has_descriptors
from kernels.shared.tiles import LOG2E

#: Rows of a ragged descriptor: so many that no coordinate overflows, and more than any y has.
RAGGED = tl.constexpr(1 << 30)
SHARED = 230_000  # bytes of shared memory that the pipeline stages and the output tile take at most


@triton.jit
def load_weight(weight, group, k, col, TRANSPOSED: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """The tile [BLOCK_K, BLOCK_N] of a group's weight at (k, col); zeros outside."""
    if TRANSPOSED:
        return weight.load([group, col, k]).reshape(BLOCK_N, BLOCK_K).T
    else:
        return weight.load([group, k, col]).reshape(BLOCK_K, BLOCK_N)


@triton.jit
def load_ragged(matrix, end, row, col, ROWS: tl.constexpr, COLS: tl.constexpr):
    """The tile [ROWS, COLS] at (row, col) of a matrix described by `ragged`; zeros from row `end` on."""
    return matrix.load([RAGGED, end, RAGGED - end + row, col]).reshape(ROWS, COLS)


@triton.jit
def store_ragged(y, tile, end, row, col):
    """Store a tile [BLOCK_M, BLOCK_N] to y at (row, col), without its rows from `end` on."""
    y.store([RAGGED, end, RAGGED - end + row, col], tile.to(y.dtype).reshape(1, 1, tile.shape[0], tile.shape[1]))


@triton.jit
def grouped_matmul_persistent_kernel(
    x, weight, offsets_ptr, rows_ptr, y,  # tensors
    groups, K, N, x_row_stride,
    TRANSPOSED: tl.constexpr, SWIGLU: tl.constexpr, EVEN: tl.constexpr, FLATTEN: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Descriptors: x [slots, K], or a pointer to [tokens, K] with rows [slots]; weight [groups, K, N], or [groups, N,
    K] if TRANSPOSED, twice as many columns with SWIGLU; y [slots, N], ragged. offsets [groups + 1]. EVEN: K is a
    multiple of the tile."""
    ends = ragged_ends(offsets_ptr, groups, N, BLOCK_M, BLOCK_N, BLOCK_E)
    for tile in tl.range(tl.program_id(0), tl.max(ends), tl.num_programs(0), flatten=FLATTEN):
        group, end, row, col = ragged_tile(tile, ends, offsets_ptr, N, BLOCK_M, BLOCK_N, GROUP_M)
        if rows_ptr is not None:
            slot = row + tl.arange(0, BLOCK_M)  # [BLOCK_M]
            token = tl.load(rows_ptr + slot, mask=slot < end, other=0).to(tl.int64)
            strip = tl.arange(0, BLOCK_K)[None, :]  # [1, BLOCK_K]
            row_mask = (slot < end)[:, None]
            x_ptrs = x + token[:, None] * x_row_stride + strip  # [BLOCK_M, BLOCK_K]
        acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        up_acc = acc
        for k in tl.range(0, K, BLOCK_K):
            if rows_ptr is None:
                x_tile = x.load([row, k])  # [BLOCK_M, BLOCK_K]
            else:
                x_tile = tl.load(x_ptrs + k, mask=row_mask if EVEN else row_mask & (strip < K - k), other=0.0)
            acc = tl.dot(x_tile, load_weight(weight, group, k, col, TRANSPOSED, BLOCK_N, BLOCK_K), acc)
            if SWIGLU:
                up = load_weight(weight, group, k, N + col, TRANSPOSED, BLOCK_N, BLOCK_K)
                up_acc = tl.dot(x_tile, up, up_acc)
        if SWIGLU:
            acc = acc / (1 + tl.exp2(acc * -LOG2E)) * up_acc
        # stored in two halves, which need half the shared memory
        left, right = tl.split(tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
        store_ragged(y, left, end, row, col)
        store_ragged(y, right, end, row, col + BLOCK_N // 2)


def describable(tensor: torch.Tensor) -> bool:
    """Whether a tensor descriptor can address these 16-bit elements: last stride 1, all else aligned to 16 bytes."""
    *outer, last = tensor.stride()
    return last == 1 and tensor.data_ptr() % 16 == 0 and all(stride > 0 and stride % 8 == 0 for stride in outer)


def takes(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether the weight's device has descriptors and they can address the operands, whose rows are not gathered."""
    if x.element_size() != 2 or not has_descriptors(weight.device, SHARED):
        return False
    return describable(x) and describable(y) and (describable(weight) or describable(weight.mT))


def ragged(y: torch.Tensor) -> tuple[list, list]:
    """(shape, strides) of a descriptor of y [rows, N] that ends at a row which each access chooses.

    y[row, column] is at (RAGGED, end, RAGGED - end + row, column). From row `end` on, the third index is out of bounds.
    The strides of the first two indices undo the offset of the third, modulo the 2^64 of an address.
    """
    extent, pitch = 0x7FFF0000, y.stride(0)
    return [extent, extent, RAGGED.value, y.shape[1]], [2**34 - pitch, pitch, pitch, 1]


@dataclass(frozen=True)
class PersistentCall:
    """The launch of a plan. Descriptors: of x, None where rows are gathered; of the weight, which may be read as its
    .mT; of y."""

    x: DescriptorPlan | None
    weight: DescriptorPlan
    y: DescriptorPlan
    kernel: Launch

    def __call__(self, x, weight, offsets, rows, y):
        self.kernel(self.x(x) if self.x else x, self.weight(weight), offsets, rows, self.y(y))


def plan_call(x, weight, gathered: bool, y, swiglu: bool, plan) -> PersistentCall:
    """The launch of `grouped_matmul` for tensors like these, which it has checked; `takes` accepts them.

    Args:
        gathered: whether x has a row for each token, not for each slot.
        plan: a GroupedPlan.
    """
    groups, K, N = weight.shape[0], x.shape[1], y.shape[1]
    m, n, k = plan.tile["BLOCK_M"], plan.tile["BLOCK_N"], plan.tile["BLOCK_K"]
    transposed = not describable(weight)
    matrix, box = (weight.mT, [1, n, k]) if transposed else (weight, [1, k, n])
    kernel = Launch(
        grouped_matmul_persistent_kernel, (plan.programs,),
        groups, K, N, x.stride(0),
        TRANSPOSED=transposed, SWIGLU=swiglu, EVEN=K % k == 0, FLATTEN=not gathered and not swiglu,
        GROUP_M=plan.group_m, BLOCK_E=next_power_of_2(groups), **plan.tile,
    )  # fmt: skip
    return PersistentCall(
        None if gathered else DescriptorPlan(x.shape, x.stride(), [m, k]),
        DescriptorPlan(matrix.shape, matrix.stride(), box),
        DescriptorPlan(*ragged(y), [1, 1, m, n // 2]),
        kernel,
    )
