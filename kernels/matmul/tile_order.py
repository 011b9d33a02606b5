"""The order in which programs compute the tiles of a matmul: it decides how much of their requests reaches DRAM.

Grouped ordering comes from Triton's matmul tutorial (2021). In a grouped matmul, every group has its own number of
rows, and the tiles are numbered group after group. Only the GPU knows how many tiles a group has, so a program counts
them itself, as in Triton's grouped GEMM tutorial (2023), but for all groups at once.
"""

from instruments.backend import tl, triton


@triton.jit
def grouped_tile(program, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """(tile_m, tile_n) of a program: GROUP_M rows of tiles are computed column by column, to share b in L2."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = program // (GROUP_M * tiles_n)
    first = group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)  # the last group may be lower
    within = program - group * GROUP_M * tiles_n
    return first + within % height, within // height


@triton.jit
def ragged_ends(offsets_ptr, groups, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_E: tl.constexpr):
    """[BLOCK_E]: how many tiles the groups 0 to e have together. Group e has the rows offsets[e] to offsets[e + 1];
    BLOCK_E >= groups, and padding has no tiles."""
    group = tl.arange(0, BLOCK_E)  # [BLOCK_E]
    begin = tl.load(offsets_ptr + group, mask=group < groups, other=0)
    end = tl.load(offsets_ptr + group + 1, mask=group < groups, other=0)
    return tl.cumsum(tl.cdiv(end - begin, BLOCK_M) * tl.cdiv(N, BLOCK_N))


@triton.jit
def ragged_tile(tile, ends, offsets_ptr, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """(group, its last row + 1, the tile's first row, its first column) of a tile, after `ragged_ends`; all int32."""
    before = ends <= tile  # groups whose tiles all come before this one, empty groups among them
    group = tl.sum(before.to(tl.int32))
    first = tl.max(tl.where(before, ends, 0))
    begin, end = tl.load(offsets_ptr + group), tl.load(offsets_ptr + group + 1)
    tile_m, tile_n = grouped_tile(tile - first, end - begin, N, BLOCK_M, BLOCK_N, GROUP_M)
    return group, end, begin + tile_m * BLOCK_M, tile_n * BLOCK_N
