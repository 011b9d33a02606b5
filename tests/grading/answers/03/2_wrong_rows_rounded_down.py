# wrong, values: ragged
import torch
from instruments.backend import tl, triton


def tile_loop(x, w, block):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    for row in range(0, M - block + 1, block):
        for col in range(0, N, block):
            rows, cols = slice(row, row + block), slice(col, col + block)
            total = torch.zeros_like(y[rows, cols])  # a slice ends at the edge by itself
            for k in range(0, K, block):
                x_tile = x[rows, k : k + block].float()  # [block, block]
                w_tile = w[cols, k : k + block].float()  # [block, block]
                total += x_tile @ w_tile.T
            y[rows, cols] = total
    return y
