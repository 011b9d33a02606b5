# right
import torch
from instruments.backend import tl, triton


def by_hand():
    return 1280, 1792, 3584, 1.75, 3328, 12582912, 28, 0.875
