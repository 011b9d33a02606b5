# wrong, mistake: for every k
import torch
from instruments.backend import tl, triton


def scale_bytes(m, n, k):
    groups = -(-k // 64)
    stripes = -(-n // 32)
    return (m * groups + stripes * groups) * 4


def promotion_share(every, matrix, vector):
    multiply = 2 * every / matrix  # seconds for one element of y
    promote = 2 / vector
    return promote / multiply


def promotion_share(every, matrix, vector):
    """Seconds of the vector units per second of the tensor cores, for one element of y."""
    return (2 / vector) / (2 / matrix)
