# wrong, mistake: Even rows are gate
import torch


def qkv_ends(heads, kv_heads, head_dim):
    q, kv = heads * head_dim, kv_heads * head_dim
    return q, q + kv, q + 2 * kv


def interleave(gate, up):
    return torch.stack((up, gate), dim=1).flatten(0, 1)
