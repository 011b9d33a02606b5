# right
import torch
from instruments.backend import tl, triton


def encode(x):
    table = x.new_tensor([0, 1, 2, 4, 0.5, 1.5, 3, 6])  # even codes first: argmin takes the first of equals
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7], device=x.device)
    distance = (x.abs().clamp(max=8).double()[..., None] - table.double()).abs()
    return (order[distance.argmin(-1)] + 8 * (x < 0)).to(torch.uint8)


def pack(codes):
    weights = torch.tensor([1, 16], dtype=torch.int32, device=codes.device)
    return (codes.int().unflatten(1, (-1, 2)) * weights).sum(-1).to(torch.uint8)
