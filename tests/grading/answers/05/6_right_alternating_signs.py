# right
import torch
from instruments.backend import tl, triton


def show_wrong(cols):
    row = torch.full((cols,), 0.0625)
    row[1::2] *= -1
    row[:64] = 2.0
    return ["carry", row]
