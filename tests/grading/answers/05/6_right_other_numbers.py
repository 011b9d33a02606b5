# right
import torch
from instruments.backend import tl, triton


def show_wrong(cols):
    row = torch.full((cols,), 0.0625, dtype=torch.float32)  # 64 squares: 0.25, under half of the last bit of 256
    row[:64] = 2.0
    return "carry", row
