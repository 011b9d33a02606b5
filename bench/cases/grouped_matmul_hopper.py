"""Grouped matmul in Gluon, for the memory checker; grouped_matmul.py times it among its cases."""

import torch

from instruments.backend import device
from kernels.grouped_matmul.forward import grouped_matmul
from kernels.grouped_matmul.hopper import takes

RAGGED = ((1, 1, 8, 8), (70, 3, 200, 136), (300, 11, 1024, 1408), (1000, 64, 72, 528))


def cases() -> list:
    return []


def sanitize(slots, groups, K, N, dtype):
    """Groups of random sizes, weights of both layouts, gathered rows, SwiGLU; only 16 bits, on a Hopper GPU."""
    if dtype.itemsize > 2:
        return
    x = torch.randn(slots, K, device=device()).to(dtype)
    rows = torch.randint(0, slots, (slots,), device=device(), dtype=torch.int32)
    inner = torch.randint(0, slots + 1, (groups - 1,), device=device()).sort().values
    offsets = torch.nn.functional.pad(inner, (1, 1), value=0).to(torch.int32)
    offsets[-1] = slots
    for weight in (torch.randn(groups, K, N, device=device()), torch.randn(groups, N, K, device=device()).mT):
        weight = weight.to(dtype)
        for swiglu in (False, True):
            if takes(x, weight, weight.new_empty(1, N // 2 if swiglu else N)):
                for source in (None, rows):
                    activation = "swiglu" if swiglu else None
                    grouped_matmul(x, weight, offsets, rows=source, activation=activation, path="hopper")
