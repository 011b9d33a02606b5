# right
import torch
from instruments.backend import tl, triton


def choose_tile(shared, threads, stages, block_k, itemsize):
    best, chosen = 0, None
    side = shared // (stages * block_k * itemsize)
    for m in (256, 128, 64, 32, 16):
        for n in (256, 128, 64, 32, 16):
            if m + n <= side and m * n // threads <= 128 and 1 / (1 / m + 1 / n) > best:
                best, chosen = 1 / (1 / m + 1 / n), [n, m]
    return chosen
