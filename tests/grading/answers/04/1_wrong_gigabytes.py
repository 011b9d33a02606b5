# wrong, values: expected 9172
import torch
from instruments.backend import tl, triton


def norm_bytes(tokens, hidden):
    x = tokens * hidden
    to_fp32 = 2 * x + 4 * x
    square = 4 * x + 4 * x
    mean = 4 * x + 4 * tokens
    shifted = 4 * tokens + 4 * tokens
    scale = 4 * tokens + 4 * tokens
    scaled = 4 * x + 4 * tokens + 4 * x
    to_bf16 = 4 * x + 2 * x
    y = 2 * x + 2 * hidden + 2 * x
    return to_fp32 + square + mean + shifted + scale + scaled + to_bf16 + y


def layer_bytes(tokens, hidden, inter):
    add = 3 * 2 * tokens * hidden
    silu, product = 2 * 2 * tokens * inter, 3 * 2 * tokens * inter
    return 2 * norm_bytes(tokens, hidden) + 2 * add + silu + product


def fused_bytes(tokens, hidden, inter):
    add_norm = 4 * 2 * tokens * hidden + 2 * hidden
    return 2 * add_norm + 3 * 2 * tokens * inter


def saved_microseconds(tokens, hidden, inter, layers, bandwidth):
    saved = layers * (layer_bytes(tokens, hidden, inter) - fused_bytes(tokens, hidden, inter))
    return saved / (bandwidth * 1e9) * 1e6
