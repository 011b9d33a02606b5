# right
import torch
from instruments.backend import tl, triton


def show_wrong(cols):
    signs = torch.where(torch.rand(cols) < 0.5, -1.0, 1.0)
    sizes = torch.cat([torch.full((64,), 2.0), torch.full((cols - 64,), 2.0**-4)])
    return "carry", (signs * sizes).bfloat16().float()
