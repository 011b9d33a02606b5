# wrong, mistake: Rank r has neighboring query heads
import torch


def pack_qkv(q, k, v, head_dim, ranks):
    def by_rank(weight):
        heads = weight.unflatten(0, (-1, head_dim))
        parts = [heads[rank % len(heads) :: ranks] for rank in range(ranks)]
        return torch.stack(parts).reshape(ranks, -1, weight.shape[1])

    return torch.cat([by_rank(weight) for weight in (q, k, v)], 1)
