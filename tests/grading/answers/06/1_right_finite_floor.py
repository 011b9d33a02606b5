# right
import torch
from instruments.backend import tl, triton


def three_passes(x, temperature, block):
    pieces = x.split(block, dim=1)
    top = None
    for piece in pieces:
        here = piece.max(dim=1).values.float()
        top = here if top is None else torch.maximum(top, here)
    top = top.clamp(min=torch.finfo(torch.float32).min).unsqueeze(1)
    total = sum(((piece - top) / temperature).exp().sum(1) for piece in pieces)
    y = x.new_zeros(x.shape, dtype=torch.float32)
    for piece, out in zip(pieces, y.split(block, dim=1)):
        out.copy_(((piece - top) / temperature).exp() / total.clamp(min=1e-30).unsqueeze(1))
    return y
