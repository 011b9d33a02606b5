# wrong, form: Bytes are ints
import torch
from instruments.backend import tl, triton


def dot_bytes(m, n, k, itemsize):
    programs = m * n
    return programs * (k + k + 1) * itemsize  # a row of x, a row of w, one result


def tiled_bytes(m, n, k, block_m, block_n, itemsize):
    tiles_m, tiles_n = -(-m // block_m), -(-n // block_n)  # rounded up
    x = m * k * tiles_n  # each column of tiles reads all of x
    w = n * k * tiles_m  # each row of tiles reads all of w
    return float((x + w + m * n) * itemsize)


def tile_intensity(block_m, block_n, itemsize):
    flops = 2 * block_m * block_n  # per step of k
    read = (block_m + block_n) * itemsize
    return flops / read
