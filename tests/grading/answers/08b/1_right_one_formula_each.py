# right
import torch
from instruments.backend import tl, triton


def kept_fused(batch, heads, kv_heads, sequence, head_dim, itemsize):
    return batch * sequence * (2 * (heads + kv_heads) * head_dim * itemsize + 4 * heads)


def kept_materialised(batch, heads, kv_heads, sequence, head_dim, itemsize):
    return batch * sequence * itemsize * (heads * (head_dim + sequence) + 2 * kv_heads * head_dim)


def backward_flops(batch, heads, queries, keys, head_dim):
    return 10 * batch * heads * queries * keys * head_dim
