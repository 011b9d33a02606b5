# right
import torch
from instruments.backend import tl, triton


def dispatch_splits(counts, placement, rank):
    end = placement.cumsum(0)
    sums = torch.cat([counts.new_zeros(len(counts), 1), counts.cumsum(1)], dim=1)
    table = sums[:, end] - sums[:, end - placement]
    return table[rank], table[:, rank]


def combine_splits(counts, placement, rank):
    return tuple(reversed(dispatch_splits(counts, placement, rank)))
