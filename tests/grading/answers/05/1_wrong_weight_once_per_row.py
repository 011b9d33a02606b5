# wrong, mistake: exactly once
import torch
from instruments.backend import tl, triton


def eager_bytes(rows, cols, itemsize):
    matrix = rows * cols * itemsize
    square = matrix + matrix
    mean = matrix + 4 * rows
    scale = 4 * rows + 4 * rows
    normed = matrix + 4 * rows + matrix
    y = matrix + cols * itemsize + matrix
    return square + mean + scale + normed + y


def two_pass_bytes(rows, cols, itemsize):
    matrix = rows * cols * itemsize
    return 2 * matrix + cols * itemsize + matrix + 4 * rows


def resident_bytes(rows, cols, itemsize):
    matrix = rows * cols * itemsize
    return matrix + cols * itemsize + matrix + 4 * rows


def eager_bytes(rows, cols, itemsize):
    """Five PyTorch operations."""
    return (7 * rows * cols + rows * cols) * itemsize + 4 * rows * 4
