# right
import torch
from instruments.backend import tl, triton


def moved(*tensors):
    return sum(elements * size for elements, size in tensors)


def norm_bytes(tokens, hidden):
    x, f, row = (tokens * hidden, 2), (tokens * hidden, 4), (tokens, 4)
    return moved(x, f, f, f, f, row, row, row, row, row, f, row, f, f, x, x, (hidden, 2), x)


def layer_bytes(tokens, hidden, inter):
    x, g = (tokens * hidden, 2), (tokens * inter, 2)
    return 2 * norm_bytes(tokens, hidden) + 2 * moved(x, x, x) + moved(g, g) + moved(g, g, g)


def fused_bytes(tokens, hidden, inter):
    x, g = (tokens * hidden, 2), (tokens * inter, 2)
    return 2 * moved(x, x, (hidden, 2), x, x) + moved(g, g, g)


def saved_microseconds(tokens, hidden, inter, layers, bandwidth):
    per_layer = layer_bytes(tokens, hidden, inter) - fused_bytes(tokens, hidden, inter)
    return 1e6 * layers * per_layer / bandwidth / 1e12
