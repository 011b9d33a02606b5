"""Exercise 11b, expert parallelism: capacity, all-to-all splits, rows by expert, where the time went in a trace, a
kernel that packs rows, and all of it on two ranks."""

import numpy as np

from grading.tasks import Case, Mistake, Task, returns, tensor
from grading.tasks.lesson_09 import ceil, hand_verdict
from grading.tasks.lesson_11 import MANY, padded, random_choices
from grading.tasks.properties import PADDED
from instruments.results import load_parallel

EXERCISE = "11b_expert_parallel"
INTEGERS = "Count in integers: fp16 is exact up to 2,048 only, bf16 up to 256, and int8 ends at 127."

# ---------------------------------------------------------------- 11b.1 by hand

SENT = 4096 * 3 // 4 * 8192 // 2  # bytes from one GPU to the others: three quarters of 2,048 rows
#: letter: the right number, and what leads to it
BY_HAND = {
    "a": (1280, "The even load is tokens * top_k / experts, and the capacity is 1.25 times that."),
    "b": (1792, "Add up what each expert has above the capacity of a."),
    "c": (3584, "GPU r has experts 2r and 2r + 1: add the loads of each pair."),
    "d": (1.75, "Divide the rows of the busiest GPU by the mean: 8,192 rows on four GPUs."),
    "e": (3328, "Expert 0 has to be somewhere. Choose the expert beside it."),
    "f": (SENT, "A GPU's 1,024 tokens make 2,048 rows of 8,192 bytes. Which part of them leaves the GPU?"),
    "g": (SENT / 450e3, "Divide the bytes of f by 450 GB/s, and give microseconds."),
    "h": (0.875, "One of n GPUs is the sender's own."),
}
#: (letter, a wrong number): what is wrong
NOTES = {
    ("a", 640): "Each of the 4,096 tokens makes two choices.",
    ("a", 1024): "That is the even load: multiply it by 1.25.",
    ("b", 2048): "That is above the even load, not above the capacity.",
    ("d", 3.0): "That is expert 0 over the mean of the experts. Compare GPUs.",
    ("f", 16_777_216): "A quarter of the rows stays on the GPU and crosses no link.",
    ("f", SENT // 2): "Each token is sent to two experts.",
    ("g", SENT / 450e9): "That is in seconds.",
    ("h", 0.75): "That is for four GPUs. With eight, more rows leave.",
}


HAND = Task(
    id="11b.1",
    title="Rows and bytes by hand",
    points=2,
    functions={"by_hand": None},
    verdict=hand_verdict(BY_HAND, NOTES, dict.fromkeys(BY_HAND, 1e-9) | {"g": 0.01}),
    cases=(Case("a to h", lambda rng: {}),),
    hints={"passed": "all eight numbers"},
)

# ---------------------------------------------------------------- 11b.2 capacity


@returns(rows="int64")
def place(experts, num_experts, capacity, *, extra=0, by_token=False, dropped=-1, starts=True):
    """extra: rows that an expert gets beyond its capacity."""
    rows, loads = np.full(experts.shape, dropped), np.zeros(num_experts, int)
    slots = sorted(np.ndindex(experts.shape), key=lambda slot: slot if by_token else slot[::-1])
    for token, choice in slots:
        expert = experts[token, choice]
        if loads[expert] < capacity + extra:
            rows[token, choice] = expert * capacity * starts + loads[expert]
        loads[expert] += 1
    return rows


def capacity_inputs(tokens, top_k, num_experts, capacity):
    def make(rng):
        keys = rng.exponential(1, (tokens, num_experts)) * np.arange(1, num_experts + 1)
        experts = rng.permutation(num_experts)[np.argsort(keys, axis=1)[:, :top_k]]
        return {"experts": tensor(experts, "int64"), "num_experts": num_experts, "capacity": capacity}

    return make


CAPACITIES = ((12, 2, 4, 6), (40, 3, 8, 19), (9, 1, 3, 2), (6, 2, 16, 6), (30, 2, 2, 1), (60, 2, 16, 6))
PLACE = Task(
    id="11b.2",
    title="Cut off at a capacity",
    points=3,
    functions={"place": place},
    cases=(
        *(Case("{} tokens, top-{} of {}, capacity {}".format(*sizes), capacity_inputs(*sizes)) for sizes in CAPACITIES),
        Case("6,000 tokens, top-2 of 3, capacity 2,600", capacity_inputs(6000, 2, 3, 2600), hint=INTEGERS),
    ),
    mistakes=(
        Mistake(
            "an expert got one row too many or too few", "Places 0 to capacity - 1 fit.", {"extra": 1}, {"extra": -1}
        ),
        Mistake("each token's choices were placed together", "All first choices come first.", by_token=True),
        Mistake("dropped choices got row 0", "Row 0 is a row of expert 0. Dropped choices get -1.", dropped=0),
        Mistake("the start of the buffer was left out", "Expert e starts at row e * capacity.", starts=False),
    ),
    hints={"values": "Number all first choices, then all second: a token that loses its first can keep its second."},
)

# ---------------------------------------------------------------- 11b.3 splits


def rows_between(counts, placement, own, placed):
    """[from, to]: rows from each rank to each rank. own: with those that stay. placed: by placement, not evenly."""
    ranks, experts = counts.shape
    owner = np.repeat(np.arange(ranks), placement) if placed else np.arange(experts) * ranks // experts
    table = np.stack([counts[:, owner == rank].sum(axis=1) for rank in range(ranks)], axis=1)
    return table if own else table * (1 - np.eye(ranks, dtype=int))


@returns(send="int64", receive="int64")
def dispatch_splits(counts, placement, rank, *, own=True, placed=True, sides=("row", "column")):
    table = rows_between(counts, placement, own, placed)
    splits = {"row": table[rank], "column": table[:, rank]}
    return splits[sides[0]], splits[sides[1]]


@returns(send="int64", receive="int64")
def combine_splits(counts, placement, rank, *, own=True, placed=True, sides=("row", "column")):
    send, receive = dispatch_splits(counts, placement, rank, own=own, placed=placed, sides=sides)
    return receive, send


def split_inputs(placement, rank):
    def make(rng):
        ranks, experts = len(placement), sum(placement)
        counts = rng.integers(0, 40_000, (ranks, experts)) * (rng.random((ranks, experts)) < 0.8)
        return {"counts": tensor(counts, "int64"), "placement": tensor(np.array(placement), "int64"), "rank": rank}

    return make


EDGES = tuple(((0, 3, 0, 2, 0), rank) for rank in (0, 4))  # ranks without experts, the first and the last
PLACEMENTS = (((2, 2, 2, 2), 1), ((3, 1, 4), 2), ((1, 5), 0), ((2, 0, 3, 1, 2), 3), *EDGES, ((4,), 0))
SPLITS = Task(
    id="11b.3",
    title="How many rows go where",
    points=3,
    functions={"dispatch_splits": dispatch_splits, "combine_splits": combine_splits},
    cases=tuple(
        Case(f"{name}, {' + '.join(map(str, placement))} experts, rank {rank}", split_inputs(placement, rank), name)
        for name in ("dispatch_splits", "combine_splits")
        for placement, rank in PLACEMENTS
    ),
    mistakes=(
        Mistake(
            "the two sides were exchanged",
            "In the dispatch a rank sends the rows of its own tokens, counts[rank]; on the way back it is the reverse.",
            sides=("column", "row"),
        ),
        Mistake(
            "both sides were the same",
            "One side depends on this rank's tokens, the other on the tokens of all ranks.",
            *({"sides": (side, side)} for side in ("row", "column")),
        ),
        Mistake("the rank's own part was left out", "An all-to-all also hands a rank its own rows.", own=False),
        Mistake(
            "the experts were not dealt out by placement",
            "The first placement[0] experts are on rank 0, the next placement[1] on rank 1.",
            placed=False,
        ),
    ),
    hints={"values": "Write down the table [from, to] of rows: the dispatch of one rank is a row and a column of it."},
)

# ---------------------------------------------------------------- 11b.4 what arrives, by expert


@returns(index="int64", offsets="int32", back="int64")
def regroup(received, *, transposed=False, reverse=False, exchanged=False, back_again=True, leading_zero=True):
    """transposed: read expert by expert. reverse: within an expert, the last row first."""
    ranks, experts = received.shape
    expert = np.repeat(np.tile(np.arange(experts), ranks), (received.T if transposed else received).ravel())
    arrival = np.arange(len(expert))
    index = np.lexsort((-arrival if reverse else arrival, expert))
    offsets = np.cumsum(np.append(0, received.sum(axis=0)))
    if not leading_zero:
        offsets = np.append(offsets[1:], offsets[-1])
    back = np.argsort(index) if back_again else index
    return (back, offsets, index) if exchanged else (index, offsets, back)


def arrivals(ranks, experts, limit=9, silent=(), empty=()):
    """The same number of rows at each turn. silent: ranks that sent nothing; empty: experts that got nothing."""
    sends = np.ones((ranks, experts), bool)
    sends[list(silent)] = sends[:, list(empty)] = False
    rows, places = int(sends.sum()) * limit // 2 + 2, np.argwhere(sends)

    def make(rng):
        received = rng.integers(0, limit, (ranks, experts)) * (rng.random((ranks, experts)) < 0.8) * sends
        received[-1, -1] = limit * sends[-1, -1]
        received[0, 0] = 2 * sends[0, 0]
        while missing := rows - received.sum():
            place = tuple(places[rng.integers(len(places))])
            received[place] += max(missing // len(places), 1) if missing > 0 else -min(1, received[place])
        return {"received": tensor(received, "int64")}

    return make


REGROUP = Task(
    id="11b.4",
    title="What arrives, by expert",
    points=3,
    functions={"regroup": regroup},
    cases=(
        *(Case(f"from {r} ranks, {e} experts", arrivals(r, e)) for r, e in ((4, 2), (3, 5), (2, 8), (1, 3), (6, 1))),
        Case("from 3 ranks, 6 experts, two of them without rows", arrivals(3, 6, silent=(1,), empty=(2, 5))),
        Case("from 4 ranks, 3 experts, the first without rows", arrivals(4, 3, silent=(0, 3), empty=(0,))),
        Case("from 2 ranks, 3 experts, thousands of rows", arrivals(2, 3, 3000), hint=INTEGERS),
        Case("from 2 ranks, 200 experts", arrivals(2, 200, 4), hint=INTEGERS),
    ),
    mistakes=(
        Mistake("index and back were exchanged", "arrived[index] is in the order of the experts.", exchanged=True),
        Mistake("back was the same as index", "back is the inverse: back[index[i]] = i.", back_again=False),
        Mistake("received was read expert by expert", "Rows arrive as in received.flatten().", transposed=True),
        Mistake("the rows of an expert were not in the order of arrival", "Use a stable sort.", reverse=True),
        Mistake("offsets lacked its first 0", "Put a 0 first.", leading_zero=False, results=("offsets",)),
    ),
    hints={
        "form": "index and back: int64, a number per row. offsets: int32, also for experts without rows.",
        "values": "Write down what arrives from two ranks for two experts, and the order that regroup has to make.",
    },
)

# ---------------------------------------------------------------- 11b.5 traces

LINK, EXPERTS, ROWS = range(3)  # lanes
TICKS = 1024  # in a microsecond: sums and differences are exact


def lanes(spans):
    """(link [ranks, exchanges, 2], experts [ranks][n, 2]): begin and end of each span."""
    ends = np.stack([spans[:, 2], spans[:, 2] + spans[:, 3]], axis=1)
    ranks = range(int(spans[:, 0].max()) + 1)
    link, experts = ([ends[(spans[:, 0] == r) & (spans[:, 1] == lane)] for r in ranks] for lane in (LINK, EXPERTS))
    return np.stack([each[np.argsort(each[:, 0])] for each in link]), experts


def exposed(begin, end, busy):
    """How much of begin to end lies in no span of `busy`."""
    edges = sorted({begin, end, *(float(edge) for edge in np.ravel(busy) if begin < edge < end)})
    parts = [(low, high) for low, high in zip(edges, edges[1:]) if not any(a <= low and high <= b for a, b in busy)]
    return sum(high - low for low, high in parts)


def transfer_ends(link, begin, end):
    """When the rows of each exchange begin to travel, and when they have arrived. begin, end: of which rank."""
    begins, ends = link[:, :, 0], link[:, :, 1]
    done = {"latest": ends.max(axis=0), "first": ends[0]}[end]
    longest = (ends - begins).max(axis=0)
    return {"latest": begins.max(axis=0), "earliest": begins.min(axis=0), "own": done - longest}[begin], done


@returns(transfers="fp64", waits="fp64")
def exchanges(spans, *, begin="latest", end="latest"):
    link, _ = lanes(spans)
    ready, done = transfer_ends(link, begin, end)
    return done - ready, ready - link[:, :, 0]


@returns("experts", "waiting", "link")
def where_it_went(spans, *, begin="latest", end="latest", overlap=True, work="mean"):
    link, experts = lanes(spans)
    busy = np.concatenate(experts) if overlap else []
    ready, done = transfer_ends(link, begin, end)
    times = np.array([(each[:, 1] - each[:, 0]).sum() for each in experts])
    waits = (link[:, :, 0].max(axis=0) - link[:, :, 0]).sum(axis=1)
    works = {"mean": times.mean(), "largest": times.max(), "sum": times.sum(), "busy": times[times > 0].mean()}
    link_time = sum(exposed(first, last, busy) for first, last in zip(ready, done))
    return float(works[work]), float(waits.max()), float(link_time)


@returns("bottleneck")
def bottleneck(spans):
    return max(zip(where_it_went(spans), ("experts", "waiting", "link")))[1]


def random_step(rng, ranks, chunks, work, skew, transfer, idle=()):
    """Spans of a step. work: of a rank's matmuls; skew: the last rank has more; transfer: of all rows, one way;
    idle: ranks without matmuls."""

    def about(mean):
        return max(1, round(TICKS * mean * rng.uniform(0.9, 1.1))) / TICKS

    spans, link_free = [], [0.0] * ranks

    def exchange(ready, mean):
        start = [max(pair) for pair in zip(ready, link_free)]
        duration, last = about(mean), rng.integers(ranks)
        for rank in range(ranks):
            early = round(TICKS * rng.uniform(0, 0.02) * duration) / TICKS * (rank != last)
            link_free[rank] = max(start) + duration - early
            spans.append((rank, LINK, start[rank], link_free[rank] - start[rank]))
        return list(link_free)

    routed = [about(20) for _ in range(ranks)]
    spans += [(rank, ROWS, 0.0, routed[rank]) for rank in range(ranks)]
    now = exchange(routed, 12)
    arrived = [exchange(list(now), transfer / chunks) for _ in range(chunks)]
    done = []
    for chunk in range(chunks):
        now = [max(pair) for pair in zip(now, arrived[chunk])]
        for rank in set(range(ranks)) - set(idle):
            for part in (2 / 3, 1 / 3):
                duration = about(work * part / chunks * (1 + skew * (rank == ranks - 1)))
                spans.append((rank, EXPERTS, now[rank], duration))
                now[rank] += duration
        done.append(now)
    back = [exchange(ready, transfer / chunks) for ready in done][-1]
    spans += [(rank, ROWS, back[rank], about(15)) for rank in range(ranks)]
    return {"spans": tensor(rng.permutation(np.array(spans), axis=0), "fp64")}


def recorded_step(rng, routing, link):
    """A step that was traced on two H200s."""
    ranks = load_parallel("h200", 2).timeline(model="fine", routing=routing, link=link, chunks=1, part="whole").ranks
    lane = {"link": LINK, "experts": EXPERTS, "rows": ROWS}
    spans = [(rank, lane[span.lane], span.start, span.us) for rank, spans in enumerate(ranks) for span in spans]
    return {"spans": tensor(rng.permutation(np.array(spans), axis=0), "fp64")}


STEPS = {
    "matmuls take most": (2, 1, 900, 0.1, 120),
    "one rank has four times the rows": (4, 1, 300, 3.0, 100),
    "a slow link, chunks": (3, 4, 500, 0.05, 1000),
    "chunks hide most of a link": (2, 4, 800, 0.2, 600),
    "one rank of four has more rows": (4, 1, 300, 0.8, 60),
    "a rank without matmuls": (3, 2, 600, 0.1, 150, (1,)),
}
RECORDED = {
    "recorded, even routing": ("even", "NVLink"),
    "recorded, some experts preferred": ("zipf", "NVLink"),
    "recorded, through host memory": ("even", "host memory"),
}
LARGEST = {"bottleneck": "bottleneck names the largest of the three numbers that where_it_went returns for this step."}


def trace_cases(steps, make, functions):
    """One case for each function and step, make(rng, *step)."""
    return tuple(
        Case(f"{name}, {words}", lambda rng, step=step: make(rng, *step), name, LARGEST.get(name, ""))
        for name in functions
        for words, step in steps.items()
    )


TRACES = Task(
    id="11b.5",
    title="Where the time went",
    points=4,
    functions={"exchanges": exchanges, "where_it_went": where_it_went, "bottleneck": bottleneck},
    cases=(
        *trace_cases(STEPS, random_step, ("exchanges", "where_it_went", "bottleneck")),
        *trace_cases(RECORDED, recorded_step, ("where_it_went", "bottleneck")),
    ),
    mistakes=(
        Mistake(
            "the time in which a rank waits for a late one was counted as transfer",
            "A kernel of an exchange begins when its own rank is ready. Rows travel from the latest beginning on.",
            *({"begin": begin} for begin in ("earliest", "own")),
        ),
        Mistake("the end of an exchange was taken from one rank", "Take the latest end of all.", end="first"),
        Mistake("transfers during matmuls were counted", "Count the time in which no rank multiplies.", overlap=False),
        Mistake(
            "the time of the experts was not the mean over all ranks",
            "Add up the matmuls of each rank, then take the mean over all ranks, also those without matmuls.",
            *({"work": work} for work in ("largest", "sum", "busy")),
        ),
    ),
    hints={"values": "Draw a step of two ranks: who is ready, who waits, who multiplies? Spans come in any order."},
)

# ---------------------------------------------------------------- 11b.6 rows packed for their ranks


@returns(sent="x", local="int32")
def pack(x, experts, place, starts, per_rank, *, token="slot // top_k", number="of its rank"):
    """token: whose row a slot is taken for. number: which number of its expert goes along."""
    tokens, top_k = experts.shape
    slot, expert = np.arange(experts.size), experts.ravel()
    rows = starts[expert // per_rank] + place.ravel()
    numbers = {"of its rank": expert % per_rank, "of all": expert, "rank": expert // per_rank}
    sent, local = np.empty((len(slot), x.shape[1])), np.empty(len(slot))
    sent[rows], local[rows] = (
        x[{"slot // top_k": slot // top_k, "slot % tokens": slot % tokens}[token]],
        numbers[number],
    )
    return sent, local


def packing(tokens, top_k, hidden, ranks, per_rank, dtype="bf16", padding=0):
    """Random choices: of five experts or more, nobody chooses one."""

    def make(rng):
        experts = random_choices(rng, tokens, top_k, ranks * per_rank)
        owner = experts.ravel() // per_rank
        order = np.argsort(owner, kind="stable")
        starts = np.append(0, np.bincount(owner, minlength=ranks).cumsum())
        place = np.empty(owner.size, int)
        place[order] = np.arange(owner.size) - starts[owner[order]]
        return {
            "x": padded(rng.uniform(0.5 if hidden == 1 else -1, 1, (tokens, hidden)), dtype, padding),
            "experts": tensor(experts, "int32"),
            "place": tensor(place.reshape(tokens, top_k), "int32"),
            "starts": tensor(starts, "int32"),
            "per_rank": per_rank,
        }

    return make


def packed_bytes(x, experts, place, starts, per_rank):
    """With tiles of 128 columns, each of which reads the integers once more."""
    slots, tiles = experts.shape[0] * experts.shape[1], ceil(x.shape[1], 128)
    small = dict.fromkeys(("experts", "place"), 4 * slots * tiles)
    starts_bytes = max(4 * slots, starts.nbytes * MANY) * tiles
    results = {"returned 0": x.itemsize * slots * x.shape[1], "returned 1": 4 * slots * tiles}
    return {"x": x.nbytes, **small, "starts": starts_bytes, **results}


PACK = Task(
    id="11b.6",
    title="Pack rows for their ranks",
    points=4,
    functions={"pack": pack},
    kernel=True,
    cases=(
        Case("12 tokens, top-2, 256 wide, bf16, 4 ranks", packing(12, 2, 256, 4, 2)),
        Case("9 tokens, top-3, 100 wide, fp16, padded rows", packing(9, 3, 100, 2, 4, "fp16", 28), hint=PADDED),
        Case("10 tokens, top-6, 70 wide, bf16, 8 ranks", packing(10, 6, 70, 8, 3)),
        Case("5 tokens, top-1, 1 wide, fp32, a rank per expert", packing(5, 1, 1, 7, 1, "fp32")),
        Case("6 tokens, top-2, 33 wide, fp32, one rank", packing(6, 2, 33, 1, 4, "fp32")),
        Case("3 tokens, top-5, 1025 wide, bf16, 3 ranks", packing(3, 5, 1025, 3, 4)),
        Case(f"{MANY} tokens, top-2, 16 wide, bf16, 2 ranks", packing(MANY, 2, 16, 2, 3)),
    ),
    mistakes=(
        Mistake("a slot got the row of another token", "Slot s belongs to token s // top_k.", token="slot % tokens"),
        Mistake(
            "local did not hold the expert's number on its rank",
            "Expert e is number e % per_rank of rank e // per_rank.",
            *({"number": number} for number in ("of all", "rank")),
            results=("local",),
        ),
    ),
    minimum_bytes=packed_bytes,
    hints={
        "traffic": "A program loads its token's row once and stores it top_k times. One program per choice reads it "
        "top_k times.",
        "values": "Work through one token by hand: its experts, their ranks, starts, place, and so its rows.",
        "race": "Two slots never have the same row: starts[expert // per_rank] + place.",
        "unwritten": "Each slot has one row: starts[expert // per_rank] + place. Between them they fill all rows.",
        "out_of_bounds": "Mask the columns beyond the last one, and choices beyond top_k.",
    },
)

# ---------------------------------------------------------------- 11b.7 two ranks


@returns(rank_0="rows_0", rank_1="rows_1")
def scaled_by_experts(rows_0, counts_0, scale_0, rows_1, counts_1, scale_1, *, way="right"):
    """way: whose scale a row meets."""
    results, scale, per_rank = [], np.concatenate([scale_0, scale_1]), len(scale_0)
    received = np.stack([counts_0, counts_1]).astype(int)
    for rank, rows in enumerate((rows_0, rows_1)):
        factor = np.repeat(scale, received[rank])
        if way == "own":
            factor = np.repeat(np.tile((scale_0, scale_1)[rank], 2), received[rank])
        elif way == "expert by expert":  # where rows arrive rank by rank
            parts = []
            for owner in (0, 1):
                mine = received[:, owner * per_rank : (owner + 1) * per_rank]
                arrived = np.repeat(np.repeat(scale[owner * per_rank :][:per_rank], 2), mine.T.ravel())
                parts.append(arrived[mine[:rank].sum() :][: mine[rank].sum()])
            factor = np.concatenate(parts)
        results.append(rows * (1 if way == "none" else factor[:, None]))
    return results


def two_ranks(tokens, per_rank, hidden, without=(), silent=()):
    """Rows of both ranks, sorted by expert. without: experts that get no row; silent: ranks that have none."""

    def make(rng):
        arguments = {}
        for rank in (0, 1):
            chosen = np.setdiff1d(np.arange(2 * per_rank), without)
            counts = np.bincount(rng.choice(chosen, tokens + 3 * rank), minlength=2 * per_rank)
            counts *= rank not in silent
            arguments[f"rows_{rank}"] = tensor(rng.uniform(-1, 1, (counts.sum(), hidden)))
            arguments[f"counts_{rank}"] = tensor(counts, "int64")
            arguments[f"scale_{rank}"] = tensor(rng.uniform(0.5, 2, per_rank))
        return arguments

    return make


TWO_RANKS = Task(
    id="11b.7",
    title="Dispatch and combine on two ranks",
    points=4,
    functions={"scaled_by_experts": scaled_by_experts},
    cases=(
        Case("12 and 15 rows, 4 experts, 8 wide", two_ranks(12, 2, 8)),
        Case("40 and 43 rows, 6 experts, 33 wide", two_ranks(40, 3, 33)),
        Case("9 and 12 rows, 2 experts, 1 wide", two_ranks(9, 1, 1)),
        Case("20 and 23 rows, all for rank 1", two_ranks(20, 2, 5, without=(0, 1)), hint="A rank may get no row."),
        Case(
            "rank 0 has no rows", two_ranks(10, 2, 4, silent=(0,)), hint="A rank without rows takes part all the same."
        ),
    ),
    mistakes=(
        Mistake("rows met the scales of their own rank", "Send them to the rank of their expert first.", way="own"),
        Mistake(
            "the scales of the rows that arrived were in another order",
            "Rows arrive rank by rank, and from each rank expert by expert.",
            way="expert by expert",
        ),
        Mistake(
            "rows came back as they were", "Multiply each row by its expert's scale before it goes back.", way="none"
        ),
    ),
    hints={
        "values": "Print on each rank what it sends and what it receives: first the counts, then the rows.",
        "form": "Each rank returns as many rows as it has, in the order in which it has them.",
        "exception": "Each side has to announce what the other one sends: output_split_sizes of one rank are "
        "input_split_sizes of the other. Both ranks have to make the same calls. Keep @each_rank above the function.",
    },
)

TASKS = (HAND, PLACE, SPLITS, REGROUP, TRACES, PACK, TWO_RANKS)
