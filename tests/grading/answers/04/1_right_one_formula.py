# right
import torch
from instruments.backend import tl, triton


def norm_bytes(tokens, hidden):
    return 36 * tokens * hidden + 24 * tokens + 2 * hidden


def layer_bytes(tokens, hidden, inter):
    return 84 * tokens * hidden + 48 * tokens + 4 * hidden + 10 * tokens * inter


def fused_bytes(tokens, hidden, inter):
    return 16 * tokens * hidden + 4 * hidden + 6 * tokens * inter


def saved_microseconds(tokens, hidden, inter, layers, bandwidth):
    return (68 * tokens * hidden + 48 * tokens + 4 * tokens * inter) * layers / bandwidth / 1e6
