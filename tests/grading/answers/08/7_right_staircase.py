# right
import torch
from instruments.backend import tl, triton

BLOCK = 16


def show_wrong(loop, keys):
    tiles = keys // BLOCK
    down = torch.linspace(250, 0, tiles).repeat_interleave(BLOCK)
    return {"b": down, "d": torch.full((keys,), -299.0)}.get(loop)
