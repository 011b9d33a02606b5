# right
import torch
from instruments.backend import tl, triton


def encode(x):
    size = x.abs().clamp(max=6)
    low, middle = (size / 0.5).round(), size.round() + 2  # codes 0 to 4, and 4 to 6 for 2, 3 and 4
    code = torch.where(size < 2, low, torch.where(size < 4, middle, (size / 2).round() + 4))
    return code.to(torch.uint8) | (torch.signbit(x).to(torch.uint8) << 3)


def pack(codes):
    pairs = codes.view(len(codes), -1, 2)
    return pairs[..., 0] + 16 * pairs[..., 1]
