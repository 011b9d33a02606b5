# wrong, mistake: not rounded to the even code
import torch
from instruments.backend import tl, triton


def encode(x):
    size = x.abs()
    up_at_a_tie = torch.tensor([0.75, 1.75, 3.5], device=x.device)  # the upper code is even
    down_at_a_tie = torch.tensor([0.25, 1.25, 2.5, 5.0], device=x.device)
    code = (size[..., None] >= up_at_a_tie).sum(-1) + (size[..., None] >= down_at_a_tie).sum(-1)
    return (code + 8 * (x < 0)).to(torch.uint8)


def pack(codes):
    return codes[:, 0::2] | codes[:, 1::2] << 4
