# right
import torch
from instruments.backend import tl, triton


def read(spans):
    rows = sorted(spans.tolist(), key=lambda row: row[2])
    ranks = range(1 + max(int(row[0]) for row in rows))
    pick = lambda rank, lane: [(s, s + d) for r, l, s, d in rows if (r, l) == (rank, lane)]
    return [pick(r, 0) for r in ranks], [pick(r, 1) for r in ranks]


def meetings(spans):
    return [(max(s for s, _ in one), max(e for _, e in one)) for one in zip(*read(spans)[0])]


def exchanges(spans):
    met = meetings(spans)
    waits = [[m[0] - s for m, (s, _) in zip(met, mine)] for mine in read(spans)[0]]
    options = {"dtype": torch.float64, "device": spans.device}
    return torch.tensor([e - s for s, e in met], **options), torch.tensor(waits, **options)


def where_it_went(spans):
    products = read(spans)[1]
    work = [sum(e - s for s, e in mine) for mine in products]
    waits = exchanges(spans)[1]
    union = []
    for s, e in sorted(pair for mine in products for pair in mine):
        if union and s <= union[-1][1]:
            union[-1][1] = max(union[-1][1], e)
        else:
            union.append([s, e])
    link = sum(b - a - sum(max(0.0, min(b, e) - max(a, s)) for s, e in union) for a, b in meetings(spans))
    return sum(work) / len(work), max(sum(mine) for mine in waits.tolist()), link


def bottleneck(spans):
    experts, waiting, link = where_it_went(spans)
    if link > max(experts, waiting):
        return "link"
    return "experts" if experts > waiting else "waiting"
