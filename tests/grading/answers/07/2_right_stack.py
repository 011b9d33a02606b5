# right
import torch


def qkv_ends(heads, kv_heads, head_dim):
    q, kv = heads * head_dim, kv_heads * head_dim
    return q, q + kv, q + 2 * kv


def interleave(gate, up):
    return torch.stack((gate, up), 1).reshape(-1, gate.shape[1])
