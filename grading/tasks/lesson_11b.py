"""Exercise 11b, experts over several GPUs: counted by hand, cut off at a capacity, sent, put in order, and looked for
in a trace where the time went."""

import numpy as np

from grading.tasks import Case, Slip, Task, gives, tensor
from instruments.results import load_parallel

EXERCISE = "11b_expert_parallel"

# ---------------------------------------------------------------- 11b.1 by hand

CAPACITY = "Even loads would be tokens * top_k / experts rows for each expert; the capacity is 1.25 of that."
EVEN = "A GPU's 1,024 tokens have 2,048 rows of 8,192 bytes. Which part of them goes to itself?"
RANK = "GPU r has experts 2 r and 2 r + 1: add the loads of each pair."

#: letter: the right number, what to think of, {a wrong number: what it says}
BY_HAND = {
    "a": (
        1280,
        CAPACITY,
        {
            640: "Each of the 4,096 tokens makes two choices.",
            320: "The tokens of all four GPUs count: 4,096.",
            1024: "That is the even load: the factor is missing.",
            10240: "Divide by the number of experts.",
        },
    ),
    "b": (
        1792,
        "What is over the capacity of a, of each expert that is over it.",
        {2048: "That is over the even load, not over the capacity.", 0: "Expert 0 has more rows than the capacity."},
    ),
    "c": (3584, RANK, {3072: "That is an expert's load. A GPU has two experts.", 2048: "That is the mean over GPUs."}),
    "d": (
        1.75,
        "The busiest GPU's rows over the mean: 8,192 rows on four GPUs.",
        {3.0: "That is expert 0 over the mean of the experts: GPUs are asked for.", 1.5: "GPU 0 has a second expert."},
    ),
    "e": (
        3328,
        "Expert 0 has to be somewhere. Which one is best put beside it?",
        {
            3584: "Another expert beside expert 0 gives less.",
            2048: "That is the mean, and expert 0 alone is more.",
            3072: "Two experts are on each GPU.",
        },
    ),
    "f": (
        12_582_912,
        EVEN,
        {
            16_777_216: "A quarter of the rows stays where it is: it crosses no link.",
            6_291_456: "Each token is sent to two experts.",
            4_194_304: "That is what stays: the other three quarters are sent.",
            25_165_824: "Dispatch alone is asked for, not the way back.",
            50_331_648: "That is what all four GPUs send together.",
        },
    ),
    "g": (
        12_582_912 / 450e3,
        "The bytes of f over 450 GB/s, in microseconds.",
        {
            16_777_216 / 450e3: "What stays on the GPU crosses no link.",
            12_582_912 / 450e9: "That is in seconds.",
            12_582_912 / 450e6: "That is in milliseconds.",
        },
    ),
    "h": (
        0.875,
        "One of n GPUs is the sender's own.",
        {
            0.75: "That is four GPUs: with eight more leaves.",
            1.0: "One eighth of the rows stays.",
            0.125: "That stays.",
        },
    ),
}
DIGITS = {"g": 0.01}  # how far off an answer may be, where it is no whole number


def hand_fault(arguments, returned):
    """What is wrong with the first number that is, and how many are."""
    if len(returned) != len(BY_HAND):
        came = f"{len(returned)} numbers" if len(returned) > 1 else "a single thing"
        return f"by_hand returned {came}, expected a tuple of {len(BY_HAND)} numbers: those of a to h, in this order"
    wrong = []
    for (letter, (right, thought, told)), came in zip(BY_HAND.items(), returned):
        if isinstance(came, bool) or not isinstance(came, (int, float)):
            return f"{letter} is no int and no float"
        near = DIGITS.get(letter, 1e-9)
        if not abs(came - right) <= near * right:
            said = next((words for number, words in told.items() if abs(came - number) <= near * number), thought)
            wrong.append(f"{letter} is not {came:.6g}. {said}")
    more = f" {len(wrong)} of {len(BY_HAND)} numbers are wrong." if len(wrong) > 1 else ""
    return f"{wrong[0]}{more}" if wrong else ""


HAND = Task(
    id="11b.1",
    title="Rows and bytes by hand",
    points=2,
    functions={"by_hand": None},
    verdict=hand_fault,
    cases=(Case("a to h", lambda rng: {}),),
    success="all eight numbers",
)

# ---------------------------------------------------------------- 11b.2 capacity


@gives(rows="int64")
def places(experts, num_experts, capacity):
    """Row of each choice in its expert's buffer, the first choices of all tokens before any second one; -1 beyond."""
    rows, taken = np.full(experts.shape, -1), np.zeros(num_experts, int)
    for choice in range(experts.shape[1]):
        for token in range(len(experts)):
            expert = experts[token, choice]
            if taken[expert] < capacity:
                rows[token, choice] = expert * capacity + taken[expert]
            taken[expert] += 1
    return rows


def of_capacity(tokens, top_k, num_experts, capacity):
    def make(rng):
        keys = rng.exponential(1, (tokens, num_experts)) * np.arange(1, num_experts + 1)
        experts = np.argsort(keys, axis=1)[:, :top_k]
        return {
            "experts": tensor(rng.permutation(num_experts)[experts], "int64"),
            "num_experts": num_experts,
            "capacity": capacity,
        }

    return make


def second_choice(rng):
    """Token 1 loses its first choice and keeps its second."""
    return {"experts": tensor(np.array([[0, 2], [0, 1]]), "int64"), "num_experts": 3, "capacity": 1}


KEPT = Task(
    id="11b.2",
    title="Cut off at a capacity",
    points=3,
    functions={"place": places},
    cases=(
        Case("12 tokens, top-2 of 4, capacity 6", of_capacity(12, 2, 4, 6)),
        Case("40 tokens, top-3 of 8, capacity 19", of_capacity(40, 3, 8, 19)),
        Case("9 tokens, top-1 of 3, capacity 2", of_capacity(9, 1, 3, 2)),
        Case("6 tokens, top-2 of 16, capacity 6", of_capacity(6, 2, 16, 6), hint="Here nothing is dropped."),
        Case("30 tokens, top-2 of 2, capacity 1", of_capacity(30, 2, 2, 1)),
        Case("2 tokens, of which one loses its first choice", second_choice, same=True),
        Case("3,000 tokens, top-2 of 3, capacity 1,500", of_capacity(3000, 2, 3, 1500)),
        Case("6,000 tokens, top-2 of 3, capacity 2,600", of_capacity(6000, 2, 3, 2600)),
    ),
    slips=(
        Slip(
            "one row too many was kept",
            "Rows 0 to capacity - 1 are kept: a place is kept where it is below the capacity, <.",
            "taken[expert] < capacity -> taken[expert] <= capacity",
            answer="place < capacity -> place <= capacity",
        ),
        Slip(
            "one row too few was kept",
            "An expert keeps as many rows as its capacity.",
            "taken[expert] < capacity -> taken[expert] < capacity - 1",
            answer="place < capacity -> place < capacity - 1",
        ),
        Slip(
            "the choices of a token were placed together",
            "The first choices of all tokens come before any second choice: number a transposed tensor.",
            (
                "for choice in range(experts.shape[1]): -> for token in range(len(experts)):",
                "        for token in range(len(experts)): ->         for choice in range(experts.shape[1]):",
            ),
            answer=("experts.T.flatten() -> experts.flatten()", "view(experts.T.shape).T -> view(experts.shape)"),
        ),
        Slip("nothing was dropped", "What does not fit gets -1.", "if taken[expert] < capacity: -> if True:"),
        Slip(
            "a token that lost a choice lost its next ones, too",
            "Each choice stands for itself: a token whose first expert was full may find room with its second.",
            "taken[expert] < capacity -> taken[expert] < capacity and (not choice or rows[token, 0] >= 0)",
            (
                "taken[expert] < capacity -> taken[expert] < capacity and (not choice or rows[token, 0] >= 0)",
                "taken[expert] += 1 -> taken[expert] += not choice or rows[token, 0] >= 0",
            ),
        ),
        Slip(
            "what is dropped got row 0",
            "Row 0 is the first expert's first row: what is dropped gets -1.",
            "np.full(experts.shape, -1) -> np.zeros(experts.shape, int)",
            answer="flat * capacity + place, -1) -> flat * capacity + place, 0)",
        ),
        Slip(
            "the capacity starts again with each choice",
            "An expert's rows are those of all choices: go on counting where the choice before ended.",
            "for choice in range(experts.shape[1]): -> for choice in range(experts.shape[1]):\n        taken[:] = 0",
        ),
        Slip(
            "the last tokens were kept, not the first",
            "Of one choice, the lower token comes first.",
            "for token in range(len(experts)): -> for token in range(len(experts))[::-1]:",
        ),
        Slip(
            "the place lacks the expert's start",
            "The buffer of expert e begins at row e * capacity.",
            "= expert * capacity + taken[expert] -> = taken[expert]",
            answer="flat * capacity + place -> place",
        ),
        Slip(
            "places are counted from 1",
            "The first row of a buffer is row 0: subtract the choice itself from the running sum.",
            "= expert * capacity + taken[expert] -> = expert * capacity + taken[expert] + 1",
            "np.zeros(num_experts, int) -> np.ones(num_experts, int)",
        ),
    ),
    hints={
        "dtype": "The rows are int64, as torch indexes with.",
        **dict.fromkeys(
            ("wrong", "some_rows", "tail"),
            "Write down the first choices of all tokens, then the second ones, and number each expert's.",
        ),
    },
)

# ---------------------------------------------------------------- 11b.3 splits


@gives(send="int64", receive="int64")
def dispatched(counts, placement, rank):
    owner = np.repeat(np.arange(len(placement)), placement)
    table = np.stack([counts[:, owner == to].sum(axis=1) for to in range(len(placement))], axis=1)
    return table[rank], table[:, rank]


@gives(send="int64", receive="int64")
def returned(counts, placement, rank):
    owner = np.repeat(np.arange(len(placement)), placement)
    table = np.stack([counts[:, owner == to].sum(axis=1) for to in range(len(placement))], axis=1)
    return table[:, rank], table[rank]


def of_placement(placement, rank):
    def make(rng):
        ranks, experts = len(placement), sum(placement)
        counts = rng.integers(0, 40_000, (ranks, experts)) * (rng.random((ranks, experts)) < 0.8)
        return {"counts": tensor(counts, "int64"), "placement": tensor(np.array(placement), "int64"), "rank": rank}

    return make


TABLE = "table = np.stack([counts[:, owner == to].sum(axis=1) for to in range(len(placement))], axis=1)"
EDGES = ((0, 3, 0, 2, 0), 0), ((0, 3, 0, 2, 0), 4)  # ranks without experts, the first and the last
PLACED = ((2, 2, 2, 2), 1), ((3, 1, 4), 2), ((1, 5), 0), ((2, 0, 3, 1, 2), 3), *EDGES, ((4,), 0)
SPLITS = Task(
    id="11b.3",
    title="How many rows go where",
    points=3,
    functions={"dispatch_splits": dispatched, "combine_splits": returned},
    cases=tuple(
        Case(f"{name}, {' + '.join(map(str, where))} experts, rank {rank}", of_placement(where, rank), name)
        for name in ("dispatch_splits", "combine_splits")
        for where, rank in PLACED
    ),
    slips=(
        Slip(
            "the two sides were exchanged",
            "counts[r] are the rows of rank r's own tokens: in the dispatch they are sent, and received is what all "
            "ranks have for this rank's experts. On the way back it is the other way round.",
            "return table[rank], table[:, rank] -> return table[:, rank], table[rank]",
            "return table[:, rank], table[rank] -> return table[rank], table[:, rank]",
        ),
        Slip(
            "both sides are the same",
            "What a rank sends depends on its own tokens, what it receives on those of all ranks.",
            "return table[rank], table[:, rank] -> return table[rank], table[rank]",
            "return table[rank], table[:, rank] -> return table[:, rank], table[:, rank]",
            "return table[:, rank], table[rank] -> return table[rank], table[rank]",
            "return table[:, rank], table[rank] -> return table[:, rank], table[:, rank]",
            functions=("dispatch_splits", "combine_splits"),
        ),
        Slip(
            "what stays on the rank was left out",
            "An all-to-all hands a rank its own part, too: it crosses no link, but its rows are among those of the "
            "tensor.",
            f"{TABLE} -> {TABLE} * (1 - np.eye(len(placement), dtype=int))",
            answer="table = torch.stack(parts, dim=1) -> table = torch.stack(parts, dim=1).fill_diagonal_(0)",
        ),
        Slip(
            "the experts were dealt out evenly",
            "placement says how many experts each rank has: the first placement[0] are rank 0's, the next "
            "placement[1] rank 1's.",
            "np.repeat(np.arange(len(placement)), placement) -> "
            "np.arange(counts.shape[1]) * len(placement) // counts.shape[1]",
            "np.repeat(np.arange(len(placement)), placement) -> "
            "np.minimum(np.arange(counts.shape[1]) // (counts.shape[1] // len(placement)), len(placement) - 1)",
        ),
        Slip(
            "the experts were dealt out in turn",
            "The experts of a rank are neighbours: the first placement[0] are rank 0's.",
            "np.repeat(np.arange(len(placement)), placement) -> np.arange(counts.shape[1]) % len(placement)",
        ),
        Slip(
            "the splits are of another rank",
            "Row `rank` of the counts is what this rank sends.",
            "return table[rank], table[:, rank] -> return table[0], table[:, 0]",
            "return table[:, rank], table[rank] -> return table[:, 0], table[0]",
        ),
    ),
    hints={
        "dtype": "Both are int64, as counts is.",
        "shape": "Both have a number for each rank: [ranks].",
        "wrong": "Make the table [from, to] of rows between all ranks: its row `rank` is sent in the dispatch, its "
        "column `rank` received.",
        "exception": "Ranks may have more experts or fewer than others, or none: a sum over nothing is 0.",
    },
)

# ---------------------------------------------------------------- 11b.4 what arrives, by expert


@gives(index="int64", offsets="int32", back="int64")
def regrouped(received):
    ranks, experts = received.shape
    expert = np.repeat(np.tile(np.arange(experts), ranks), received.ravel())
    index = np.argsort(expert, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(received.sum(axis=0))])
    return index, offsets, np.argsort(index)


def of_arrivals(ranks, experts, most=9, silent=(), empty=()):
    """silent: ranks that sent nothing; empty: experts that got nothing."""
    sends = np.ones((ranks, experts), bool)
    sends[list(silent)] = sends[:, list(empty)] = False
    rows = int(sends.sum()) * most // 2 + 2

    def make(rng):
        received = rng.integers(0, most, (ranks, experts)) * (rng.random((ranks, experts)) < 0.8) * sends
        received[-1, -1] = most * sends[-1, -1]
        received[0, 0] = 2 * sends[0, 0]
        return {"received": tensor(_same_total(rng, received, rows, np.argwhere(sends)), "int64")}

    return make


def _same_total(rng, received, total, places):
    """With so many rows in all: results have the same shape at each turn. places: where rows may be added or taken."""
    received = received.copy()
    while more := total - received.sum():
        place = tuple(places[rng.integers(len(places))])
        received[place] += max(more // len(places), 1) if more > 0 else -min(1, received[place])
    return received


INDEX = 'index = np.argsort(expert, kind="stable")'
REGROUP = Task(
    id="11b.4",
    title="What arrives, by expert",
    points=3,
    functions={"regroup": regrouped},
    cases=(
        Case("from 4 ranks, 2 experts", of_arrivals(4, 2)),
        Case("from 3 ranks, 5 experts", of_arrivals(3, 5)),
        Case("from 2 ranks, 8 experts", of_arrivals(2, 8, 30)),
        Case("from 1 rank, 3 experts", of_arrivals(1, 3)),
        Case("from 6 ranks, 1 expert", of_arrivals(6, 1)),
        Case("from 3 ranks, 6 experts, two of them without rows", of_arrivals(3, 6, silent=(1,), empty=(2, 5))),
        Case("from 4 ranks, 3 experts, the first without rows", of_arrivals(4, 3, silent=(0, 3), empty=(0,))),
        Case("from 2 ranks, 3 experts, thousands of rows", of_arrivals(2, 3, 3000)),
        Case("from 2 ranks, 200 experts", of_arrivals(2, 200, 4)),
    ),
    slips=(
        Slip(
            "index and back were exchanged",
            "arrived[index] is in the order of the experts: index[i] says where in what arrived row i of expert order "
            "lies. back is its inverse.",
            "return index, offsets, np.argsort(index) -> return np.argsort(index), offsets, index",
            answer="return index, offsets, back -> return back, offsets, index",
        ),
        Slip(
            "back is the same as index",
            "back undoes it: sorted[back] is what arrived, so back[index[i]] = i.",
            "return index, offsets, np.argsort(index) -> return index, offsets, index",
        ),
        Slip(
            "the rows were taken as if they lay by expert already",
            "First come all rows of rank 0, for its first expert here, then the second, and so on; then those of rank "
            "1.",
            "np.repeat(np.tile(np.arange(experts), ranks), received.ravel()) -> "
            "np.repeat(np.repeat(np.arange(experts), ranks), received.T.ravel())",
        ),
        Slip(
            "the counts were read by expert first",
            "received is [ranks, experts], and the rows lie in just this order: flatten it as it is.",
            "np.repeat(np.tile(np.arange(experts), ranks), received.ravel()) -> "
            "np.repeat(np.tile(np.arange(experts), ranks), received.T.ravel())",
            answer="received.flatten()) -> received.T.flatten())",
        ),
        Slip(
            "the rows of an expert are not in the order in which they came",
            "Stable: rank 0's rows before rank 1's, each in their order. torch.argsort takes stable=True.",
            f"{INDEX} -> index = np.lexsort((-np.arange(len(expert)), expert))",
        ),
        Slip(
            "offsets lack the 0 before the first expert",
            "offsets has experts + 1 numbers: 0, and the running sum.",
            "np.concatenate([[0], np.cumsum(received.sum(axis=0))]) -> "
            "np.concatenate([np.cumsum(received.sum(axis=0)), [received.sum()]])",
            results=("offsets",),
        ),
        Slip(
            "offsets are those of the ranks",
            "Each expert's rows are those of all ranks: add up along the ranks.",
            "np.cumsum(received.sum(axis=0)) -> np.cumsum(np.resize(received.sum(axis=1), experts))",
            results=("offsets",),
        ),
    ),
    hints={
        "dtype": "index and back are int64, as torch indexes with; offsets is int32, as a grouped product takes it.",
        **dict.fromkeys(
            ("wrong", "some_rows", "tail"),
            "Two ranks, two experts, one or two rows each: write down what arrives, row by row, and how it has to lie. "
            "The sort has to be stable, and offsets are running sums.",
        ),
        "shape": "index and back have a number for each row that arrives, offsets one for each expert and one more: "
        "experts without rows, too.",
    },
)

# ---------------------------------------------------------------- 11b.5 traces

LANES = LINK, EXPERTS, ROWS = 0, 1, 2
NAMES = dict(zip(("link", "experts", "rows"), LANES))
TICKS = 1024  # in a microsecond: sums and differences are exact


def lanes(spans):
    """(link [ranks, exchanges, 2], experts [ranks][n, 2]): begin and end of each span."""
    ranks = range(int(spans[:, 0].max()) + 1)
    ends = np.stack([spans[:, 2], spans[:, 2] + spans[:, 3]], axis=1)
    of = [[ends[(spans[:, 0] == rank) & (spans[:, 1] == lane)] for rank in ranks] for lane in (LINK, EXPERTS)]
    order = [each[np.argsort(each[:, 0])] for each in of[0]]
    return np.stack(order), of[1]


def outside(begin, end, others):
    """How much of begin to end lies in none of the others."""
    free = 0.0
    edges = sorted({begin, end, *(float(edge) for edge in np.ravel(others) if begin < edge < end)})
    for low, high in zip(edges, edges[1:]):
        if not any(first <= low and high <= last for first, last in others):
            free += high - low
    return free


@gives(transfers="fp64", waits="fp64", uses=(lanes,))
def exchanged(spans):
    link, _ = lanes(spans)
    ready = link[:, :, 0].max(axis=0)
    return link[:, :, 1].max(axis=0) - ready, ready - link[:, :, 0]


@gives("experts", "waiting", "link", uses=(lanes, outside))
def divided(spans):
    link, experts = lanes(spans)
    work = np.array([(each[:, 1] - each[:, 0]).sum() for each in experts])
    busy = np.concatenate(experts)
    ready, done = link[:, :, 0].max(axis=0), link[:, :, 1].max(axis=0)
    exposed = sum(outside(begin, end, busy) for begin, end in zip(ready, done))
    waits = (ready - link[:, :, 0]).sum(axis=1)
    return float(work.mean()), float(waits.max()), float(exposed)


@gives("bottleneck", uses=(lanes, outside, divided))
def found(spans):
    return max(zip(divided(spans), ("experts", "waiting", "link")))[1]


def step_of(rng, ranks, chunks, work, skew, transfer, idle=()):
    """Spans of a made-up step, in whole ticks, [n, 4]: rank, lane, start, duration. work: of a rank's products; skew:
    how much more the last rank has; transfer: of all rows, one way; idle: ranks without products."""

    def about(mean):
        return max(1, round(TICKS * mean * rng.uniform(0.9, 1.1))) / TICKS

    clock, free, spans = [about(20) for _ in range(ranks)], [0.0] * ranks, []

    def exchange(ready, mean):
        start = [max(one, other) for one, other in zip(ready, free)]
        took, last = about(mean), rng.integers(ranks)
        for rank in range(ranks):
            end = max(start) + took - round(TICKS * rng.uniform(0, 0.02) * took) / TICKS * (rank != last)
            spans.append((rank, LINK, start[rank], end - start[rank]))
            free[rank] = end
        return list(free)

    for rank in range(ranks):
        spans.append((rank, ROWS, 0.0, clock[rank]))
    arrived = exchange(clock, 12)
    come = [exchange(arrived, transfer / chunks) for _ in range(chunks)]
    done, at = [], list(arrived)
    for chunk in range(chunks):
        for rank in range(ranks):
            at[rank] = max(at[rank], come[chunk][rank])
            for part in () if rank in idle else (2 / 3, 1 / 3):
                took = about(work * part / chunks * (1 + skew * (rank == ranks - 1)))
                spans.append((rank, EXPERTS, at[rank], took))
                at[rank] += took
        done.append(list(at))
    for chunk in range(chunks):
        back = exchange(done[chunk], transfer / chunks)
    for rank in range(ranks):
        spans.append((rank, ROWS, back[rank], about(15)))
    return rng.permutation(np.array(spans), axis=0)


def of_step(*step):
    def make(rng):
        return {"spans": tensor(step_of(rng, *step), "fp64")}

    return make


def recorded(**wanted):
    """A step as it was traced on two H200s."""
    ranks = load_parallel("h200", 2).timeline(**wanted).ranks
    spans = [(rank, NAMES[s.lane], s.start, s.us) for rank, lane in enumerate(ranks) for s in lane]
    return lambda rng: {"spans": tensor(rng.permutation(np.array(spans), axis=0), "fp64")}


RECORDED = {
    "recorded, even routing": {"routing": "even", "link": "NVLink", "chunks": 1, "part": "whole"},
    "recorded, some experts preferred": {"routing": "zipf", "link": "NVLink", "chunks": 1, "part": "whole"},
    "recorded, through host memory": {"routing": "even", "link": "host memory", "chunks": 1, "part": "whole"},
}
STEPS = {
    "products are most": (2, 1, 900, 0.1, 120),
    "one rank has three times the rows": (4, 1, 300, 3.0, 100),
    "a slow link": (2, 1, 400, 0.1, 900),
    "a slow link, chunks": (3, 4, 500, 0.05, 1000),
    "chunks hide most of a link": (2, 4, 800, 0.2, 600),
    "one rank of four has more rows": (4, 1, 300, 0.8, 60),
    "a rank without products": (3, 2, 600, 0.1, 150, (1,)),
}
NAMED = {"bottleneck": "bottleneck names the largest of the three numbers that where_it_went gives for this step."}
TRACES = Task(
    id="11b.5",
    title="Where the time went",
    points=4,
    functions={"exchanges": exchanged, "where_it_went": divided, "bottleneck": found},
    cases=(
        *(
            Case(f"{name}, {words}", of_step(*step), name, hint=NAMED.get(name, ""))
            for name in ("exchanges", "where_it_went", "bottleneck")
            for words, step in STEPS.items()
        ),
        *(
            Case(f"{name}, {words}", recorded(model="fine", **wanted), name, hint=NAMED.get(name, ""))
            for name in ("where_it_went", "bottleneck")
            for words, wanted in RECORDED.items()
        ),
    ),
    slips=(
        Slip(
            "the waiting for a late rank was counted as time of the link",
            "An exchange's kernel begins when its own rank is ready, and waits there for the others: rows travel from "
            "the latest beginning on.",
            "link[:, :, 1].max(axis=0) - ready, -> (link[:, :, 1] - link[:, :, 0]).max(axis=0),",
            "ready, done = link[:, :, 0].max(axis=0), -> ready, done = link[:, :, 0].min(axis=0),",
            "link[:, :, 1].max(axis=0) - ready, -> link[0, :, 1] - link[0, :, 0],",
            "    ready = link[:, :, 0].max(axis=0) ->     ready = link[:, :, 0].min(axis=0)",
            answer="ready = start.amax(0) -> ready = start.amin(0)",
            functions=("exchanges", "where_it_went"),
        ),
        Slip(
            "an exchange's end was taken from one rank",
            "An exchange is over when its kernel has ended on every rank: the latest end.",
            "link[:, :, 1].max(axis=0) - ready, -> link[0, :, 1] - ready,",
            "link[:, :, 1].max(axis=0) - ready, -> link[-1, :, 1] - ready,",
            "link[:, :, 1].max(axis=0) - ready, -> link[:, :, 1].min(axis=0) - ready,",
            answer="return end.amax(0) - ready -> return end[0] - ready",
            functions=("exchanges",),
        ),
        Slip(
            "the first exchange was left out",
            "The counts' exchange is an exchange like the others: it has a transfer, and ranks wait in it.",
            "waits = (ready - link[:, :, 0]).sum(axis=1) -> waits = (ready - link[:, :, 0])[:, 1:].sum(axis=1)",
            functions=("where_it_went",),
        ),
        Slip(
            "a rank waits until the exchange is over",
            "It waits until the last rank is ready: latest beginning minus its own.",
            "ready - link[:, :, 0] -> link[:, :, 1].max(axis=0) - link[:, :, 0]",
            functions=("exchanges", "where_it_went"),
        ),
        Slip(
            "the waits are those since the first rank was ready",
            "The last rank waits 0, the others for it.",
            "ready - link[:, :, 0] -> link[:, :, 0] - link[:, :, 0].min(axis=0)",
            functions=("exchanges", "where_it_went"),
        ),
        Slip(
            "transfers under the products were counted too",
            "Only the part of a transfer counts in which no rank multiplies, none of all.",
            "sum(outside(begin, end, busy) -> sum(end - begin",
            "exposed = sum(outside(begin, end, busy) -> exposed = sum(outside(begin, end, experts[0])",
            "exposed = sum(outside(begin, end, busy) -> exposed = sum(outside(begin, end, experts[-1])",
            functions=("exchanges", "where_it_went"),
        ),
        Slip(
            "the products are those of one rank alone",
            "experts is the mean over all ranks, those without products, too; that one has more shows as waiting.",
            "float(work.mean()) -> float(work.max())",
            "float(work.mean()) -> float(work[0])",
            "float(work.mean()) -> float(work[work > 0].mean())",
            answer="work.mean().item(), -> work.max().item(),",
            functions=("where_it_went",),
        ),
        Slip(
            "the products of all ranks were added up",
            "The ranks multiply at the same time: their mean.",
            "float(work.mean()) -> float(work.sum())",
            functions=("where_it_went",),
        ),
        Slip(
            "the waiting of all ranks was added up, or averaged",
            "waiting is that of the rank that waits most.",
            "float(waits.max()) -> float(waits.sum())",
            "float(waits.max()) -> float(waits.mean())",
            answer="waits.sum(1).max().item() -> waits.sum().item()",
            functions=("where_it_went",),
        ),
        Slip(
            "the longest wait of each exchange was taken, whosever it is",
            "Add up each rank's waits first, and take the largest of the sums.",
            "waits = (ready - link[:, :, 0]).sum(axis=1) -> waits = (ready - link[:, :, 0]).max(axis=0).sum()",
            "waits = (ready - link[:, :, 0]).sum(axis=1) -> waits = (ready - link[:, :, 0]).max(axis=1)",
            functions=("where_it_went",),
        ),
    ),
    hints={
        "type": "where_it_went returns three Python floats, .item() of a tensor; bottleneck a string.",
        **dict.fromkeys(
            ("wrong", "some_rows", "tail"),
            "Draw one step of two ranks: who is ready when, from when on do rows travel, and who multiplies meanwhile?",
        ),
    },
)

TASKS = (HAND, KEPT, SPLITS, REGROUP, TRACES)
