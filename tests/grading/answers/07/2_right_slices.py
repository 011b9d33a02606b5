# right
import torch


def qkv_ends(heads, kv_heads, head_dim):
    ends, end = [], 0
    for count in (heads, kv_heads, kv_heads):
        end += count * head_dim
        ends.append(end)
    return tuple(ends)


def interleave(gate, up):
    weight = torch.empty(2 * gate.shape[0], gate.shape[1], dtype=gate.dtype, device=gate.device)
    weight[0::2] = gate
    weight[1::2] = up
    return weight
