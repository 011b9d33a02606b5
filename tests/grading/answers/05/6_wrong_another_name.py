# wrong, values: tree is off by
import torch
from instruments.backend import tl, triton

TILE = 64


def show_wrong(cols):
    row = torch.empty(cols)
    row[:TILE] = 1.0
    row[TILE:] = 0.044677734375
    return "tree", row
