# right
import torch
from instruments.backend import tl, triton


def sectors(first, stride, itemsize):
    return torch.unique((first + torch.arange(32) * stride * itemsize) // 32).numel()


def programs_per_sm(registers, shared, warps):
    limits = [64 // warps, 32, 233472 // (1024 + shared), 16384 // (-(-registers // 8) * 256) * 4 // warps]
    return sorted(limits)[0]
