# wrong, values: A maximum that lags behind
import torch
from instruments.backend import tl, triton

BLOCK = 16


def show_wrong(loop, keys):
    scores = torch.zeros(keys)
    if loop in "bc":
        scores[:BLOCK] = 200.0  # the second tile's maximum is 200 lower: exp(200) is inf
        return scores
    if loop == "d":
        return scores - 200.0  # exp(-200 - 0) is 0, for every key: 0 / 0
    return None
