# right
import torch
from instruments.backend import tl, triton


def tile_loop(q, k, v, sink, scale, block):
    tiles = [(start, min(start + block, k.shape[1])) for start in range(0, k.shape[1], block)]
    lse = sink[:, None] + torch.zeros(q.shape[:2], device=q.device)
    for start, end in tiles:
        s = q.float() @ k[:, start:end].float().mT * scale
        lse = torch.logaddexp(lse, s.logsumexp(-1))
    out = torch.zeros(q.shape, device=q.device)
    for start, end in reversed(tiles):
        s = q.float() @ k[:, start:end].float().mT * scale
        out += torch.exp(s - lse[..., None]) @ v[:, start:end].float()
    return [out, lse]
