# wrong, form: packed is not contiguous
import torch


def pack_qkv(q, k, v, head_dim, ranks):
    K = q.shape[1]

    def cut(w):
        heads = w.shape[0] // head_dim
        if heads >= ranks:
            return w.reshape(ranks, -1, K)
        return w.reshape(heads, head_dim, K).repeat_interleave(ranks // heads, dim=0)

    return torch.cat([cut(q), cut(k), cut(v)], dim=1).mT.contiguous().mT
