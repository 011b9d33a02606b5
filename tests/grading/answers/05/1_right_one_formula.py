# right
import torch
from instruments.backend import tl, triton


def total(passes, per_row):
    return lambda rows, cols, itemsize: (passes * rows * cols + cols) * itemsize + 4 * per_row * rows


two_pass_bytes, resident_bytes = total(3, 1), total(2, 1)


def eager_bytes(rows, cols, itemsize):
    return (2 * itemsize + 36) * rows * cols + 4 * cols + 16 * rows
