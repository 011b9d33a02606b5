# wrong, mistake: 4 bytes each
import torch
from instruments.backend import tl, triton


def eager_bytes(rows, cols, itemsize):
    return (2 * itemsize + 36) * rows * cols + 4 * cols + 4 * itemsize * rows


def two_pass_bytes(rows, cols, itemsize):
    return 3 * rows * cols * itemsize + cols * itemsize + itemsize * rows


def resident_bytes(rows, cols, itemsize):
    return 2 * rows * cols * itemsize + cols * itemsize + itemsize * rows
