# right
import torch
from instruments.backend import tl, triton


def regroup(received):
    starts = received.flatten().cumsum(0).reshape(received.shape) - received
    index = torch.cat(
        [
            torch.arange(int(starts[r, e]), int(starts[r, e] + received[r, e]))
            for e in range(received.shape[1])
            for r in range(received.shape[0])
        ]
    ).to(received.device)
    offsets = torch.tensor([0, *received.sum(0).cumsum(0).tolist()], dtype=torch.int32, device=received.device)
    return index, offsets, torch.argsort(index)
