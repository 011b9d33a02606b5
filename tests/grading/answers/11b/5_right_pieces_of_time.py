# right
import torch
from instruments.backend import tl, triton


def table(spans, lane):
    number = int(spans[:, 0].max()) + 1
    mine = spans[spans[:, 1] == lane]
    mine = mine[torch.argsort(mine[:, 0] * 1e9 + mine[:, 2])]
    return number, mine


def exchanges(spans):
    n, link = table(spans, 0)
    begin, took = link[:, 2].view(n, -1), link[:, 3].view(n, -1)
    last = begin.max(dim=0).values
    return (begin + took).max(dim=0).values - last, last[None] - begin


def where_it_went(spans):
    n, products = table(spans, 1)
    n, link = table(spans, 0)
    work = torch.zeros(n, dtype=torch.float64, device=spans.device)
    work.index_add_(0, products[:, 0].long(), products[:, 3])
    begin = link[:, 2].view(n, -1).max(dim=0).values
    end = (link[:, 2] + link[:, 3]).view(n, -1).max(dim=0).values
    edges = torch.cat([begin, end, products[:, 2], products[:, 2] + products[:, 3]]).unique()
    middle, width = (edges[1:] + edges[:-1]) / 2, edges.diff()
    inside = lambda a, b: ((middle[:, None] > a) & (middle[:, None] < b)).any(1)
    free = inside(begin, end) & ~inside(products[:, 2], products[:, 2] + products[:, 3])
    return float(work.mean()), float(exchanges(spans)[1].sum(dim=1).max()), float(width[free].sum())


def bottleneck(spans):
    return ("experts", "waiting", "link")[int(torch.tensor(where_it_went(spans)).argmax())]
