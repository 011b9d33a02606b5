"""The grouped matmul with tensor descriptors: TMA copies the tiles, and the compiler may give warps roles.

Minimum traffic and reference as in tiled.py. The tile is the largest of the grouped kernel's, so that a comparison
with it shows what the descriptors alone change: one thread per program asks for a whole tile, and TMA computes its
addresses and fills what lies beyond the matrix with zeros. The second kernel is persistent, and asks Triton's compiler
for warp specialization: a warp that loads, and two warpgroups that multiply. Lesson 03b times both; `matmul` runs
persistent.py.

After Triton's tutorial on persistent matmul (2024 to 2025).
"""

import torch

from instruments.backend import cdiv, tl, triton
from kernels.matmul.tile_order import grouped_tile
from kernels.shared.device import device_of, tensor_descriptor

GROUP_M = 8
BLOCKS = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}
TILE = {**BLOCKS, "num_warps": 8, "num_stages": 3}
SPECIALIZED = {**BLOCKS, "num_warps": 4, "num_stages": 3}  # 4 warps per role: the compiler splits the tile over two


@triton.jit
def matmul_descriptors_kernel(
    a, b, c,
    M, N, K,
    GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile per program: descriptors of a [M, K], b [K, N] and c [M, N], in tiles [BLOCK_M, BLOCK_K], [BLOCK_K,
    BLOCK_N] and [BLOCK_M, BLOCK_N // 2]."""
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for k in tl.range(0, K, BLOCK_K):
        acc = tl.dot(a.load([row, k]), b.load([k, col]), acc)
    left, right = tl.split(tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
    c.store([row, col], left.to(c.dtype))  # in two halves, which share one buffer of half the size
    c.store([row, col + BLOCK_N // 2], right.to(c.dtype))


@triton.jit
def matmul_specialized_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    tiles,
    GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Many tiles per program: a [M, K], b [K, N] and c [M, N], contiguous. The compiler splits a tile over warpgroups
    only if the kernel makes its descriptors itself."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BLOCK_K, BLOCK_N])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=True):
        tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
        acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        for k in tl.range(0, K, BLOCK_K):
            acc = tl.dot(a.load([row, k]), b.load([k, col]), acc)
        c.store([row, col], acc.to(c.dtype))


def _describe(matrix: torch.Tensor, rows: int, cols: int):
    """A descriptor of tiles [rows, cols]."""
    return tensor_descriptor(matrix, matrix.shape, matrix.stride(), [rows, cols])


def launch(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, specialized: bool = False):
    """c = a @ b for contiguous 16-bit matrices that TMA can address, none of them empty.

    Args:
        specialized: the persistent kernel with warp roles (Hopper), else one tile per program.
    """
    (M, K), N = a.shape, b.shape[1]
    m, n, k = BLOCKS.values()
    tiles = cdiv(M, m) * cdiv(N, n)
    if specialized:
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=c.device))
        programs = min(tiles, device_of(c.device).sms)
        matmul_specialized_kernel[(programs,)](a, b, c, M, N, K, tiles, GROUP_M=GROUP_M, **SPECIALIZED)
    else:
        descriptors = _describe(a, m, k), _describe(b, k, n), _describe(c, m, n // 2)
        matmul_descriptors_kernel[(tiles,)](*descriptors, M, N, K, GROUP_M=GROUP_M, **TILE)
