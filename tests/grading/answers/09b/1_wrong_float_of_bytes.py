# wrong, form: expected an int
import torch
from instruments.backend import tl, triton


def scale_bytes(m, n, k):
    groups = -(-k // 64)
    stripes = -(-n // 32)
    return (m * groups + stripes * groups) * 4.0


def promotion_share(every, matrix, vector):
    multiply = 2 * every / matrix  # seconds for one element of y
    promote = 2 / vector
    return promote / multiply
