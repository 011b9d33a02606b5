# right
import torch
from instruments.backend import tl, triton


def scale_bytes(m, n, k):
    of_x = sum(1 for start in range(0, k, 64))
    return 4 * sum(of_x for row in range(m)) + 4 * sum(of_x for row in range(0, n, 32))


def promotion_share(every, matrix, vector):
    matmuls, promotions = 4096 * 2, 4096 / every * 2
    return (promotions / vector) / (matmuls / matrix)
