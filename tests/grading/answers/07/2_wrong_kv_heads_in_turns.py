# wrong, mistake: ranks that share a KV head are neighbors
import torch


def pack_qkv(q, k, v, head_dim, ranks):
    def by_rank(weight):
        heads = weight.unflatten(0, (-1, head_dim))
        heads = heads.repeat(max(ranks // len(heads), 1), 1, 1)
        return heads.reshape(ranks, -1, weight.shape[1])

    return torch.cat([by_rank(weight) for weight in (q, k, v)], 1)
