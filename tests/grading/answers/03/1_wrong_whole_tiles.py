# wrong, mistake: masked-out elements request no bytes
import torch
from instruments.backend import tl, triton


def dot_bytes(m, n, k, itemsize):
    programs = m * n
    return programs * (k + k + 1) * itemsize  # a row of x, a row of w, one result


def tiled_bytes(m, n, k, block_m, block_n, itemsize):
    tiles_m, tiles_n = -(-m // block_m), -(-n // block_n)  # rounded up
    x = m * k * tiles_n  # each column of tiles reads all of x
    w = n * k * tiles_m  # each row of tiles reads all of w
    return (x + w + m * n) * itemsize


def tile_intensity(block_m, block_n, itemsize):
    flops = 2 * block_m * block_n  # per step of k
    read = (block_m + block_n) * itemsize
    return flops / read


def ceil(n: int, block: int) -> int:
    """Blocks that cover n."""
    return -(-n // block)


def tiled_bytes(m, n, k, block_m, block_n, itemsize):
    """x once per column of tiles, w once per row of tiles."""
    tiles_m, tiles_n = ceil(m, block_m), ceil(n, block_n)
    return (tiles_m * tiles_n * k * (block_m + block_n) + tiles_m * block_m * tiles_n * block_n) * itemsize
