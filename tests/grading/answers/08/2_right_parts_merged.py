# right
import torch
from instruments.backend import tl, triton


def tile_loop(q, k, v, sink, scale, block):
    q = q.float()
    out, lse = torch.zeros_like(q), sink[:, None].repeat(1, q.shape[1])
    for start in range(0, k.shape[1], block):
        s = torch.einsum("hqd,hkd->hqk", q, k[:, start : start + block].float()).mul(scale)
        part = torch.logsumexp(s, dim=2)
        both = torch.logaddexp(lse, part)
        tile = torch.softmax(s, dim=2) @ v[:, start : start + block].float()
        out = out * (lse - both).exp()[..., None] + tile * (part - both).exp()[..., None]
        lse = both
    return out, lse
