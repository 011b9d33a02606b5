# wrong, values: so it does not fit
import torch
from instruments.backend import tl, triton


def choose_tile(shared, threads, stages, block_k, itemsize):
    sides = (16, 32, 64, 128, 256)
    fits = [(m, n) for m in sides for n in sides if stages * (m + n) * block_k * itemsize <= shared]
    return max(fits, key=lambda tile: tile[0] * tile[1] / (tile[0] + tile[1]))
