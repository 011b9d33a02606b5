# right
import torch
from instruments.backend import tl, triton


def tile_loop(x, weight, eps, block):
    rows, cols = x.shape
    y = torch.zeros((rows, cols), device=x.device)
    pieces = list(zip(x.split(block, dim=1), y.split(block, dim=1), weight.split(block)))
    total = 0
    for piece, _, _ in pieces:
        total = total + piece.to(torch.float64).pow(2).sum(1)
    scale = (total / cols + eps).rsqrt().float()
    for piece, out, w in pieces:
        out.copy_(torch.addcmul(piece * scale.unsqueeze(1), piece * scale.unsqueeze(1), w))
    return y, scale
