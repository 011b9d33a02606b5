# right
import torch
from instruments.backend import tl, triton

from math import prod


def kept_materialised(batch, heads, kv_heads, sequence, head_dim, itemsize):
    q, k, weights = (heads, head_dim), (kv_heads, head_dim), (heads, sequence)
    return sum(prod(shape) * batch * sequence * itemsize for shape in (q, k, k, weights))


def kept_fused(batch, heads, kv_heads, sequence, head_dim, itemsize):
    shapes = [(heads, head_dim, itemsize)] * 2 + [(kv_heads, head_dim, itemsize)] * 2 + [(heads, 4)]
    return sum(batch * sequence * prod(shape) for shape in shapes)


def backward_flops(batch, heads, queries, keys, head_dim):
    return sum(batch * heads * queries * keys * head_dim * 2 for _ in ("s", "dp", "dv", "dk", "dq"))
