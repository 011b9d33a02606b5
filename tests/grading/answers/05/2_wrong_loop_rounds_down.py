# wrong, values: expected
import torch
from instruments.backend import tl, triton


def tile_loop(x, weight, eps, block):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    sum_of_squares = torch.zeros(rows, dtype=torch.float32, device=x.device)
    for start in range(0, cols // block * block, block):
        tile = x[:, start : start + block].float()
        sum_of_squares += (tile * tile).sum(dim=1)
    scale = torch.rsqrt(sum_of_squares / cols + eps)
    for start in range(0, cols // block * block, block):
        tile = x[:, start : start + block].float()
        y[:, start : start + block] = tile * scale[:, None] * (1 + weight[start : start + block])
    return y, scale
