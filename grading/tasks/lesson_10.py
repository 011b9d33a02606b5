"""Exercise 10: waves and parts counted, a split-K with uneven parts, orders of additions, a plan, a skinny matmul."""

from itertools import permutations

import numpy as np

from grading.tasks import TILE, Case, Mistake, RandomTensor, Speed, Task, ceil, one_of, returns, rounded, tensor
from grading.tasks.properties import PROGRAMS

EXERCISE = "10_matmul_in_practice"

# ---------------------------------------------------------------- 10.1 count


@returns("waves")
def waves(m, n, block_m, block_n, parts, sms, *, count=ceil, split=True):
    """Programs over SMs, rounded up: a program per tile and part."""
    return ceil(count(m, block_m) * count(n, block_n) * (parts if split else 1), sms)


@returns("share")
def useful_share(m, n, block_m, block_n, sms, *, rounding="both"):
    """Elements of c over those that whole waves of whole tiles would compute."""
    tiles = ceil(m, block_m) * ceil(n, block_n)
    slots = {"both": ceil(tiles, sms) * sms, "tiles": tiles}.get(rounding, 0)
    return tiles / (ceil(tiles, sms) * sms) if rounding == "waves" else m * n / (slots * block_m * block_n)


@returns("bytes")
def split_bytes(m, n, k, itemsize, parts, *, passes=2, partial=4, always=False):
    """Each byte of a, b and c once, and fp32 partial sums written and read where there are several parts."""
    sums = parts * m * n * (partial or itemsize) * passes if parts > 1 or always else 0
    return (m * k + k * n + m * n) * itemsize + sums


@returns("steps")
def stream_steps(m, n, k, block_m, block_n, block_k, sms, *, share=ceil, whole_tiles=False):
    """Steps along K of the busiest program, where all programs share all steps of all tiles."""
    tiles, steps = ceil(m, block_m) * ceil(n, block_n), ceil(k, block_k)
    return ceil(tiles, sms) * steps if whole_tiles else share(tiles * steps, sms)


BLOCKS = (32, 64, 128, 256)


def sizes(rng, *names):
    """Sizes that no block divides, of more than one wave."""
    block_m, block_n, sms = one_of(rng, *BLOCKS), one_of(rng, *BLOCKS), one_of(rng, 46, 108, 132)
    every = {
        "m": block_m * one_of(rng, 9, 11, 13) + one_of(rng, 1, 5, 31),
        "n": block_n * one_of(rng, 17, 19, 23) + one_of(rng, 1, 7, 30),
        "k": 64 * one_of(rng, 21, 22, 25) + one_of(rng, 1, 33, 63),
        "block_m": block_m,
        "block_n": block_n,
        "block_k": 64,
        "itemsize": one_of(rng, 1, 2),
        "parts": one_of(rng, 3, 5, 7),
        "sms": sms,
    }
    return {name: every[name] for name in names}


def drawn(function):
    """A `make` of the sizes that a function takes."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return lambda rng: sizes(rng, *names)


COUNT = Task(
    id="10.1",
    title="Count waves, shares, partial sums and steps",
    points=3,
    functions={of.__name__: of for of in (waves, useful_share, split_bytes, stream_steps)},
    cases=(
        *(
            Case(f"{of.__name__}, {which} sizes", drawn(of), of.__name__)
            for of in (waves, useful_share, split_bytes, stream_steps)
            for which in ("some", "other")
        ),
        Case("waves, one small tile", lambda rng: dict(m=1, n=8, block_m=64, block_n=64, parts=1, sms=132), "waves"),
        Case("split_bytes, one part", lambda rng: sizes(rng, "m", "n", "k", "itemsize") | {"parts": 1}, "split_bytes"),
    ),
    mistakes=(
        Mistake("tiles were rounded down", "A ragged edge needs a tile, too: round up.", count=int.__floordiv__),
        Mistake("the parts are missing from the grid", "Each part of a tile is a program of its own.", split=False),
        Mistake(
            "only one of the two roundings was counted",
            "Round c up to whole tiles and the tiles up to whole waves; the useful elements are m * n.",
            {"rounding": "tiles"},
            {"rounding": "waves"},
        ),
        Mistake(
            "partial sums were counted wrongly",
            "Several parts write parts * m * n sums of 4 bytes, and the second launch reads them. One part has none.",
            {"passes": 1},
            {"partial": 0},
            {"always": True},
        ),
        Mistake(
            "whole tiles were given to programs",
            "Stream-K divides the steps of all tiles: ceil(tiles * steps / sms).",
            {"whole_tiles": True},
            {"share": int.__floordiv__},
        ),
    ),
    hints={
        "form": "Waves, bytes and steps are ints: use //. The share is a float between 0 and 1.",
        "values": "Count two tiles of two steps on three SMs by hand.",
    },
)

# ---------------------------------------------------------------- 10.2 split-K with uneven parts


@returns(partial="fp32", c="fp16")
def split_k(a, b, bounds, *, over=0, under=0, added="all"):
    """partial [parts, M, N] of bounds[p] <= k < bounds[p + 1], and their sum.

    over, under: parts rounded up or down to whole tiles of this width. added: which parts c has; "rounded" rounds each
    to fp16 first, "in fp16" the sum after every part as well.
    """
    parts = []
    for first, last in zip(bounds[:-1].astype(int), bounds[1:].astype(int)):
        if over:
            last = min(first + ceil(last - first, over) * over, a.shape[1])
        if under:
            last = first + (last - first) // under * under
        parts.append(a[:, first:last] @ b[first:last])
    partial = np.array(parts)
    added_up = partial[added == "no first" : len(parts) - (added == "no last")]
    if added in ("rounded", "in fp16"):
        added_up = rounded(added_up, "fp16")
    c = np.zeros(partial.shape[1:])
    for part in added_up:
        c = rounded(c + part, "fp16") if added == "in fp16" else c + part
    return partial, c


def of_parts(m, n, bounds, row_stride=None, cancel=False):
    """Operands of one sign where a row has a single element, so that no sum is a small difference; cancel: the first
    part of two, of equal length, takes nearly all of the second one away."""

    def make(rng):
        low = 0.25 if n < 16 or cancel else -1
        a, b = rng.uniform(low, 1, (m, bounds[-1])), rng.uniform(low, 1, (bounds[-1], n))
        if cancel:
            a = np.hstack([-a[:, : bounds[1]], a[:, : bounds[1]]])
            b = np.vstack([b[: bounds[1]], b[: bounds[1]] + rng.uniform(1 / 32, 1 / 16, (bounds[1], n))])
        return {"a": tensor(a, "fp16", row_stride), "b": tensor(b, "fp16"), "bounds": tensor(np.array(bounds), "int32")}

    return make


def split_requests(a, b, bounds):
    """a once per 64 columns, b once; partial sums written and read; two bounds per program and 64 columns."""
    (m, k), n, parts = a.shape, b.shape[1], bounds.shape[0] - 1
    return {
        "a": m * k * 2 * ceil(n, 64),
        "b": k * n * 2,
        "bounds": 8 * parts * ceil(n, 32) + 256,
        "returned 0": 2 * 4 * parts * m * n,
        "returned 1": 2 * m * n,
    }


END = "A part ends at bounds[p + 1], not at K and not at a whole step: mask the loads of a and b by k < bounds[p + 1]."
EMPTY = "An empty part runs no step, and its zeros have to be stored: the second launch adds them."
SPLIT = Task(
    id="10.2",
    title="Split-K with uneven parts",
    points=5,
    functions={"split_k": split_k},
    kernel=True,
    cases=(
        Case("16 x 32, 2 parts of 64", of_parts(16, 32, (0, 64, 128))),
        Case("64 x 64, 4 parts of 64", of_parts(64, 64, (0, 64, 128, 192, 256))),
        Case("50 x 70, 3 uneven parts of K = 201", of_parts(50, 70, (0, 100, 137, 201)), hint=END),
        Case("17 x 33, a part without a step", of_parts(17, 33, (0, 40, 40, 90)), hint=EMPTY),
        Case("30 x 20, the first and the last part empty", of_parts(30, 20, (0, 0, 70, 70)), hint=EMPTY),
        Case("1 x 1, parts of 1", of_parts(1, 1, (0, 1, 2, 3))),
        Case("33 x 48, padded rows of a", of_parts(33, 48, (0, 65, 130), 141), hint="Use a.stride(0)."),
        Case("3 x 40, one part", of_parts(3, 40, (0, 77))),
        Case("20 x 24, 2 parts that nearly cancel", of_parts(20, 24, (0, 64, 128), cancel=True)),
        Case(f"2 x 16, {PROGRAMS} parts", of_parts(2, 16, tuple(range(PROGRAMS + 1)))),
    ),
    mistakes=(
        Mistake("parts go on to the end of a whole tile of K", END, over=TILE),
        Mistake("the last, ragged tile of a part was left out", "Round the steps of a part up.", under=TILE),
        Mistake("c lacks the last part", "Add all parts, 0 to parts - 1.", added="no last", results=("c",)),
        Mistake("c lacks the first part", "Add all parts, 0 to parts - 1.", added="no first", results=("c",)),
        Mistake(
            "c was added up in fp16",
            "Load the parts and add them in fp32. Convert to fp16 once, at the store.",
            {"added": "rounded"},
            {"added": "in fp16"},
            results=("c",),
        ),
    ),
    minimum_bytes=split_requests,
    max_tile=(64, 64),
    hints={
        "unwritten": "Store the sum of every part, also of an empty one, and every element of c.",
        "out_of_bounds": END + " Mask rows by M and columns by N.",
        "traffic": "Read a and b once: a program takes up to 64 columns of one part. Add parts in a second launch.",
        "values": "partial[p] sums over bounds[p] <= k < bounds[p + 1] in fp32; c is the fp32 sum of all parts.",
    },
)

# ---------------------------------------------------------------- 10.3 the order of additions


@returns("sums")
def distinct_sums(values, *, number=np.float32, fixed=False, pairs=False):
    """How many different sums the orders of adding fp32 values one after the other have; pairs: sums of sums too."""
    if pairs:
        return len(sums_of_sums([np.float32(value) for value in values]))
    sums = set()
    for order in [tuple(values)] if fixed else permutations(values):
        total = number(0)
        for value in order:
            total = number(total + number(value))
        sums.add(float(total))
    return len(sums)


def sums_of_sums(values):
    """All sums of fp32 values, however they are put in brackets."""
    if len(values) == 1:
        return set(values)
    sums = set()
    for chosen in range(1, 1 << len(values) - 1):  # the last value is always in the other half
        left = [v for i, v in enumerate(values) if chosen >> i & 1]
        right = [v for i, v in enumerate(values) if not chosen >> i & 1]
        sums |= {np.float32(p + q) for p in sums_of_sums(left) for q in sums_of_sums(right)}
    return sums


@returns("answer")
def bits_change(reduction, accumulator, parts, parts_from_rows, *, two="commute", integers="exact", batch=True):
    """When the bits of a split-K may change: "between runs", "between batches" or "never"."""
    if accumulator == "int32" and integers == "exact":
        return "never"
    if reduction == "atomics" and parts > (2 if two == "commute" else 1):
        return "between runs"
    return "between batches" if parts_from_rows and batch else "never"


def values_of(count, close=False):
    """fp32 values whose sums depend on the order. close: two values, which commute."""

    def make(rng):
        drawn = rng.sizes.normal(0, 1, count).astype(np.float32) * np.float32(10.0) ** rng.sizes.integers(0, 4, count)
        return {"values": [float(np.float32(value)) for value in drawn]}

    return make


def launch(reduction, accumulator, parts, parts_from_rows):
    return lambda rng: {
        "reduction": reduction,
        "accumulator": accumulator,
        "parts": parts,
        "parts_from_rows": parts_from_rows,
    }


LAUNCHES = (
    ("atomics", "fp32", 8, False),
    ("atomics", "fp32", 64, True),
    ("atomics", "fp32", 2, False),
    ("atomics", "fp32", 2, True),
    ("atomics", "fp32", 1, False),
    ("atomics", "int32", 16, True),
    ("atomics", "int32", 16, False),
    ("fixed order", "fp32", 8, True),
    ("fixed order", "fp32", 8, False),
    ("fixed order", "int32", 32, True),
    ("atomics", "fp32", 3, False),
)
ORDER = Task(
    id="10.3",
    title="Find the nondeterminism",
    points=3,
    functions={"distinct_sums": distinct_sums, "bits_change": bits_change},
    cases=(
        *(Case(f"distinct_sums of {n} values", values_of(n), "distinct_sums") for n in (1, 2, 3, 5, 6)),
        Case(
            "distinct_sums of 2**24, 1, 1 and -2**24",
            lambda rng: {"values": [16777216.0, 1.0, 1.0, -16777216.0]},
            "distinct_sums",
        ),
        Case(
            "distinct_sums of 2**24, 1, 1, 1, 1 and 1",
            lambda rng: {"values": [16777216.0, 1.0, 1.0, 1.0, 1.0, 1.0]},
            "distinct_sums",
        ),
        *(
            Case(f"{way[0]}, {way[1]}, {way[2]} parts{', by rows' * way[3]}", launch(*way), "bits_change")
            for way in LAUNCHES
        ),
    ),
    mistakes=(
        Mistake("sums were not rounded to fp32", "Round after every addition: np.float32 or a tensor.", number=float),
        Mistake(
            "a single order was tried, or sums of sums were counted",
            "Try every permutation of the values; each value is added to the accumulator by itself.",
            {"fixed": True},
            {"pairs": True},
        ),
        Mistake(
            "two atomic parts were taken to depend on the order",
            "0 + p + q and 0 + q + p round the same numbers: addition commutes. Three parts are needed.",
            two="differ",
        ),
        Mistake(
            "integers were taken to depend on the order",
            "Adding integers is exact, so any order and any split give the same bits.",
            integers="rounded",
        ),
        Mistake(
            "the batch was left out",
            "If the rows of a decide how many parts there are, a row in another batch is rounded elsewhere.",
            batch=False,
        ),
    ),
    hints={
        "form": "distinct_sums returns an int, bits_change one of the three strings.",
        "values": "What is rounded, and does timing or the batch decide where?",
    },
)  # fmt: skip

# ---------------------------------------------------------------- 10.4 a plan


@returns("parts")
def best_parts(m, n, k, block_m, block_n, block_k, sms, *, waved=True, adding=2, last=False, count=ceil):
    """The number of parts per tile with the lowest cost; of several, the lowest number. adding: the fewest parts that
    are added up; 0 for none."""
    tiles, steps = ceil(m, block_m) * ceil(n, block_n), ceil(k, block_k)

    def cost(parts):
        waves = ceil(tiles * parts, sms) if waved else 1
        return waves * count(steps, parts) + (parts if adding and parts >= adding else 0)

    return min(range(1, steps + 1), key=lambda parts: (cost(parts), -parts if last else parts))


@returns("seconds")
def tuning_seconds(shapes, configs, seconds, bucketed, *, key="shape", power="up"):
    """Distinct keys times configs times seconds. key: "calls" counts every call, "rows" M alone, "no K" M and N.
    power: "all" rounds N and K up as well."""
    up = (lambda m: 1 << m.bit_length()) if power == "over" else (lambda m: 1 << (m - 1).bit_length())
    keys = [(up(m) if bucketed else m, n, k) for m, n, k in shapes]
    if bucketed and power == "all":
        keys = [tuple(map(up, shape)) for shape in shapes]
    keys = keys if key == "calls" else {of[: {"rows": 1, "no K": 2}.get(key)] for of in keys}
    return float(len(keys) * configs * seconds)


def planned(m, n, k, block=64, sms=132):
    return lambda rng: {
        "m": m,
        "n": n,
        "k": k + one_of(rng.sizes, 0, 1, 5),
        "block_m": block,
        "block_n": block,
        "block_k": 64,
        "sms": sms,
    }


def traffic_of_a_server(bucketed):
    """Calls whose rows repeat; powers of two among them; four layers, whose N or K is shared or in one bucket."""

    def make(rng):
        rows = [one_of(rng.sizes, *range(1, 300)) for _ in range(40)] + [1, 2, 64, 64, 128, 129, 256]
        layers = [(15360, 5120), (5120, 5120), (13824, 5120), (5120, 13824)]  # of a model of 13B parameters
        shapes = [(m, *layers[one_of(rng.sizes, 0, 1, 2, 3)]) for m in rows] + [(64, *of) for of in layers]
        return {"shapes": shapes, "configs": one_of(rng.sizes, 3, 5), "seconds": 0.125, "bucketed": bucketed}

    return make


PLAN = Task(
    id="10.4",
    title="Choose a plan, and price a tuner",
    points=3,
    functions={"best_parts": best_parts, "tuning_seconds": tuning_seconds},
    cases=(
        Case("a single tile", planned(64, 64, 16384), "best_parts"),
        Case("20 tiles on 132 SMs", planned(256, 320, 4096), "best_parts"),
        Case("144 tiles on 132 SMs", planned(768, 768, 8192), "best_parts"),
        Case("many tiles", planned(4096, 4096, 1024), "best_parts"),
        Case("a short K", planned(64, 128, 60), "best_parts"),
        Case("a single tile of 4 or 5 steps", planned(64, 64, 256), "best_parts"),
        Case("70 tiles on 46 SMs, ragged", planned(430, 600, 3000, sms=46), "best_parts"),
        Case("every shape is a key", traffic_of_a_server(False), "tuning_seconds"),
        Case("rows rounded up to a power of two", traffic_of_a_server(True), "tuning_seconds"),
        Case(
            "rows 32, 40, 64 and 100",
            lambda rng: {
                "shapes": [(m, 4096, 4096) for m in (32, 40, 64, 100)],
                "configs": 4,
                "seconds": 0.25,
                "bucketed": True,
            },
            "tuning_seconds",
        ),
    ),
    mistakes=(
        Mistake(
            "the cost has a wrong factor, term or rounding",
            "It is waves * ceil(steps / parts), plus parts if there are several.",
            {"waved": False},
            {"adding": 0},
            {"adding": 1},
            {"count": int.__floordiv__},
        ),
        Mistake("of equal costs the most parts were taken", "Take the fewest parts: fewer bytes.", last=True),
        Mistake(
            "every call was tuned",
            "The tuner keeps its choice: a key is timed once, however often it comes.",
            key="calls",
        ),
        Mistake(
            "the key lacks N or K",
            "Two layers are two keys, also with the same rows.",
            {"key": "rows"},
            {"key": "no K"},
        ),
        Mistake(
            "buckets were made wrongly",
            "Only M is rounded up to a power of two, and 64 stays 64.",
            {"power": "over"},
            {"power": "all"},
        ),
    ),
    hints={
        "form": "best_parts returns an int, tuning_seconds a float.",
        "values": "Write down the costs of 1, 2, 3 parts.",
    },
)

# ---------------------------------------------------------------- 10.5 a skinny matmul

TIMED = 8192


@returns(y="fp16")
def skinny(weight, x, *, tile=0, transposed=False):
    """weight @ x.T [N, tokens]; tile: columns up to the last whole tile."""
    end = weight.shape[1] // tile * tile if tile else weight.shape[1]
    y = weight[:, :end] @ x[:, :end].T
    return y.T.reshape(y.shape) if transposed else y


def few_tokens(rows, columns, tokens, padding=0):
    """One sign where a row of y has a single element."""

    def make(rng):
        low = 0.25 if tokens == 1 else -1
        stride = columns + padding if padding else None
        return {
            "weight": tensor(rng.uniform(low, 1, (rows, columns)), "fp16", stride),
            "x": tensor(rng.uniform(low, 1, (tokens, columns)), "fp16"),
        }

    return make


def skinny_bytes(weight, x):
    rows, tokens = weight.shape[0], x.shape[0]
    return {"weight": weight.nbytes, "x": x.nbytes * ceil(rows, 4), "returned 0": 2 * rows * tokens}


SKINNY = Task(
    id="10.5",
    title="A few tokens at the speed of the weight",
    points=4,
    functions={"skinny": skinny},
    kernel=True,
    cases=(
        Case("64 x 512, 1 token", few_tokens(64, 512, 1)),
        Case("32 x 256, 4 tokens", few_tokens(32, 256, 4)),
        Case("37 x 700, 2 tokens", few_tokens(37, 700, 2), hint="Round rows and columns up, and mask with other=0.0."),
        Case("1 x 1, 1 token", few_tokens(1, 1, 1)),
        Case("9 x 1,025, 3 tokens", few_tokens(9, 1025, 3), hint="Three tokens do not fill a tile of four."),
        Case("20 x 300, 2 tokens, padded rows", few_tokens(20, 300, 2, 7), hint="Use weight.stride(0)."),
        Case("2 x 20,000, 1 token", few_tokens(2, 20_000, 1), hint="Loop over all columns, and accumulate in fp32."),
        Case(f"{16 * PROGRAMS} x 32, 2 tokens", few_tokens(16 * PROGRAMS, 32, 2)),
    ),
    mistakes=(
        Mistake("the last tile of columns was left out", "Round the number of steps up.", tile=TILE),
        Mistake("y is stored by tokens", "y is [rows, tokens]: row n has all tokens.", transposed=True),
    ),
    minimum_bytes=skinny_bytes,
    hints={
        "traffic": "Load each tile of the weight once for all tokens, and at least 4 rows of it per program.",
        "values": "Accumulate in fp32, one sum per row and token.",
        "unwritten": "Store all tokens of all rows, also of the last, ragged tile.",
        "slow": "Make the tile wide along the columns, keep a tile of partial sums, and reduce once behind the loop.",
    },
    speed=Speed(
        points=1,
        share=0.5,
        bytes=TIMED * TIMED * 2,
        shape=f"{TIMED:,} x {TIMED:,}, 2 tokens, fp16",
        make=lambda: {
            "weight": RandomTensor((TIMED, TIMED), "fp16"),
            "x": RandomTensor((2, TIMED), "fp16", whole=True),
        },
    ),
)

TASKS = (COUNT, SPLIT, ORDER, PLAN, SKINNY)
