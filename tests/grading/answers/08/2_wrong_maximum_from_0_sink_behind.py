# wrong, values: a running maximum that starts at 0
import torch

from instruments.backend import tl, triton


def tile_loop(q, k, v, sink, scale, block):
    heads, queries, head_dim = q.shape
    q = q.float()
    m = torch.zeros(heads, queries, device=q.device)
    l = torch.zeros(heads, queries, device=q.device)
    acc = torch.zeros(heads, queries, head_dim, device=q.device)
    for start in range(0, k.shape[1], block):
        k_tile = k[:, start : start + block].float()
        v_tile = v[:, start : start + block].float()
        s = q @ k_tile.mT * scale
        m_new = torch.maximum(m, s.amax(dim=-1))
        p = torch.exp(s - m_new[..., None])
        factor = torch.exp(m - m_new)
        l = l * factor + p.sum(dim=-1)
        acc = acc * factor[..., None] + p @ v_tile
        m = m_new
    top = torch.maximum(m, sink[:, None])
    l, acc, m = l * torch.exp(m - top) + torch.exp(sink[:, None] - top), acc * torch.exp(m - top)[..., None], top
    return acc / l[..., None], m + torch.log(l)
