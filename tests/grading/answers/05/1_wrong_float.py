# wrong, form: expected an int
import torch
from instruments.backend import tl, triton


def eager_bytes(rows, cols, itemsize):
    x, matrix = rows * cols * itemsize, 4 * rows * cols
    wide = x + matrix
    square = matrix + matrix
    mean = matrix + 4 * rows
    scale = 4 * rows + 4 * rows
    normed = matrix + 4 * rows + matrix
    gained = matrix + 4 * cols + matrix
    y = matrix + x
    return wide + square + mean + scale + normed + gained + y


def two_pass_bytes(rows, cols, itemsize):
    matrix = rows * cols * itemsize
    return 2.0 * matrix + cols * itemsize + matrix + 4 * rows


def resident_bytes(rows, cols, itemsize):
    matrix = rows * cols * itemsize
    return matrix + cols * itemsize + matrix + 4 * rows
