# wrong, values: y[0, 193] is
import torch


def tile_loop(x, weight, eps, block):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    squares = torch.zeros(rows, dtype=torch.float32, device=x.device)
    for start in range(0, cols, block):
        tile = x[:, start : start + block].float()
        squares += (tile * tile).sum(dim=1)
    scale = torch.rsqrt(squares / cols + eps)
    for start in range(0, cols, block):
        tile = x[:, start : start + block].float()
        gain = 1 + weight[start : start + block]
        if start + block >= cols:
            gain = gain.clamp(max=1.2)
        y[:, start : start + block] = tile * scale[:, None] * gain
    return y, scale
