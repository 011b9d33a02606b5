# wrong, values: List each step
import torch
from instruments.backend import tl, triton


def eager_bytes(rows, cols, itemsize):
    matrix = rows * cols * itemsize
    square = matrix + matrix
    mean = matrix + 4 * rows
    scale = 4 * rows + 4 * rows
    normed = matrix + 4 * rows + matrix
    y = matrix + cols * itemsize + matrix
    return 3 * matrix + cols * itemsize + 16 * rows


def two_pass_bytes(rows, cols, itemsize):
    matrix = rows * cols * itemsize
    return 2 * matrix + cols * itemsize + matrix + 4 * rows


def resident_bytes(rows, cols, itemsize):
    matrix = rows * cols * itemsize
    return matrix + cols * itemsize + matrix + 4 * rows
