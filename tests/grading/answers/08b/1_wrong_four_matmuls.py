# wrong, mistake: not all FLOPs of the five matmuls
import torch
from instruments.backend import tl, triton


def kept_materialised(batch, heads, kv_heads, sequence, head_dim, itemsize):
    q = batch * heads * sequence * head_dim
    k = v = batch * kv_heads * sequence * head_dim
    weights = batch * heads * sequence * sequence
    return (q + k + v + weights) * itemsize


def kept_fused(batch, heads, kv_heads, sequence, head_dim, itemsize):
    q = out = batch * heads * sequence * head_dim
    k = v = batch * kv_heads * sequence * head_dim
    return (q + k + v + out) * itemsize + 4 * batch * heads * sequence


def backward_flops(batch, heads, queries, keys, head_dim):
    product = 2 * batch * heads * queries * keys * head_dim
    return 5 * product  # scores, dp, dv, dk, dq


def backward_flops(batch, heads, queries, keys, head_dim):
    """Five products: the scores again, the weights' gradient, dq, dk, dv."""
    return 4 * 2 * batch * heads * queries * keys * head_dim
