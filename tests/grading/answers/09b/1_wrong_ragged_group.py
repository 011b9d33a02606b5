# wrong, mistake: ragged blocks
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


def ceil(n: int, block: int) -> int:
    """Blocks that cover n."""
    return -(-n // block)


def scale_bytes(m, n, k):
    """fp32 scales: of x one for 1 x 64, of w one for 32 x 64."""
    groups = k // 64
    return 4 * (m * groups + ceil(n, 32) * groups)
