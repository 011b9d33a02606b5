# wrong, values: bf16 number
import torch
from instruments.backend import tl, triton

TILE = 64


def show_wrong(cols):
    row = torch.empty(cols)
    row[:TILE] = 1.0
    row[TILE:] = 0.0447
    return "carry", row
