# wrong, values: expected 10% or more
import torch
from instruments.backend import tl, triton

TILE = 64


def show_wrong(cols):
    row = torch.empty(cols)
    row[:TILE] = 1.0
    row[TILE:] = torch.randn(cols - TILE).clamp(-3, 3).bfloat16()
    return "carry", row
