"""Exercise 11b: right answers in several styles pass, and each plausible wrong one fails with the hint made for it."""

from grading_tools import answer_tests, answers

EXERCISE = "11b_expert_parallel"
SOLUTION = answers(EXERCISE)

# ---------------------------------------------------------------- right, in another style

RIGHT = {
    "digits": ("11b.1", "def by_hand():\n    return 1280, 1792, 3584, 1.75, 3328, 12582912, 28, 0.875"),
    "computed": (
        "11b.1",
        """
import math

def by_hand():
    loads = [3072, 512, 1024, 1024, 1024, 512, 768, 256]
    capacity = math.ceil(1.25 * sum(loads) / 8)
    pairs = [sum(loads[i:i + 2]) for i in range(0, 8, 2)]
    sent = 2048 * 8192 * 3 / 4
    return [capacity, sum(max(0, n - capacity) for n in loads), max(pairs), max(pairs) / (sum(pairs) / 4),
            max(loads) + min(loads), sent, sent / 450e9 * 1e6, 1 - 1 / 8]
""",
    ),
    "a loop": (
        "11b.2",
        """
def place(experts, num_experts, capacity):
    free = [list(range(e * capacity, (e + 1) * capacity)) for e in range(num_experts)]
    rows = torch.full_like(experts, -1)
    for choice in range(experts.shape[1]):
        for token, e in enumerate(experts[:, choice].tolist()):
            if free[e]:
                rows[token, choice] = free[e].pop(0)
    return rows
""",
    ),
    "a sort": (
        "11b.2",
        """
def place(experts, num_experts, capacity):
    flat = experts.t().reshape(-1)
    order = torch.argsort(flat, stable=True)
    first = torch.cumsum(torch.bincount(flat, minlength=num_experts), 0) - torch.bincount(flat, minlength=num_experts)
    place = torch.empty_like(flat)
    place[order] = torch.arange(len(flat), device=flat.device) - first[flat[order]]
    rows = flat * capacity + place
    rows[place >= capacity] = -1
    return rows.reshape(experts.shape[1], -1).t().contiguous()
""",
    ),
    "by running sums": (
        "11b.3",
        """
def dispatch_splits(counts, placement, rank):
    end = placement.cumsum(0)
    sums = torch.cat([counts.new_zeros(len(counts), 1), counts.cumsum(1)], dim=1)
    table = sums[:, end] - sums[:, end - placement]
    return table[rank], table[:, rank]

def combine_splits(counts, placement, rank):
    return tuple(reversed(dispatch_splits(counts, placement, rank)))
""",
    ),
    "by owners": (
        "11b.3",
        """
def owners(placement):
    return torch.arange(len(placement), device=placement.device).repeat_interleave(placement)

def dispatch_splits(counts, placement, rank):
    send = torch.zeros_like(placement).index_add_(0, owners(placement), counts[rank])
    return send, counts[:, owners(placement) == rank].sum(1)

def combine_splits(counts, placement, rank):
    back = counts[:, owners(placement) == rank].sum(1)
    return back, torch.zeros_like(placement).scatter_add(0, owners(placement), counts[rank])
""",
    ),
    "run by run": (
        "11b.4",
        """
def regroup(received):
    starts = received.flatten().cumsum(0).reshape(received.shape) - received
    index = torch.cat([torch.arange(int(starts[r, e]), int(starts[r, e] + received[r, e]))
                       for e in range(received.shape[1]) for r in range(received.shape[0])]).to(received.device)
    offsets = torch.tensor([0, *received.sum(0).cumsum(0).tolist()], dtype=torch.int32, device=received.device)
    return index, offsets, torch.argsort(index)
""",
    ),
    "with a key": (
        "11b.4",
        """
def regroup(received):
    ranks, experts = received.shape
    key = torch.arange(ranks * experts, device=received.device).view(ranks, experts)
    key = (key % experts * ranks + key // experts).flatten().repeat_interleave(received.flatten())
    _, index = torch.sort(key, stable=True)
    offsets = torch.zeros(experts + 1, dtype=torch.int32, device=received.device)
    offsets[1:] = torch.cumsum(received.sum(dim=0), dim=0)
    return index, offsets, index.argsort()
""",
    ),
    "in Python": (
        "11b.5",
        """
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
""",
    ),
    "by pieces of time": (
        "11b.5",
        """
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
""",
    ),
}

# ---------------------------------------------------------------- wrong, each with its hint


def hand(letter: str, number: str, *words: str) -> tuple:
    """11b.1 with another number at a letter."""
    return (
        "11b.1",
        [("    return a, b", f"    {letter} = {number}\n    return a, b")],
        "verdict",
        [f"{letter} is", *words],
    )


WRONG = {  # name: task, changes to the solution or a whole answer, kind of finding, words that the hint has to hold
    "one choice a token": hand("a", "640", "two choices"),
    "one GPU's tokens": hand("a", "320", "all four"),
    "over the even load": hand("b", "2048", "not over the capacity"),
    "an expert for a GPU": hand("c", "3072", "two experts"),
    "experts against their mean": hand("d", "3", "GPUs are asked"),
    "placed as before": hand("e", "3584", "gives less"),
    "all rows sent": hand("f", "1024 * 2 * 8192", "crosses no link"),
    "one expert a token": hand("f", "1024 * 8192 * 3 / 4", "two experts"),
    "seconds": hand("g", "2.796e-5", "in seconds"),
    "four GPUs": hand("h", "0.75", "four GPUs"),
    "a word": hand("h", "'7/8'", "no int"),
    "seven numbers": ("11b.1", [("f, g, h\n", "f, g\n")], "verdict", ["7 numbers", "a tuple of 8"]),
    "int32 rows": ("11b.2", [("return rows.view", "return rows.int().view")], "dtype", ["int64"]),
    "places with themselves": ("11b.2", [("(mine.cumsum(0) - mine)", "mine.cumsum(0)")], "slip", ["counted from 1"]),
    "a dropped choice takes the next one along": (
        "11b.2",
        """
def place(experts, num_experts, capacity):
    taken, rows = [0] * num_experts, torch.full_like(experts, -1)
    for choice in range(experts.shape[1]):
        for token, e in enumerate(experts[:, choice].tolist()):
            if choice and rows[token, 0] < 0:
                continue
            if taken[e] < capacity:
                rows[token, choice] = e * capacity + taken[e]
                taken[e] += 1
    return rows
""",
        "slip",
        ["lost its next ones"],
    ),
    "places in bf16": ("11b.2", [("(mine.cumsum(0) - mine)", "(mine.bfloat16().cumsum(0).long() - mine)")], (), []),
    "places in fp16": ("11b.2", [("(mine.cumsum(0) - mine)", "(mine.half().cumsum(0).long() - mine)")], (), []),
    "experts in int8": ("11b.4", [("torch.argsort(expert,", "torch.argsort(expert.to(torch.int8),")], (), []),
    "ranks by the ends of the running sum": (
        "11b.3",
        """
def dispatch_splits(counts, placement, rank):
    ends = counts.cumsum(1)[:, placement.cumsum(0) - 1]
    table = torch.cat([ends[:, :1], ends.diff(dim=1)], dim=1)
    return table[rank], table[:, rank]

def combine_splits(counts, placement, rank):
    send, receive = dispatch_splits(counts, placement, rank)
    return receive, send
""",
        (),
        [],
    ),
    "the bottleneck by whole transfers": (
        "11b.5",
        [
            (
                "def bottleneck(spans):\n",
                "def bottleneck(spans):\n    if exchanges(spans)[0].sum() > where_it_went(spans)[0]:\n"
                "        return 'link'\n",
            )
        ],
        ("wrong", "some_rows", "tail"),
        ["the largest of the three numbers that where_it_went gives"],
    ),
    "sums in fp16": ("11b.3", [("part.sum(dim=1) for", "part.half().sum(dim=1).long() for")], (), []),
    "the sides of the dispatch exchanged": (
        "11b.3",
        [("return table[rank], table[:, rank].contiguous()", "return table[:, rank].contiguous(), table[rank]")],
        "slip",
        ["the two sides were exchanged", "dispatch_splits"],
    ),
    "the way back like the way there": (
        "11b.3",
        [("return receive, send", "return send, receive")],
        "slip",
        ["the two sides were exchanged", "combine_splits"],
    ),
    "dealt out evenly": (
        "11b.3",
        [("counts.split(placement.tolist(), dim=1)", "counts.tensor_split(len(placement), dim=1)")],
        ("slip", "wrong"),
        ["placement"],
    ),
    "lists": ("11b.3", [("return receive, send", "return receive.tolist(), send.tolist()")], "type", ["a tensor"]),
    "not stable": (
        "11b.4",
        [
            (
                "torch.argsort(expert, stable=True)",
                "torch.argsort(expert * len(expert) - torch.arange(len(expert), device=expert.device))",
            )
        ],
        "slip",
        ["order in which they came"],
    ),
    "offsets of the experts that occur": (
        "11b.4",
        [("received.sum(0).cumsum(0)", "expert.bincount().cumsum(0)")],
        "shape",
        ["experts without rows, too"],
    ),
    "offsets without 0": (
        "11b.4",
        [("(received.sum(0).cumsum(0), (1, 0))", "(received.sum(0), (1, 0))")],
        ("wrong", "tail"),
        ["offsets"],
    ),
    "each rank's own time of the link": (
        "11b.5",
        [("end.amax(0) - ready, ready", "(end - start).amax(0), ready")],
        "slip",
        ["waiting for a late rank"],
    ),
    "the end of the first rank": (
        "11b.5",
        [("return end.amax(0) - ready", "return end[0] - ready")],
        "slip",
        ["taken from one rank"],
    ),
    "the mean over ranks with products": (
        "11b.5",
        [("work.mean().item(),", "work[work > 0].mean().item(),")],
        "slip",
        ["those without products, too"],
    ),
    "everybody's waits": (
        "11b.5",
        [
            ("    times = dict(zip((", "    spans = spans.clone()\n    times = dict(zip(("),
            ("return max(times", "times['waiting'] = exchanges(spans)[1].sum().item()\n    return max(times"),
        ],
        (),
        ["bottleneck"],
    ),
    "overlap left out": (
        "11b.5",
        [("        for start, end in busy:", "        for start, end in busy[:0]:")],
        "slip",
        ["under the products"],
    ),
    "spans as they come": ("11b.5", [("    mine = mine[mine[:, 2].argsort()]\n", "")], (), ["exchanges"]),
    "always the link": ("11b.5", [("return max(times, key=times.get)", 'return "link"')], "wrong", ["bottleneck"]),
}

test_right, test_wrong, test_untouched, test_enough = answer_tests(SOLUTION, RIGHT, WRONG)
