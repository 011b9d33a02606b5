# wrong, mistake: transfers during matmuls
import torch
from instruments.backend import tl, triton


def lane(spans, rank, number):
    mine = spans[(spans[:, 0] == rank) & (spans[:, 1] == number)]
    mine = mine[mine[:, 2].argsort()]
    return mine[:, 2], mine[:, 2] + mine[:, 3]  # beginnings and ends


def exchanges(spans):
    ranks = int(spans[:, 0].max()) + 1
    start, end = (torch.stack(side) for side in zip(*(lane(spans, rank, 0) for rank in range(ranks))))
    ready = start.amax(0)
    return end.amax(0) - ready, ready - start


def where_it_went(spans):
    ranks = int(spans[:, 0].max()) + 1
    products = [lane(spans, rank, 1) for rank in range(ranks)]
    work = torch.stack([(end - start).sum() for start, end in products])
    busy = sorted((s.item(), e.item()) for start, end in products for s, e in zip(start, end))

    transfers, waits = exchanges(spans)
    begin = lane(spans, 0, 0)[0] + waits[0]
    exposed = 0.0
    for first, last in zip(begin.tolist(), (begin + transfers).tolist()):
        for start, end in busy[:0]:  # sorted by start: the time before each is exposed
            if end <= first or start >= last:
                continue
            exposed += max(0.0, start - first)
            first = max(first, end)
        exposed += max(0.0, last - first)
    return work.mean().item(), waits.sum(1).max().item(), exposed


def bottleneck(spans):
    times = dict(zip(("experts", "waiting", "link"), where_it_went(spans)))
    return max(times, key=times.get)
