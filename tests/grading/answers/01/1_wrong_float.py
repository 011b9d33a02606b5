# wrong, form: two ints
import torch
from instruments.backend import tl, triton


def bias_add(rows, cols, itemsize):
    return itemsize * (2 * rows * cols + cols), rows * cols


def row_sums(rows, cols, itemsize):
    return itemsize * rows * cols + 4 * rows, rows * cols


def rank_one_update(rows, cols, itemsize):
    return itemsize * (2 * rows * cols + rows + cols), 2 * rows * cols


def quantized_matmul(m, n, k):
    return 2 * m * k + k * n + 4 * n + 2 * m * n, float(2 * m * n * k + m * n)
