# right
import torch
from instruments.backend import tl, triton


def regroup(received):
    ranks, experts = received.shape
    key = torch.arange(ranks * experts, device=received.device).view(ranks, experts)
    key = (key % experts * ranks + key // experts).flatten().repeat_interleave(received.flatten())
    _, index = torch.sort(key, stable=True)
    offsets = torch.zeros(experts + 1, dtype=torch.int32, device=received.device)
    offsets[1:] = torch.cumsum(received.sum(dim=0), dim=0)
    return index, offsets, index.argsort()
