# right
import torch
from instruments.backend import tl, triton


def first(reads, size):
    for program, lanes in enumerate(reads):
        outside = [i for i in lanes if not 0 <= i < size]
        if outside:
            return program, min(outside)
    return -1, 0


def tiles(n, block):
    return [range(p, p + block) for p in range(0, n, block)]


def stray_next(n, block):
    return first([[i + 1 for i in t if i < n] for t in tiles(n, block)], n)


def stray_warps(n, block):
    return first([[i for i in t if i < (n + 31) // 32 * 32] for t in tiles(n, block)], n)


def stray_tile(rows, cols, block):
    return first([range(r * cols, r * cols + block) for r in range(rows)], rows * cols)


def stray_gather(n, block):
    return first([[0 if i < n else -1 for i in t] for t in tiles(n, block)], n)
