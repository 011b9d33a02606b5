# right
import torch
from instruments.backend import tl, triton


def of(*tensors):
    return sum(elements * size for elements, size in tensors)


def eager_bytes(rows, cols, itemsize):
    x, m, v, gain = (rows * cols, itemsize), (rows * cols, 4), (rows, 4), (cols, 4)
    return of(x, m) + of(m, m) + of(m, v) + of(v, v) + of(m, v, m) + of(m, gain, m) + of(m, x)


def resident_bytes(rows, cols, itemsize):
    return of((rows * cols, itemsize), (cols, itemsize), (rows * cols, itemsize), (rows, 4))


def two_pass_bytes(rows, cols, itemsize):
    return resident_bytes(rows, cols, itemsize) + of((rows * cols, itemsize))
