# wrong, mistake: Row 0 is gate
import torch


def qkv_ends(heads, kv_heads, head_dim):
    q, kv = heads * head_dim, kv_heads * head_dim
    return q, q + kv, q + 2 * kv


def interleave(gate, up):
    return torch.cat((gate, up))
