# right
import torch
from instruments.backend import tl, triton


def tile_loop(x, weight, eps, block):
    y = x.new_empty(x.shape, dtype=torch.float32)
    scale = torch.empty(len(x), device=x.device)
    for row in range(len(x)):
        total = 0.0
        for start in range(0, x.shape[1], block):
            total += torch.linalg.vector_norm(x[row, start : start + block], dtype=torch.float32) ** 2
        scale[row] = 1 / torch.sqrt(total / x.shape[1] + eps)
        for start in range(0, x.shape[1], block):
            tile, gain = x[row, start : start + block].to(torch.float32), weight[start : start + block]
            y[row, start : start + block] = torch.addcmul(tile * scale[row], tile * scale[row], gain)
    return y, scale
