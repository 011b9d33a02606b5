# right
import torch
from instruments.backend import tl, triton

import math


def scale_bytes(m, n, k):
    return math.ceil(k / 64) * (4 * m + 4 * math.ceil(n / 32))


def promotion_share(every, matrix, vector):
    return matrix / (every * vector)
