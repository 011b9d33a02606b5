"""The order in which programs walk over the tiles of a product: it decides how much of what they ask for reaches DRAM.

Grouped ordering follows Triton's matmul tutorial (2019).
"""

from instruments.backend import tl, triton


@triton.jit
def grouped_tile(program, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """(tile_m, tile_n) of a program: GROUP_M rows of tiles are walked over column by column, so that they share b."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = program // (GROUP_M * tiles_n)
    first = group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)  # the last group may be lower
    within = program - group * GROUP_M * tiles_n
    return first + within % height, within // height
