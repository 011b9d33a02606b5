# right
import torch
from instruments.backend import tl, triton

from math import prod


def moved(*tensors):
    return sum(prod(shape) * size for shape, size in tensors)


def bias_add(rows, cols, itemsize):
    matrix = ((rows, cols), itemsize)
    return moved(matrix, ((cols,), itemsize), matrix), rows * cols


def row_sums(rows, cols, itemsize):
    return moved(((rows, cols), itemsize), ((rows,), 4)), cols * rows


def rank_one_update(rows, cols, itemsize):
    a = ((rows, cols), itemsize)
    return moved(a, a, ((rows,), itemsize), ((cols,), itemsize)), rows * cols + rows * cols


def quantized_matmul(m, n, k):
    return moved(((m, k), 2), ((k, n), 1), ((n,), 4), ((m, n), 2)), m * n * (2 * k + 1)
