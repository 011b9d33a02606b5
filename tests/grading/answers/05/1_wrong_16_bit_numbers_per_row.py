# wrong, mistake: 4 bytes each
import torch
from instruments.backend import tl, triton


def eager_bytes(rows, cols, itemsize):
    matrix = rows * cols * itemsize
    return 7 * matrix + cols * itemsize + 4 * itemsize * rows


def two_pass_bytes(rows, cols, itemsize):
    return 3 * rows * cols * itemsize + cols * itemsize + itemsize * rows


def resident_bytes(rows, cols, itemsize):
    return 2 * rows * cols * itemsize + cols * itemsize + itemsize * rows
