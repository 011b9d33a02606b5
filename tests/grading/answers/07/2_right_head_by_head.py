# right
import torch


def pack_qkv(q, k, v, head_dim, ranks):
    heads, kv_heads = q.shape[0] // head_dim, k.shape[0] // head_dim
    each, group = heads // ranks, heads // kv_heads
    packed = []
    for rank in range(ranks):
        own = range(rank * each, (rank + 1) * each)
        pieces = [q[h * head_dim : (h + 1) * head_dim] for h in own]
        for weight in (k, v):
            for h in sorted({h // group for h in own}):
                pieces.append(weight[h * head_dim : (h + 1) * head_dim])
        packed.append(torch.cat(pieces))
    return torch.stack(packed)
