# wrong, mistake: one fp32 scale
import torch
from instruments.backend import tl, triton


def bias_add(rows, cols, itemsize):
    x, y, bias = rows * cols, rows * cols, cols
    return (x + bias + y) * itemsize, rows * cols  # one addition per element


def row_sums(rows, cols, itemsize):
    return rows * cols * itemsize + 4 * rows, rows * cols  # the sums are fp32


def rank_one_update(rows, cols, itemsize):
    a = rows * cols
    return (a + rows + cols + a) * itemsize, 2 * a  # a is read and written back


def quantized_matmul(m, n, k):
    nbytes = 2 * m * k + 1 * k * n + 2 * m * n  # bf16, int8, fp32, bf16
    return nbytes, 2 * m * n * k + m * n  # the product, then one scaling per result
