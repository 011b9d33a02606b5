# wrong, traffic: torch.cat
import torch
from instruments.backend import tl, triton


def tile_loop(x, w, block):
    rows = []
    for a in x.split(block):
        pairs = [zip(a.split(block, 1), b.split(block, 1)) for b in w.split(block)]
        rows.append(torch.cat([sum(p.float() @ q.float().T for p, q in pair) for pair in pairs], dim=1))
    return torch.cat(rows)
