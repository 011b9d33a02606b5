# right
import torch


def pack_qkv(q, k, v, head_dim, ranks):
    heads, kv_heads = q.shape[0] // head_dim, k.shape[0] // head_dim
    of_rank = torch.arange(ranks, device=q.device)
    rows = torch.arange(heads * head_dim, device=q.device).view(ranks, -1)
    copies = max(kv_heads // ranks, 1)
    first = of_rank * kv_heads // ranks
    kv = (first[:, None] * head_dim + torch.arange(copies * head_dim, device=q.device)).flatten()
    parts = (
        q[rows.flatten()].view(ranks, -1, q.shape[1]),
        k[kv].view(ranks, -1, q.shape[1]),
        v[kv].view(ranks, -1, q.shape[1]),
    )
    return torch.cat(parts, 1)
