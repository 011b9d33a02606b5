# right
import torch
from instruments.backend import tl, triton


def by_hand():
    return 2.0, 4.0, 2.0, 6.0, 0.3125, 16.0, 448.0, 2**-7 + 2**-9, 0.0, 2, 8.0, 0
