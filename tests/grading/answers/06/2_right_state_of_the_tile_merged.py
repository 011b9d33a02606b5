# right
import torch
from instruments.backend import tl, triton


def softmax_of(x, m):
    return torch.exp(torch.where(x == -torch.inf, x, x - m))


def absorb(m, l, o, tile, values):
    tile = tile.to(torch.float32)
    top = tile.max(1, keepdim=True).values
    e = softmax_of(tile, top)
    new = torch.maximum(m, top[:, 0])
    before, here = softmax_of(m, new), softmax_of(top[:, 0], new)
    return new, torch.addcmul(l * before, e.sum(1), here), torch.addcmul(o * before, e @ values, here)


def softmax_mean(x, values, block):
    state = [x.new_full((len(x),), fill, dtype=torch.float32) for fill in (-torch.inf, 0, 0)]
    for piece, weights in zip(x.split(block, 1), values.split(block)):
        state = absorb(*state, piece, weights)
    m, l, o = state
    return torch.where(m == -torch.inf, torch.zeros_like(o), o / l)
