# right
import torch
from instruments.backend import tl, triton


def encode(x):
    bits = x.abs().clamp(max=6.0).view(torch.int32)
    kept = (bits + 0x1FFFFF + (bits >> 22 & 1)) >> 22  # exponent and one bit of mantissa, to nearest even
    small = (bits > 0x3E800000).int() + (bits >= 0x3F400000).int()  # above 0.25, from 0.75 on
    code = torch.where(bits < 0x3F800000, small, kept - 252)
    return torch.where(x < 0, code + 8, code).to(torch.uint8)


def pack(codes):
    out = codes.new_zeros(len(codes), codes.shape[1] // 2)
    for column in range(codes.shape[1]):
        out[:, column // 2] |= codes[:, column] << 4 * (column % 2)
    return out
