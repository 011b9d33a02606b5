# right
import torch
from instruments.backend import tl, triton


def tile_loop(q, k, v, sink, scale, block):
    log2e = 1.4426950408889634
    q = q.to(torch.float32)
    m = torch.full(q.shape[:2], float("-inf"), device=q.device)
    l, acc = torch.zeros_like(m), torch.zeros_like(q)
    for keys, vals in zip(k.split(block, dim=1), v.split(block, dim=1)):
        s = torch.bmm(q, keys.float().transpose(1, 2)) * (scale * log2e)
        top = torch.maximum(m, s.max(dim=2).values)
        p, factor = torch.exp2(s - top.unsqueeze(2)), torch.exp2(m - top)
        l = torch.addcmul(p.sum(2), l, factor)
        acc = torch.baddbmm(acc * factor.unsqueeze(2), p, vals.float())
        m = top
    sink = sink[:, None] * log2e
    top = torch.maximum(m, sink)
    l = l * torch.exp2(m - top) + torch.exp2(sink - top)
    return acc * (torch.exp2(m - top) / l)[:, :, None], (top + torch.log2(l)) / log2e
