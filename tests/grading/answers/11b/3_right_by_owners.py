# right
import torch
from instruments.backend import tl, triton


def owners(placement):
    return torch.arange(len(placement), device=placement.device).repeat_interleave(placement)


def dispatch_splits(counts, placement, rank):
    send = torch.zeros_like(placement).index_add_(0, owners(placement), counts[rank])
    return send, counts[:, owners(placement) == rank].sum(1)


def combine_splits(counts, placement, rank):
    back = counts[:, owners(placement) == rank].sum(1)
    return back, torch.zeros_like(placement).scatter_add(0, owners(placement), counts[rank])
