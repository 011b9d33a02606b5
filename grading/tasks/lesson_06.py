"""Exercise 06: online softmax in PyTorch, merged, in kernels with a sink and under a causal mask, and its entropy."""

from functools import partial

import numpy as np

from grading.tasks import TILE, Case, DType, Mistake, RandomTensor, Speed, Task, returns, spread, tensor
from grading.tasks.arrays import STORAGE
from grading.tasks.properties import MANY, row_cases

EXERCISE = "06_online_softmax"
POWERS = ("one less than a power of two", "one more than a power of two", "a multiple of 128")
EMPTY = "-inf - (-inf) is NaN: where the maximum is -inf, put 0 in its place in the exponent, and do not divide by 0."
SUBTRACT = "exp overflows fp32 above 88: before exp, subtract from each row the maximum of all its columns."
RISES = "The running maximum never falls: m_new is the larger of m and the maximum of the tile."
LOW = "The first m, and the value of masked-out elements, have to lie below every logit: rows lie near -20,000."
RESCALE = "l was measured from m_old: multiply it by exp(m_old - m_new), then add the sum of the tile."
PADDING = "Load masked-out elements with other=-inf: they lose every maximum and add 0 to every sum."


def finite(maximum):
    """The maximum, and 0 in the place of -inf."""
    return np.where(np.isinf(maximum), 0, maximum)


def running_max(x, width):
    """For each element, the running maximum after its tile of columns."""
    ends = np.minimum(np.arange(x.shape[-1]) // width * width + width, x.shape[-1]) - 1
    return finite(np.maximum.accumulate(x, axis=-1)[..., ends])


def padded(x, width):
    """x with 0 in the masked-out elements of its last tile."""
    return np.pad(x, ((0, 0), (0, -x.shape[1] % width)))


# ---------------------------------------------------------------- inputs


def rows_of(rows, cols, dtype, row_stride=None, change=None, std=2.0, **more):
    """A random matrix, changed by an entry of CHANGES or by change(rng, x), and plain values."""

    def make(rng):
        x = rng.normal(0, std, (rows, cols))
        x = CHANGES.get(change, change)(rng, x) if change else x
        return {"x": tensor(x, dtype, row_stride), **more}

    return make


def first(columns, x, values, others):
    """`values` in the first columns of x, `others` in the rest."""
    return np.where(np.arange(x.shape[1]) < columns, values, others)


CHANGES = {
    "late": lambda rng, x: first(x.shape[1] - 40, x, x, 30.0),  # 40 equal maxima at the end: an entropy of log(40)
    "rising": lambda rng, x: x + np.linspace(-8, 8, x.shape[1]),  # the running maximum changes in every tile
    "huge": lambda rng, x: 20 * rng.integers(-500, 501, x.shape),  # in steps of 20: softmax is 1, or even shares of it
    "low": lambda rng, x: x - 2e4,
    "falling": lambda rng, x: first(64, x, x, x - 200),  # exp(200) is infinite in fp32
    "far": lambda rng, x: x + np.where(np.arange(len(x)) == 0, 1e4, -2e4)[:, None],
    "behind": lambda rng, x: first(4500, x, -np.inf, np.where(np.arange(len(x)) == 1, -np.inf, x.T).T),
}


def masked(rng, x):
    """The first row all -inf; the others -inf in their first 80 columns and, but for row 1, in a fifth of the rest."""
    x = np.where(np.arange(x.shape[1]) < 80, -np.inf, x)
    x[2:][rng.random(x[2:].shape) < 0.2] = -np.inf
    x[0], x[:, -1] = -np.inf, np.where(np.arange(len(x)), 1.0, -np.inf)
    return x


# ---------------------------------------------------------------- 06.1 three passes


@returns(y="fp32")
def three_passes(x, temperature, *, empty=0.0, warm=("sum", "output")):
    """Softmax of each row at a temperature; zeros for a row of -inf.

    empty: the output for a row of -inf. warm: the passes that divide by the temperature.
    """
    below = x - finite(x.max(axis=1, keepdims=True))
    total = np.exp(below / (temperature if "sum" in warm else 1)).sum(axis=1, keepdims=True)
    e = np.exp(below / (temperature if "output" in warm else 1))
    nothing = np.isinf(x).all(axis=1, keepdims=True)
    return np.where(nothing, empty, e / np.where(nothing, 1, total))


def in_blocks(rows, cols, dtype, block, temperature, change=None):
    """A matrix, a temperature and a number of columns per block."""
    return rows_of(rows, cols, dtype, change=change, temperature=temperature, block=block)


THREE_PASSES = Task(
    id="06.1",
    title="Safe softmax in three passes",
    points=3,
    functions={"three_passes": three_passes},
    cases=(
        Case("4 x 256 fp32, blocks of 64", in_blocks(4, 256, "fp32", 64, 1.0)),
        Case("3 x 1000 bf16, blocks of 128: a ragged last one", in_blocks(3, 1000, "bf16", 128, 0.7)),
        Case("5 x 1 fp16, one column", in_blocks(5, 1, "fp16", 64, 2.0)),
        Case("3 x 400 fp16, logits up to 10,000", in_blocks(3, 400, "fp16", 128, 0.125, "huge"), hint=SUBTRACT),
        Case("3 x 400 fp32, rows 30,000 apart", in_blocks(3, 400, "fp32", 128, 0.5, "far"), hint=SUBTRACT),
        Case("4 x 400 fp32, a row of -inf", in_blocks(4, 400, "fp32", 64, 0.5, masked)),
    ),
    mistakes=(
        Mistake("a row of -inf did not give zeros", EMPTY, empty=np.nan),
        Mistake(
            "the temperature was not applied in every pass",
            "The second and the third pass use the same exponentials: divide by the temperature in both.",
            {"warm": ()},
            {"warm": ("sum",)},
            {"warm": ("output",)},
        ),
    ),
    max_tile=lambda x, block, **rest: len(x) * block,
    hints={"traffic": "Slice a block of columns first, then convert it to fp32: `x[:, start:start + block].float()`."},
)

# ---------------------------------------------------------------- 06.2 the recurrence


@returns(m="fp32", l="fp32", o="fp32")
def absorb(m, l, o, tile, values, *, rescale="lo", shift="new", guard=True):  # noqa: E741
    """The state after one more tile.

    rescale: which of the two sums. shift: the maximum that the tile subtracts. guard: -inf is replaced in the exponent.
    """
    m_new = np.maximum(m, tile.max(axis=1))
    safe = finite(m_new) if guard else m_new
    factor = np.exp(m - safe)
    below = {"new": safe, "old": finite(m), "tile": finite(tile.max(axis=1))}[shift]
    e = np.exp(tile - below[:, None])
    l_new = l * (factor if "l" in rescale else 1) + e.sum(axis=1)
    return m_new, l_new, o * (factor if "o" in rescale else 1) + (e * values).sum(axis=1)


@returns(mean="fp32")
def softmax_mean(x, values, *, guard=True):
    """The mean of the values with the softmax of each row as weights; 0 for a row of -inf."""
    e = np.exp(x - finite(x.max(axis=1, keepdims=True)))
    total = e.sum(axis=1)
    return (e * values).sum(axis=1) / (np.where(total == 0, 1, total) if guard else total)


def state(rows, width, dtype, tile=0.0, empty=False, around=3.0):
    """The state of each row, with a maximum around `around`, and its next tile, around `tile` (one number, or one per
    row). empty: the state before the first tile."""

    def make(rng):
        l = np.zeros(rows) if empty else rng.uniform(1, 40, rows)  # noqa: E741
        return {
            "m": tensor(np.full(rows, -np.inf) if empty else rng.normal(around, 1, rows)),
            "l": tensor(l),
            "o": tensor(l * rng.uniform(0.5, 2, rows)),
            "tile": tensor(rng.normal(0, 1, (rows, width)) + np.asarray(tile)[..., None], dtype),
            "values": tensor(rng.uniform(0.5, 2, width)),
        }

    return make


def valued(rows, cols, dtype, block, **more):
    """A matrix and a value for each column."""
    matrix = rows_of(rows, cols, dtype, **more)
    return lambda rng: {**matrix(rng), "values": tensor(rng.uniform(0.5, 2, cols)), "block": block}


RECURRENCE = Task(
    id="06.2",
    title="One pass: absorb a tile",
    points=4,
    functions={"absorb": absorb, "softmax_mean": softmax_mean},
    cases=(
        Case("4 x 64 bf16, the first tile", state(4, 64, "bf16", empty=True)),
        Case("5 x 33 fp16, a tile above or below the maximum", state(5, 33, "fp16", tile=[12, -6, 9, -6, 0])),
        Case("3 x 32 fp32, a tile far above", state(3, 32, "fp32", tile=9000.0)),
        Case("3 x 32 fp32, -inf throughout for two rows", state(3, 32, "fp32", tile=[-np.inf, 0, -np.inf])),
        Case("2 x 32 fp32, the first tile, -inf in row 1", state(2, 32, "fp32", tile=[0, -np.inf], empty=True)),
        Case("4 x 32 fp32, all logits near -300", state(4, 32, "fp32", tile=-300.0, around=-300.0)),
        Case("4 x 256 fp32, blocks of 64", valued(4, 256, "fp32", 64), "softmax_mean"),
        Case("3 x 500 bf16, ragged", valued(3, 500, "bf16", 128), "softmax_mean"),
        Case("3 x 300 fp16, the largest at the end", valued(3, 300, "fp16", 64, change="late"), "softmax_mean"),
        Case("5 x 1 fp32, one column", valued(5, 1, "fp32", 64), "softmax_mean"),
        Case("3 x 300 fp32, logits up to 10,000", valued(3, 300, "fp32", 64, change="huge"), "softmax_mean"),
        Case("3 x 300 fp32, logits near -20,000", valued(3, 300, "fp32", 64, change="low"), "softmax_mean", hint=LOW),
        Case("3 x 300 fp32, all but 64 logits near -200", valued(3, 300, "fp32", 64, change="falling"), "softmax_mean"),
        Case("4 x 400 fp32, a row of -inf", valued(4, 400, "fp32", 64, change=masked), "softmax_mean", hint=EMPTY),
    ),
    mistakes=(
        Mistake("-inf as the maximum gave NaN", EMPTY, guard=False),
        Mistake(
            "l or o was not rescaled",
            "Both were measured from m_old: multiply both by exp(m_old - m_new) before you add the tile.",
            *({"rescale": sums} for sums in ("l", "o", "")),
        ),
        Mistake(
            "the tile did not subtract the new maximum",
            "Compute m_new = max(m, maximum of the tile) first, then exp(tile - m_new).",
            {"shift": "old"},
            {"shift": "tile"},
        ),
    ),
    max_tile=lambda x=None, tile=None, block=0, **rest: (
        len(tile) * max(16, tile.shape[1]) if x is None else len(x) * block
    ),
    hints={
        "values": "Take one row and two tiles, and follow m, l and o by hand: l and o are rescaled by exp(m - m_new)."
    },
)

# ---------------------------------------------------------------- 06.3 merge


@returns("m", "l", "o")
def merge(m_a, l_a, o_a, m_b, l_b, o_b, *, guard=True, rescale="lo", parts="ab"):
    """The state of a row from those of its two parts. rescale: which sums; parts: of which parts."""
    m = max(m_a, m_b)
    safe = 0.0 if guard and np.isinf(m) else m
    factors = {part: float(np.exp(of - safe)) if part in parts else 1.0 for part, of in (("a", m_a), ("b", m_b))}
    a, b = factors.values()
    l = l_a * a + l_b * b if "l" in rescale else l_a + l_b  # noqa: E741
    return m, l, o_a * a + o_b * b if "o" in rescale else o_a + o_b


def two(around_a, around_b):
    """The states of two random parts whose logits lie around these; -inf for an empty part."""

    def of(rng, around):
        if around == -np.inf:
            return -np.inf, 0.0, 0.0
        x, values = rng.normal(around, 1, int(rng.integers(20, 90))), rng.uniform(0.5, 2, 90)
        e = np.exp(x - x.max())
        return float(x.max()), float(e.sum()), float((e * values[: len(x)]).sum())

    return lambda rng: dict(zip(("m_a", "l_a", "o_a", "m_b", "l_b", "o_b"), (*of(rng, around_a), *of(rng, around_b))))


MERGE = Task(
    id="06.3",
    title="Merge two partial results",
    points=3,
    functions={"merge": merge},
    cases=(
        Case("the second part has the larger maximum", two(0, 3)),
        Case("the first part has the larger maximum", two(4, 0)),
        Case("logits near 5,000 and near -5,000", two(5000, -5000)),
        Case("logits near -5,000 and near 5,000", two(-5000, 5000)),
        Case("logits near -900 in both", two(-900, -901)),
        Case("the first part is empty", two(-np.inf, 2)),
        Case("the second part is empty", two(2, -np.inf)),
        Case("both parts are empty", two(-np.inf, -np.inf), hint="Return -inf, 0.0, 0.0 where both parts are empty."),
    ),
    mistakes=(
        Mistake("two empty parts gave NaN", EMPTY, guard=False),
        Mistake(
            "l or o of a part was not rescaled",
            "Multiply l and o of each part by exp(its maximum - m): either part may have the smaller maximum.",
            *({"rescale": sums} for sums in ("l", "o")),
            *({"parts": parts} for parts in ("a", "b", "")),
        ),
    ),
    hints={
        "exception": "If exp overflowed: math.exp raises OverflowError above 709. Subtract the larger maximum first.",
        "values": "Take the logits [1, 2] and [3], compute both states by hand, and compare with that of [1, 2, 3].",
    },
)

# ---------------------------------------------------------------- 06.4 the online kernel


@returns(y="out_dtype")
def sink_softmax(x, sink, *, with_sink=1, unscaled=0, padding=0):
    """Softmax of each row and its sink, without the share of the sink.

    unscaled, padding: the width of tiles whose old sums are not rescaled, or whose masked-out elements count as 0.
    """
    top = np.maximum(x.max(axis=1, keepdims=True), sink)
    e = np.exp(x - top)
    terms = np.exp(padded(x, padding) - top) if padding else e
    if unscaled:
        terms = np.exp(x - np.maximum(running_max(x, unscaled), sink))
    sink_e = 1 if unscaled else np.exp(sink - top)
    return e / (terms.sum(axis=1, keepdims=True) + with_sink * sink_e)


def sunk(dtype):
    """Rows with a sink logit for each, and the dtype of the result."""

    def of(rows, cols, from_dtype, row_stride=None, sink=1.0, **more):
        x = rows_of(rows, cols, from_dtype, row_stride, **more)
        return lambda rng: {**x(rng), "sink": tensor(rng.normal(sink, 1, (rows, 1))), "out_dtype": DType(dtype)}

    return of


def sunk_bytes(x, sink, out_dtype):
    rows, cols = x.shape
    return {"x": 2 * x.nbytes, "sink": 4 * rows, "returned 0": rows * cols * STORAGE[out_dtype.name].itemsize}


WIDE = Task(
    id="06.4",
    title="The online kernel, with a sink",
    points=5,
    functions={"sink_softmax": sink_softmax},
    kernel=True,
    cases=(
        *row_cases(sunk("fp32"), leave_out=(*POWERS, "a wide row")),
        Case("2 x 4097 bf16 to fp32, one column over the widest tile", sunk("fp32")(2, 4097, "bf16", std=0.5)),
        Case("2 x 5000 fp32 to fp32, the largest at the end", sunk("fp32")(2, 5000, "fp32", change="late")),
        Case("2 x 5000 fp32, all but 64 logits near -200", sunk("bf16")(2, 5000, "fp32", change="falling"), hint=RISES),
        Case("2 x 1500 fp16 to fp16, far above its sink", sunk("fp16")(2, 1500, "fp16", sink=-40.0, std=1.0)),
        Case("2 x 1500 fp16 to bf16, a sink above all", sunk("bf16")(2, 1500, "fp16", sink=25.0, std=1.0)),
        Case(
            "3 x 300 fp32 to bf16, logits and sinks near -20,000",
            sunk("bf16")(3, 300, "fp32", sink=-20002.0, change="low", std=0.5),
            hint=LOW,
        ),
        Case("3 x 1500 fp32 to bf16, logits up to 10,000", sunk("bf16")(3, 1500, "fp32", change="huge")),
        Case(
            "3 x 5000 fp32, -inf up to column 4,500",
            sunk("fp32")(3, 5000, "fp32", change="behind"),
            hint="Whole tiles are -inf here: as long as the running maximum is -inf, too, -inf - (-inf) is NaN.",
        ),
    ),
    mistakes=(
        Mistake("the sink was left out of the sum", "Add exp(sink - m) to l.", with_sink=0),
        Mistake("l was not rescaled when the running maximum rose", RESCALE, unscaled=TILE),
        Mistake("masked-out elements counted as logits of 0", PADDING, padding=TILE),
    ),
    minimum_bytes=sunk_bytes,
    max_tile=4096,
    hints={
        "unwritten": "The second loop has to store every tile of the row, the ragged last one too.",
        "traffic": "Read x twice: the first loop computes m and l together, the second stores.",
    },
    speed=Speed(
        points=1,
        share=0.45,
        bytes=4096 * 65536 * 4 + 4096 * 4,
        shape="4096 x 65536 bf16",
        make=lambda: {
            "x": RandomTensor((4096, 65536), "bf16"),
            "sink": RandomTensor((4096, 1), "fp32"),
            "out_dtype": DType("bf16"),
        },
    ),
)

# ---------------------------------------------------------------- 06.5 causal, capped


@returns(y="scores")
def capped_causal_softmax(
    scores, first, cap, *, offset=0, corner=False, leak=0, loop="window", unscaled=0, empty=0.0, capped=True
):
    """Softmax of the capped scores that each query attends to; zeros for a query that attends to no key.

    offset: of the diagonal. corner: the diagonal starts at the first key. leak: the width of tiles whose masked-out
    pairs count as -cap; loop: which tiles it visits. unscaled: the width of tiles whose old sums are not rescaled.
    """
    queries, keys = scores.shape[1:]
    key, begin = np.arange(keys), first[:, None, None]
    last = np.arange(queries)[:, None] + (0 if corner else keys - queries) + offset
    mask = (key <= last) & (key >= begin)
    s = np.where(mask, cap * np.tanh(scores / cap) if capped else scores, -np.inf)
    top = finite(s.max(axis=2, keepdims=True))
    e = np.exp(s - top)
    total = (np.exp(s - running_max(s, unscaled)) if unscaled else e).sum(axis=2, keepdims=True)
    if leak:
        start, end = begin if loop == "window" else 0, keys if loop == "all" else last[None] + 1
        visited = np.maximum(-(-(end - start) // leak), 0) * leak
        total = total + (visited - mask.sum(axis=2, keepdims=True)) * np.exp(-cap - top)
    y = np.where(mask, e / np.where(total == 0, 1, total), 0)
    return np.where(mask.any(axis=2, keepdims=True), y, empty)


def scored(batch, queries, keys, dtype, first=(0, 1), stride=None, change=None, std=4.0, cap=5.0):
    """Scores, NaN where they are masked out, and the first key of each sequence, from first[0] to first[1] - 1."""

    def make(rng):
        scores = rng.normal(0, std, (batch, queries, keys))
        scores = scores if change is None else change(scores)
        begin = rng.sizes.integers(*first, batch)
        after = np.arange(keys) > np.arange(queries)[:, None] + keys - queries
        scores = np.where(after | (np.arange(keys) < begin[:, None, None]), np.nan, scores)
        stored = tensor(scores, dtype) if stride is None else spread(scores, dtype, *stride)
        return {"scores": stored, "first": tensor(begin, "int32"), "cap": cap}

    return make


def score_bytes(scores, first, cap):
    queries, keys = scores.shape[1:]
    pairs = np.maximum(np.arange(queries) + keys - queries + 1 - first.values[:, None], 0)
    return {"scores": int(pairs.sum()) * scores.itemsize}


def causal_bytes(scores, first, cap):
    programs = scores.shape[0] * scores.shape[1]
    return {"scores": 2 * score_bytes(scores, first, cap)["scores"], "first": 4 * programs, "returned 0": scores.nbytes}


def late_scores(scores):
    """A large score for the last key, which the last query attends to: m rises in the last tile."""
    return np.where(np.arange(scores.shape[2]) < scores.shape[2] - 1, scores / 4 - 3, 60.0)


CAUSAL = Task(
    id="06.5",
    title="Causal softmax, capped and padded",
    points=6,
    functions={"capped_causal_softmax": capped_causal_softmax},
    kernel=True,
    cases=(
        Case("2 x 3 x 300 fp16, more keys than queries", scored(2, 3, 300, "fp16")),
        Case("1 x 19 x 19 bf16, square", scored(1, 19, 19, "bf16")),
        Case("2 x 3 x 700 fp16, padded on the left", scored(2, 3, 700, "fp16", first=(280, 600))),
        Case("2 x 9 x 5 fp16, queries that attend to no key", scored(2, 9, 5, "fp16", first=(1, 4)), hint=EMPTY),
        Case("1 x 1 x 1 bf16, one score", scored(1, 1, 1, "bf16")),
        Case(f"{MANY} x 1 x 3 fp16, more sequences than a GPU has SMs", scored(MANY, 1, 3, "fp16", first=(0, 3))),
        Case(
            "2 x 3 x 290 fp16, keys before queries in memory",
            scored(2, 3, 290, "fp16", stride=(900, 1, 3), first=(0, 9)),
            hint="Here scores.stride() is (900, 1, 3): use all three. y is contiguous.",
        ),
        Case("2 x 3 x 520 fp16, a maximum at the last key", scored(2, 3, 520, "fp16", change=late_scores, cap=30.0)),
        Case(
            "2 x 2 x 400 fp16, scores near 6,000 and then near -6,000, cap 120",
            scored(2, 2, 400, "fp16", change=lambda s: s + np.where(np.arange(400) < 64, 6000, -6000), cap=120.0),
            hint="exp overflows fp32 above 88, in a softmax without the running maximum and in a tanh of exponentials.",
        ),
        Case(
            "1 x 2 x 200 fp16, scores near -200, cap 400",
            scored(1, 2, 200, "fp16", change=lambda s: s - 200, cap=400.0),
            hint="All capped scores lie below -104: a running maximum that starts at 0 makes every exponential 0.",
        ),
    ),
    mistakes=(
        Mistake(
            "the diagonal is in the wrong place",
            "Query i attends to key j where j <= i + keys - queries: the last query attends to the last key.",
            {"offset": -1},
            {"offset": 1},
            {"corner": True},
        ),
        Mistake(
            "the scores were masked before the cap",
            "The cap turns -inf into -cap, which adds exp(-cap - m) to l: apply the cap first, then the mask.",
            *({"leak": TILE, "loop": loop} for loop in ("window", "diagonal", "all")),
        ),
        Mistake("a query that attends to no key did not give zeros", EMPTY, empty=np.nan),
        Mistake("the scores were not capped", "The softmax is that of cap * tanh(score / cap).", capped=False),
        Mistake("l was not rescaled when the running maximum rose", RESCALE, unscaled=TILE),
    ),
    minimum_bytes=causal_bytes,
    max_tile=128,
    hints={
        "out_of_bounds": "Load the keys from first[b] to i + keys - queries. scores has strides; y is contiguous.",
        "traffic": "Mask the loads with what the query attends to, so that nothing else is read, and read it twice.",
        "values": "Set masked-out scores to -inf after the cap. A tile without a key makes -inf - (-inf): follow one "
        "query by hand.",
    },
)

# ---------------------------------------------------------------- 06.6 entropy in one pass


@returns(entropy="fp32", lse="fp32")
def entropy(x, *, unmoved=0, padding=0):
    """The entropy of the softmax of each row, in nats, and its log-sum-exp.

    unmoved, padding: the width of tiles where t was multiplied but not moved to the new maximum, or whose masked-out
    elements count as logits of 0.
    """
    x = padded(x, padding) if padding else x
    top = x.max(axis=1)
    below = np.where(np.isinf(x), 0, x - top[:, None])
    e = np.where(np.isinf(x), 0, np.exp(below))
    if unmoved:
        below = np.where(np.isinf(x), 0, x - running_max(x, unmoved))
    total = e.sum(axis=1)
    t = (e * below).sum(axis=1)
    return np.log(total) - t / total, top + np.log(total)


def entropy_bytes(x):
    """1.2 times one read and the results, where the engine allows 1.05: states of parts may go through memory."""
    least = {"x": x.nbytes, "returned 0": 4 * x.shape[0], "returned 1": 4 * x.shape[0]}
    return {role: round(count * 1.2 / 1.05) for role, count in least.items()}


def top_k(rng, x):
    """-inf in the first 5,000 columns and in nine of ten after them."""
    x = np.where((np.arange(x.shape[1]) < 5000) | (rng.random(x.shape) < 0.9), -np.inf, x)
    x[:, -3:] = 1.0
    return x


FAR = (
    "Near 10,000, a sum of x cancels: add up x - m. Near -20,000, the first m and masked-out elements have to be lower."
)
ENTROPY = Task(
    id="06.6",
    title="Entropy in one read",
    points=5,
    functions={"entropy": entropy},
    kernel=True,
    cases=(
        *row_cases(partial(rows_of, std=1.0), leave_out=POWERS),
        Case("2 x 9001 bf16, rising", rows_of(2, 9001, "bf16", change="rising")),
        Case("2 x 5000 fp32, the largest at the end", rows_of(2, 5000, "fp32", change="late")),
        Case("3 x 1500 fp32, logits near 10,000 and near -20,000", rows_of(3, 1500, "fp32", change="far"), hint=FAR),
        Case(
            "2 x 5000 fp32, all but 64 logits near -200",
            rows_of(2, 5000, "fp32", std=1.0, change="falling"),
            hint=RISES,
        ),
        Case("2 x 6000 fp16, -inf in the first tile and here and there", rows_of(2, 6000, "fp16", change=top_k)),
    ),
    mistakes=(
        Mistake(
            "t was multiplied by the correction factor, but not moved to the new maximum",
            "When m rises, each x - m falls by m_new - m_old: before the factor, t changes by that times the old l.",
            unmoved=TILE,
        ),
        Mistake("masked-out elements counted as logits of 0", PADDING, padding=TILE),
    ),
    minimum_bytes=entropy_bytes,
    max_tile=4096,
    hints={
        "traffic": "Read x once: keep m, l and t for the row and rescale all of them.",
        "values": "Follow m, l and t of a row of three logits, two in the first tile, by hand. If it is NaN: look for "
        "-inf - (-inf) while m is -inf, 0 * -inf where a logit is -inf, and l * (m_old - m_new) in the first tile.",
    },
    speed=Speed(
        points=1,
        share=0.45,
        bytes=4096 * 131072 * 2 + 2 * 4096 * 4,
        shape="4096 x 131072 bf16",
        make=lambda: {"x": RandomTensor((4096, 131072), "bf16")},
    ),
)

TASKS = (THREE_PASSES, RECURRENCE, MERGE, WIDE, CAUSAL, ENTROPY)
