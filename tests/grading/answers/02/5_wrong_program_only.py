# wrong, form: two ints
import torch
from instruments.backend import tl, triton


def stray_next(n, block):
    return (n - 1) // block, n  # element n - 1 reads x[n]


def stray_warps(n, block):
    return (n // block, n) if n % 32 else (-1, 0)


def stray_tile(rows, cols, block):
    for row in range(rows):
        if row * cols + block > rows * cols:
            return row
    return -1, 0


def stray_gather(n, block):
    return (n // block, -1) if n % block else (-1, 0)  # masked-out elements get index -1
