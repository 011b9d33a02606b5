# wrong, mistake: Keys and values have kv_heads heads.
import torch


def qkv_ends(heads, kv_heads, head_dim):
    return heads * head_dim, 2 * heads * head_dim, 3 * heads * head_dim


def interleave(gate, up):
    return torch.stack((gate, up), 1).reshape(-1, gate.shape[1])
