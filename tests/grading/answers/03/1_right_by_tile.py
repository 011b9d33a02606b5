# right
import torch
from instruments.backend import tl, triton


def dot_bytes(m, n, k, itemsize):
    return tiled_bytes(m, n, k, 1, 1, itemsize)


def tiled_bytes(m, n, k, block_m, block_n, itemsize):
    return itemsize * (m * n + k * (m * ((n + block_n - 1) // block_n) + n * ((m + block_m - 1) // block_m)))


def tile_intensity(block_m, block_n, itemsize):
    return block_m * block_n * 2 / itemsize / (block_m + block_n)
