"""Grouped products of many rows, 16 bits, by tensor descriptors.

Reference, minimum traffic, public function and the plain kernel are grouped_matmul.py's. As in matmul_persistent.py,
the hardware copies tiles to shared memory, and the loop over tiles and K is flattened, so that the loads of a program's
next tile start under the store of this one, of whatever groups the two are. A tile of x may reach over the end of its
group: what it reads there does no harm, for these rows of the product are not stored. They are cut off by a descriptor
of y whose rows end wherever its coordinates say (`ragged`), that of triton.tools.ragged_tma (2025), spelled out.

Rows that are still to be gathered cannot be described: they are loaded row by row, the weight alone by descriptor. With
two sums to a tile, or rows to gather, the flattened loop was slower on an H200 than one in the other.
"""

from functools import cache

import torch

from instruments.backend import tl, triton
from kernels.matmul_order import ragged_ends, ragged_tile
from kernels.tiles import LOG2E

#: Rows that a ragged descriptor has: so many that no coordinate overflows, and none of y's is beyond.
RAGGED = tl.constexpr(1 << 30)
SHARED = 230_000  # bytes of shared memory that the stages and the tile that is stored take at most


@triton.jit
def weight_tile(weight, group, k, col, TRANSPOSED: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """[BLOCK_K, BLOCK_N] of a group's matrix, at (k, col); what lies outside is zero."""
    if TRANSPOSED:
        return weight.load([group, col, k]).reshape(BLOCK_N, BLOCK_K).T
    else:
        return weight.load([group, k, col]).reshape(BLOCK_K, BLOCK_N)


@triton.jit
def load_ragged(matrix, end, row, col, ROWS: tl.constexpr, COLS: tl.constexpr):
    """The tile [ROWS, COLS] at (row, col) of a matrix that `ragged` describes, but zeros for its rows from `end` on."""
    return matrix.load([RAGGED, end, RAGGED - end + row, col]).reshape(ROWS, COLS)


@triton.jit
def store_ragged(y, tile, end, row, col):
    """A tile [BLOCK_M, BLOCK_N] to y at (row, col), but for its rows from `end` on."""
    y.store([RAGGED, end, RAGGED - end + row, col], tile.to(y.dtype).reshape(1, 1, tile.shape[0], tile.shape[1]))


@triton.jit
def grouped_matmul_persistent_kernel(
    x,
    weight,
    offsets_ptr,
    rows_ptr,
    y,
    groups,
    K,
    N,
    x_row_stride,
    TRANSPOSED: tl.constexpr,
    SWIGLU: tl.constexpr,
    EVEN: tl.constexpr,
    FLATTEN: tl.constexpr,
    GROUP_M: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Descriptors: x [slots, K], or a pointer to [tokens, K] with rows [slots]; weight [groups, K, N], or TRANSPOSED
    [groups, N, K], twice as many columns with SWIGLU; y [slots, N], ragged. offsets [groups + 1]. EVEN: K ends with a
    tile."""
    ends = ragged_ends(offsets_ptr, groups, N, BLOCK_M, BLOCK_N, BLOCK_E)
    for tile in tl.range(tl.program_id(0), tl.max(ends), tl.num_programs(0), flatten=FLATTEN):
        group, end, row, col = ragged_tile(tile, ends, offsets_ptr, N, BLOCK_M, BLOCK_N, GROUP_M)
        if rows_ptr is not None:
            slot = row + tl.arange(0, BLOCK_M)  # [BLOCK_M]
            token = tl.load(rows_ptr + slot, mask=slot < end, other=0).to(tl.int64)
            strip = tl.arange(0, BLOCK_K)[None, :]  # [1, BLOCK_K]
            inside = (slot < end)[:, None]
            x_ptrs = x + token[:, None] * x_row_stride + strip  # [BLOCK_M, BLOCK_K]
        total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        up_total = total
        for k in tl.range(0, K, BLOCK_K):
            if rows_ptr is None:
                x_tile = x.load([row, k])  # [BLOCK_M, BLOCK_K]
            else:
                x_tile = tl.load(x_ptrs + k, mask=inside if EVEN else inside & (strip < K - k), other=0.0)
            total = tl.dot(x_tile, weight_tile(weight, group, k, col, TRANSPOSED, BLOCK_N, BLOCK_K), total)
            if SWIGLU:
                up = weight_tile(weight, group, k, N + col, TRANSPOSED, BLOCK_N, BLOCK_K)
                up_total = tl.dot(x_tile, up, up_total)
        if SWIGLU:
            total = total / (1 + tl.exp2(total * -LOG2E)) * up_total
        # in two halves, so that half the shared memory is enough to stage them
        left, right = tl.split(tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
        store_ragged(y, left, end, row, col)
        store_ragged(y, right, end, row, col + BLOCK_N // 2)


def describable(tensor: torch.Tensor) -> bool:
    """Whether a tensor descriptor can address 16-bit elements as they lie: unit last stride, all else on 16 bytes."""
    *outer, last = tensor.stride()
    return last == 1 and tensor.data_ptr() % 16 == 0 and all(stride > 0 and stride % 8 == 0 for stride in outer)


@cache
def runs_on(device: torch.device) -> bool:
    """Whether a GPU has tensor descriptors, from Hopper on, and SHARED per program; the interpreter has both."""
    if device.type != "cuda":
        return True
    properties = torch.cuda.get_device_properties(device)
    return properties.major >= 9 and properties.shared_memory_per_block_optin >= SHARED


def takes(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether it runs on the device, and descriptors can address the operands, one row after the other."""
    if x.element_size() != 2 or not runs_on(x.device):
        return False
    return describable(x) and describable(y) and (describable(weight) or describable(weight.mT))


def ragged(y: torch.Tensor) -> tuple[list, list]:
    """(shape, strides) by which a descriptor sees y [rows, N] so that it ends at a row which each access chooses.

    At (RAGGED, end, RAGGED - end + row, column) lies y[row, column], and nothing from row `end` on: the third index
    would be beyond the last. The strides of the first two make up for the third, modulo the 2^64 of an address.
    """
    many, pitch = 0x7FFF0000, y.stride(0)
    return [many, many, RAGGED.value, y.shape[1]], [2**34 - pitch, pitch, pitch, 1]


def launch(
    x: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor,
    rows: torch.Tensor | None,
    y: torch.Tensor,
    swiglu: bool,
    tile: dict,
    programs: int,
    group_m: int,
):
    """y as `grouped_matmul` returns it, of arguments that it has checked and `takes` has taken."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    groups, K, N = len(weight), x.shape[1], y.shape[1]
    m, n, k = tile["BLOCK_M"], tile["BLOCK_N"], tile["BLOCK_K"]
    transposed = not describable(weight)

    def describe(tensor, box):
        return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), box)

    grouped_matmul_persistent_kernel[(programs,)](
        describe(x, [m, k]) if rows is None else x,
        describe(weight.mT, [1, n, k]) if transposed else describe(weight, [1, k, n]),
        offsets,
        rows,
        TensorDescriptor(y, *ragged(y), [1, 1, m, n // 2]),
        groups,
        K,
        N,
        x.stride(0),
        transposed,
        swiglu,
        EVEN=K % k == 0,
        FLATTEN=rows is None and not swiglu,
        GROUP_M=group_m,
        BLOCK_E=triton.next_power_of_2(groups),
        **tile,
    )
