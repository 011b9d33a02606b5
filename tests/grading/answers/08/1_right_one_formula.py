# right
import torch
from instruments.backend import tl, triton

import math


def fused_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize):
    return batch * sequence * (2 * itemsize * head_dim * (heads + kv_heads) + 4 * heads)


def materialised_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize):
    return 2 * itemsize * batch * sequence * (3 * heads * sequence + head_dim * (heads + kv_heads))


def asked_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize, block):
    return batch * heads * sequence * (2 * itemsize * head_dim * (1 + math.ceil(sequence / block)) + 4)


def causal_flops(batch, heads, sequence, head_dim, block):
    return 2 * batch * heads * head_dim * sequence * (sequence + block)
