# wrong, form: experts without rows
import torch
from instruments.backend import tl, triton


def regroup(received):
    ranks, experts = received.shape
    expert = torch.arange(experts, device=received.device).repeat(ranks)
    expert = expert.repeat_interleave(received.flatten())  # of each row, as it arrives
    index = torch.argsort(expert, stable=True)
    back = torch.empty_like(index)
    back[index] = torch.arange(len(index), device=index.device)
    offsets = torch.nn.functional.pad(expert.bincount().cumsum(0), (1, 0)).int()
    return index, offsets, back
