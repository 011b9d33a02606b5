# right
import torch
from instruments.backend import tl, triton


def show_wrong(loop, keys):
    if loop in "ac":
        return None
    scores = torch.randn(keys).clamp(-3, 3)
    if loop == "d":
        return scores - 250
    scores[0] = 240.0
    return scores
