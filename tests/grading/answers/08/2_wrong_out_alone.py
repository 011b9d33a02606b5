# wrong, form
import torch
from instruments.backend import tl, triton


def tile_loop(q, k, v, sink, scale, block):
    heads, queries, head_dim = q.shape
    q = q.float()
    m = sink[:, None].expand(heads, queries)  # the sink is the state before the first tile
    l = torch.ones(heads, queries, device=q.device)
    acc = torch.zeros(heads, queries, head_dim, device=q.device)
    for start in range(0, k.shape[1], block):
        k_tile = k[:, start : start + block].float()  # [heads, block, head_dim]
        v_tile = v[:, start : start + block].float()
        s = q @ k_tile.mT * scale  # [heads, queries, block]
        m_new = torch.maximum(m, s.amax(dim=-1))
        p = torch.exp(s - m_new[..., None])
        factor = torch.exp(m - m_new)  # of what was added up over the old maximum
        l = l * factor + p.sum(dim=-1)
        acc = acc * factor[..., None] + p @ v_tile
        m = m_new
    return acc / l[..., None]
