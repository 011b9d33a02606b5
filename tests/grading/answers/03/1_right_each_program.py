# right
import torch
from instruments.backend import tl, triton


def dot_bytes(m, n, k, itemsize):
    return sum((2 * k + 1) * itemsize for _ in range(m) for _ in range(n))


def tiled_bytes(m, n, k, block_m, block_n, itemsize):
    total = 0
    for i in range(0, m, block_m):
        for j in range(0, n, block_n):
            rows, cols = min(block_m, m - i), min(block_n, n - j)
            total += (rows * k + cols * k + rows * cols) * itemsize
    return total


def tile_intensity(block_m, block_n, itemsize):
    return 2 * block_m * block_n / ((block_m + block_n) * itemsize)
