# right
import torch
from instruments.backend import tl, triton


def norm_bytes(tokens, hidden):
    per_element, per_row = [2, 4, 4, 4, 4, 4, 4, 4, 2, 2, 2], [4] * 6
    return tokens * (hidden * sum(per_element) + sum(per_row)) + hidden * 2


def layer_bytes(tokens, hidden, inter):
    total = 0
    for _ in range(2):
        total += norm_bytes(tokens, hidden) + tokens * hidden * (2 + 2 + 2)
    return total + tokens * inter * (2 + 2 + 2 + 2 + 2)


def fused_bytes(tokens, hidden, inter):
    return sum([tokens * hidden * 16, hidden * 4, tokens * inter * 6])


def saved_microseconds(tokens, hidden, inter, layers, bandwidth):
    before, after = (count(tokens, hidden, inter) / (bandwidth * 1e6) for count in (layer_bytes, fused_bytes))
    return layers * before - layers * after
