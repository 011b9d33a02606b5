# right
import torch
from instruments.backend import tl, triton


def of(*tensors):
    return sum(elements * size for elements, size in tensors)


def eager_bytes(rows, cols, itemsize):
    m, v, gain = (rows * cols, itemsize), (rows, 4), (cols, itemsize)
    return of(m, m) + of(m, v) + of(v, v) + of(m, v, m) + of(m, gain, m)


def resident_bytes(rows, cols, itemsize):
    return of((rows * cols, itemsize), (cols, itemsize), (rows * cols, itemsize), (rows, 4))


def two_pass_bytes(rows, cols, itemsize):
    return resident_bytes(rows, cols, itemsize) + of((rows * cols, itemsize))
