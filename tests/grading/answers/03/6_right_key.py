# right
import torch
from instruments.backend import tl, triton

import itertools


def choose_tile(shared, threads, stages, block_k, itemsize):
    def key(tile):
        m, n = tile
        fits = stages * block_k * itemsize * (m + n) <= shared and m * n <= threads * 128
        return fits, m * n / (m + n)

    return max(itertools.product([2**i for i in range(4, 9)], repeat=2), key=key)
