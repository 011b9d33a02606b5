# right
import torch
from instruments.backend import tl, triton


def stray_next(n, block):
    return [triton.cdiv(n, block) - 1, n]


def stray_warps(n, block):
    return (n // block, n) if -n % 32 else (-1, 0)


def stray_tile(rows, cols, block):
    return (-1, 0) if block == cols else (max(0, rows - (block - 1) // cols), rows * cols)


def stray_gather(n, block):
    return (triton.cdiv(n, block) - 1, -1) if n % block else (-1, 0)
