# wrong, values: find scores where only
import torch
from instruments.backend import tl, triton

BLOCK = 16


def show_wrong(loop, keys):
    scores = torch.zeros(keys)
    if loop == "b":
        scores[:BLOCK] = 190.0  # the second tile's maximum is 190 lower: exp(190) is inf
        return scores - 300.0
    if loop == "d":
        return scores - 200.0  # exp(-200 - 0) is 0, for every key: 0 / 0
    return None
