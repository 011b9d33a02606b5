# wrong, values: List each step
import torch
from instruments.backend import tl, triton


def eager_bytes(rows, cols, itemsize):
    return (itemsize + itemsize + 4) * rows * cols + 4 * cols + 16 * rows


def two_pass_bytes(rows, cols, itemsize):
    matrix = rows * cols * itemsize
    return 2 * matrix + cols * itemsize + matrix + 4 * rows


def resident_bytes(rows, cols, itemsize):
    matrix = rows * cols * itemsize
    return matrix + cols * itemsize + matrix + 4 * rows
