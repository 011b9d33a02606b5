# right
import torch
from instruments.backend import tl, triton


def tile_loop(x, w, block):
    y = torch.zeros(len(x), len(w), device=x.device)
    for k in range(0, x.shape[1], block):
        for row in range(0, len(x), block):
            left = x[row : row + block, k : k + block].to(torch.float32)
            for col in range(0, len(w), block):
                y[row : row + block, col : col + block] += (
                    left @ w[col : col + block, k : k + block].to(torch.float32).T
                )
    return y
