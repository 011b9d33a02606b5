"""Exercise 06: softmax kept as a maximum m and a sum l, block by block, merged, in kernels, under a causal mask."""

import numpy as np

from grading.arrays import spread
from grading.tasks import Case, DType, RandomTensor, Slip, Speed, Task, gives, tensor
from grading.tasks.properties import MANY, row_cases

EXERCISE = "06_online_softmax"
SIZE = {"fp32": 4, "fp16": 2, "bf16": 2}
NOTHING = "-inf - (-inf) is NaN: where the maximum is -inf, put 0 in its place in the exponent, and divide by no zero."

# ---------------------------------------------------------------- ways to get a maximum or a sum wrong


def tops(x, width, empty=-np.inf):
    """For each element, the maximum of its own tile of columns; `empty` for -inf."""
    starts = np.arange(0, x.shape[-1], width)
    top = np.repeat(np.maximum.reduceat(x, starts, axis=-1), width, axis=-1)[..., : x.shape[-1]]
    return np.where(np.isinf(top), empty, top)


def risen(x, width, start=-np.inf):
    """For each element, the running maximum once its tile has been seen, from `start` on; 0 for -inf."""
    top = np.maximum(np.maximum.accumulate(tops(x, width), axis=-1), start)
    return np.where(np.isinf(top), 0, top)


def upside_down(x, sink, width):
    """The sum that comes out when l is multiplied by exp(m_new - m_old)."""
    top = risen(x, width, sink)
    total, before = np.ones_like(sink), sink
    for start in range(0, x.shape[1], width):
        now = top[:, start, None]
        tile = np.exp(x[:, start : start + width] - now)
        total, before = total * np.exp(now - before) + tile.sum(axis=1, keepdims=True), now
    return total


def filled(x, width):
    """x with 0 in the lanes of its last tile that lie behind its last column."""
    return np.pad(x, ((0, 0), (0, -x.shape[1] % width)))


def unseen(seen, width, begin=0, end=None):
    """For each query, how many lanes of its tiles hold no key that it sees; the tiles go from `begin` to `end`."""
    end = seen.shape[2] if end is None else end
    return np.maximum(-(-(end - begin) // width), 0) * width - seen.sum(axis=2, keepdims=True)


def too_late(x, width):
    """The sum t that comes out when its repair takes the l that holds the new tile already."""
    top, before, t, total = risen(x, width), None, 0, 0
    for start in range(0, x.shape[1], width):
        now, tile = top[:, start], x[:, start : start + width]
        down = 0 if before is None else before - now
        below = np.where(np.isinf(tile), 0, tile - now[:, None])
        e = np.where(np.isinf(tile), 0, np.exp(below))
        total = total * np.exp(down) + e.sum(axis=1)
        t = (t + total * down) * np.exp(down) + (e * below).sum(axis=1)
        before = now
    return t


def parts(name: str, write) -> tuple:
    """The slips that leave out a part of a row called `name`. write(columns) -> the edit that leaves these columns."""
    end = f"{name}.shape[-1]"
    return (
        Slip("only the first tile went into the sum", "Every tile of the row adds to l.", write(":TILE")),
        Slip(
            "only the last tile went into the sum",
            "l goes on from tile to tile: l = l * exp(m_old - m_new) + the tile's sum.",
            write(f"({end} - 1) // TILE * TILE:"),
        ),
        Slip(
            "the columns after the last full tile are missing from the sum",
            "The number of tiles is rounded up; the last one is shorter.",
            write(f":{end} // TILE * TILE"),
        ),
        Slip(
            "the last column is missing from the sum", "A row's last column is cols - 1, and it counts.", write(":-1")
        ),
    )


# ---------------------------------------------------------------- inputs


def rows_of(rows, cols, dtype, row_stride=None, change=None, std=2.0, **more):
    """A random matrix as `change(rng, x)` makes it, and plain values."""

    def make(rng):
        x = rng.normal(0, std, (rows, cols))
        return {"x": tensor(x if change is None else change(rng, x), dtype, row_stride), **more}

    return make


def late(rng, x):
    """A maximum far above the rest in the last column: whatever came before has to be repaired."""
    return np.concatenate([x[:, :-1], np.full((len(x), 1), 30.0)], axis=1)


def stairs(rng, x):
    """Logits that rise along the row: the running maximum moves in every tile."""
    return x + np.linspace(-8, 8, x.shape[1])


def huge(rng, x):
    """Logits up to 10,000, on both sides of zero, in steps of 20: softmax is 1, or even shares of it."""
    return 20 * rng.integers(-500, 501, x.shape)


def low(rng, x):
    """All logits near -20,000."""
    return x - 2e4


def falls(rng, x):
    """The first 64 columns near 0, the others near -200: exp(200) is infinite in fp32."""
    return np.where(np.arange(x.shape[1]) < 64, x, x - 200)


def apart(rng, x):
    """Rows 5,000 apart: no one number is the maximum of all."""
    return x + 5000.0 * np.arange(-1, len(x) - 1)[:, None]


def masked(rng, x):
    """The first row all -inf, the others -inf in their first 80 columns and, row 1 apart, here and there behind."""
    x = np.where(np.arange(x.shape[1]) < 80, -np.inf, x)
    x[2:][rng.random(x[2:].shape) < 0.2] = -np.inf
    x[0], x[:, -1] = -np.inf, np.where(np.arange(len(x)), 1.0, -np.inf)
    return x


def behind(rng, x):
    """-inf up to column 4,500, and the second row -inf to its end."""
    return np.where((np.arange(x.shape[1]) < 4500) | (np.arange(len(x)) == 1)[:, None], -np.inf, x)


# ---------------------------------------------------------------- 06.1 three passes


@gives(y="fp32")
def probabilities(x, temperature):
    """Softmax of each row at a temperature; zeros for a row of -inf."""
    top = x.max(axis=1, keepdims=True)
    top = np.where(np.isinf(top), 0, top)
    e = np.exp((x - top) / temperature)
    total = e.sum(axis=1, keepdims=True)
    return e / np.where(total == 0, 1, total)


GUARD, TOTAL = "np.where(np.isinf(top), 0, top)", "np.where(total == 0, 1, total)"
THREE_PASSES = Task(
    id="06.1",
    title="Safe softmax in three passes",
    points=3,
    functions={"three_passes": probabilities},
    cases=(
        Case("4 x 256 fp32, blocks of 64", rows_of(4, 256, "fp32", temperature=1.0, block=64)),
        Case("3 x 1000 bf16, blocks of 128: a ragged last one", rows_of(3, 1000, "bf16", temperature=0.7, block=128)),
        Case("5 x 1 fp16, one column", rows_of(5, 1, "fp16", temperature=0.5, block=64)),
        Case("7 x 129 fp32, one column over", rows_of(7, 129, "fp32", temperature=2.0, block=64)),
        Case(
            "3 x 300 fp32, a maximum in the last column",
            rows_of(3, 300, "fp32", change=late, temperature=4.0, block=64),
        ),
        Case("3 x 400 fp16, logits up to 10,000", rows_of(3, 400, "fp16", change=huge, temperature=0.125, block=128)),
        Case("3 x 400 fp32, rows 5,000 apart", rows_of(3, 400, "fp32", change=apart, temperature=0.5, block=128)),
        Case("4 x 400 fp32, a row of -inf", rows_of(4, 400, "fp32", change=masked, temperature=0.5, block=64)),
    ),
    slips=(
        Slip(
            "the maximum was not subtracted",
            "exp overflows fp32 above 88: take exp(x - maximum of the row).",
            "(x - top) -> x",
        ),
        Slip(
            "a row of -inf did not give zeros",
            NOTHING,
            f"{GUARD} -> top",
            f"{TOTAL} -> total",
            f"e / {TOTAL} -> np.where(total == 0, 1 / x.shape[1], e / total)",
        ),
        Slip(
            "one maximum was taken for all rows",
            "A row far below it underflows to 0/0: each row has a maximum of its own.",
            "x.max(axis=1, keepdims=True) -> x.max()",
            ("x.max(axis=1, keepdims=True) -> x.max()", f"{TOTAL} -> total"),
        ),
        Slip(
            "each block was shifted by its own maximum",
            "The first loop has to end before the second begins: all blocks of a row are shifted by one number.",
            f"{GUARD} -> tops(x, TILE, 0)",
        ),
        Slip(
            "the maximum of the last block was taken",
            "The maximum goes on from block to block: torch.maximum(m, ...).",
            f"{GUARD} -> x[:, (x.shape[1] - 1) // TILE * TILE:].max(axis=1, keepdims=True)",
        ),
        Slip(
            "the temperature was not applied",
            "Divide the shifted logits by the temperature, before exp.",
            "(x - top) / temperature -> (x - top)",
        ),
        Slip(
            "the temperature was applied in one loop and not in the other",
            "The second and the third loop take the same exponentials: divide by the temperature in both.",
            f"return e / {TOTAL} -> return np.exp(x - top) / {TOTAL}",
            "total = e.sum(axis=1, keepdims=True) -> total = np.exp(x - top).sum(axis=1, keepdims=True)",
        ),
        Slip(
            "the logits were multiplied by the temperature",
            "A higher temperature makes the row flatter: divide by it.",
            "(x - top) / temperature -> (x - top) * temperature",
        ),
        Slip("the exponentials were not divided by their sum", "The third loop divides by l.", f"e / {TOTAL} -> e"),
        *parts("x", lambda columns: f"e.sum(axis=1, keepdims=True) -> e[:, {columns}].sum(axis=1, keepdims=True)"),
    ),
    tile_elements=lambda x, block, **rest: len(x) * block,
    hints={
        "tail": "The last slice is shorter where block does not divide cols: let x[:, start:start + block] end by "
        "itself, in all three loops.",
        "overflow": "fp16 ends at 65,504: convert the slice to fp32 before the division by the temperature.",
        "nan": "NaN comes from inf / inf, where exp overflowed because something less than the row's maximum was "
        "subtracted; from -inf - (-inf) and 0 / 0, in a row or a block of -inf; and from columns that no loop reached.",
    },
)

# ---------------------------------------------------------------- 06.2 the recurrence


@gives(m="fp32", l="fp32", o="fp32")
def absorbed(m, l, o, tile, values):  # noqa: E741
    """The state after one more tile."""
    top = np.maximum(m, tile.max(axis=1))
    shift = np.where(np.isinf(top), 0, top)
    old = np.exp(m - shift)
    e = np.exp(tile - shift[:, None])
    return top, l * old + e.sum(axis=1), o * old + (e * values).sum(axis=1)


@gives(mean="fp32")
def weighted(x, values):
    """The mean of the values with the softmax of each row as weights; 0 for a row of -inf."""
    top = x.max(axis=1, keepdims=True)
    e = np.exp(x - np.where(np.isinf(top), 0, top))
    total = e.sum(axis=1)
    return (e * values).sum(axis=1) / np.where(total == 0, 1, total)


def state(rows, width, dtype, tile=0.0, empty=False, around=3.0):
    """What is known of each row, and its next tile, around `tile` (one number, or one per row). empty: nothing yet."""

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
    rows_ = rows_of(rows, cols, dtype, **more)
    return lambda rng: {**rows_(rng), "values": tensor(rng.uniform(0.5, 2, cols)), "block": block}


RECURRENCE = Task(
    id="06.2",
    title="One pass: absorb a tile",
    points=4,
    functions={"absorb": absorbed, "softmax_mean": weighted},
    cases=(
        Case("4 x 64 fp32, the first tile", state(4, 64, "fp32", empty=True)),
        Case("4 x 64 bf16, a tile below the maximum", state(4, 64, "bf16", tile=-6.0)),
        Case("5 x 33 fp16, a larger maximum for some rows", state(5, 33, "fp16", tile=[12, -6, 9, -6, 0])),
        Case("3 x 32 fp32, a tile far above", state(3, 32, "fp32", tile=9000.0)),
        Case("3 x 32 fp32, -inf throughout for two rows", state(3, 32, "fp32", tile=[-np.inf, 0, -np.inf])),
        Case(
            "3 x 32 fp32, the first tile, -inf throughout for two rows",
            state(3, 32, "fp32", tile=[0, -np.inf, -np.inf], empty=True),
        ),
        Case("7 x 1 fp32, a tile of one column", state(7, 1, "fp32", tile=3.0)),
        Case("4 x 32 fp32, all logits near -300", state(4, 32, "fp32", tile=-300.0, around=-300.0)),
        Case("4 x 256 fp32, blocks of 64", valued(4, 256, "fp32", 64), "softmax_mean"),
        Case("3 x 500 bf16, ragged", valued(3, 500, "bf16", 128), "softmax_mean"),
        Case("2 x 400 fp32, rising", valued(2, 400, "fp32", 100, change=stairs), "softmax_mean"),
        Case("3 x 257 fp16, a maximum in the last column", valued(3, 257, "fp16", 64, change=late), "softmax_mean"),
        Case("5 x 1 fp32, one column", valued(5, 1, "fp32", 64), "softmax_mean"),
        Case("3 x 300 fp32, logits up to 10,000", valued(3, 300, "fp32", 64, change=huge), "softmax_mean"),
        Case("3 x 300 fp32, logits near -20,000", valued(3, 300, "fp32", 64, change=low), "softmax_mean"),
        Case("3 x 300 fp32, all but 64 logits near -200", valued(3, 300, "fp32", 64, change=falls), "softmax_mean"),
        Case("4 x 400 fp32, a row of -inf", valued(4, 400, "fp32", 64, change=masked), "softmax_mean"),
    ),
    slips=(
        Slip(
            "-inf as the maximum gave NaN",
            NOTHING,
            "np.where(np.isinf(top), 0, top) -> top",
            "np.where(total == 0, 1, total) -> total",
        ),
        Slip("l was repaired and o was not", "o was measured from m_old too.", "o * old + -> o +"),
        Slip("o was repaired and l was not", "l was measured from m_old too.", "l * old + e -> l + e"),
        Slip(
            "the old sums were not repaired",
            "They were measured from m_old: multiply both by exp(m_old - m_new) before anything is added.",
            ("l * old + e -> l + e", "o * old + -> o +"),
            f"e = np.exp(x - {GUARD}) -> e = np.exp(x - risen(x, TILE))",
        ),
        Slip(
            "the repair is upside down",
            "m_new is the larger of the two: exp(m_old - m_new) is at most 1.",
            "np.exp(m - shift) -> np.exp(shift - m)",
        ),
        Slip(
            "the tile was shifted by its own maximum, or m forgot what came before",
            "m_new is the larger of m and the tile's maximum, and the tile is shifted by m_new.",
            "np.maximum(m, tile.max(axis=1)) -> tile.max(axis=1)",
            "np.exp(tile - shift[:, None]) -> np.exp(tile - tile.max(axis=1)[:, None])",
        ),
        Slip(
            "the tile was shifted by the old maximum",
            "Find m_new first, then take exp(tile - m_new).",
            "np.exp(tile - shift[:, None]) -> np.exp(tile - np.where(np.isinf(m), 0, m)[:, None])",
        ),
        Slip(
            "the old maximum was returned", "Return m_new: the next tile is compared with it.", "return top -> return m"
        ),
        Slip(
            "the values were not multiplied in",
            "o adds exp(tile - m_new) * values, column by column.",
            "(e * values) -> e",
        ),
        Slip(
            "the state was divided too early",
            "o is a sum; it is divided by l once, after the last tile.",
            "o * old + (e * values).sum(axis=1) -> (o * old + (e * values).sum(axis=1)) / (l * old + e.sum(axis=1))",
        ),
    ),
    tile_elements=lambda x=None, tile=None, block=0, **rest: (
        len(tile) * max(16, tile.shape[1]) if x is None else len(x) * block
    ),
    hints={
        "tail": "The last slice is shorter where block does not divide cols, in x and in values.",
        "overflow": "exp overflows fp32 above 88, and fp16 ends at 65,504: convert the tile to fp32 and subtract m_new "
        "before exp.",
    },
)

# ---------------------------------------------------------------- 06.3 merge


@gives("m", "l", "o")
def merged(m_a, l_a, o_a, m_b, l_b, o_b):
    """The state of a row from those of its two parts."""
    m = max(m_a, m_b)
    shift = 0.0 if np.isinf(m) else m
    repair_a, repair_b = float(np.exp(m_a - shift)), float(np.exp(m_b - shift))
    return m, l_a * repair_a + l_b * repair_b, o_a * repair_a + o_b * repair_b


def two(around_a, around_b, same=False):
    """The states of two random parts whose logits lie around these; -inf for a part of which nothing is seen."""

    def of(rng, around, top=None):
        if around == -np.inf:
            return -np.inf, 0.0, 0.0
        x, values = rng.normal(around, 1, int(rng.integers(20, 90))), rng.uniform(0.5, 2, 90)
        top = float(x.max()) if top is None else top
        e = np.exp(x - top)
        return top, float(e.sum()), float((e * values[: len(x)]).sum())

    def make(rng):
        a = of(rng, around_a)
        b = of(rng, around_b, a[0] if same else None)
        return {f"{name}_{part}": v for part, found in (("a", a), ("b", b)) for name, v in zip("mlo", found)}

    return make


REPAIRS = "float(np.exp(m_a - shift)), float(np.exp(m_b - shift))"
MERGE = Task(
    id="06.3",
    title="Merge two partial results",
    points=3,
    functions={"merge": merged},
    cases=(
        Case("the second part has the larger maximum", two(0, 3)),
        Case("the first part has the larger maximum", two(4, 0)),
        Case("maxima 11 apart", two(0, 11)),
        Case("the same maximum", two(1, 1, same=True)),
        Case("logits near 5,000 and near -5,000", two(5000, -5000)),
        Case("logits near -5,000 and near 5,000", two(-5000, 5000)),
        Case("logits near 900 in both", two(900, 901)),
        Case("logits near -900 in both", two(-900, -901)),
        Case("nothing is seen of the first part", two(-np.inf, 2)),
        Case("nothing is seen of the second part", two(2, -np.inf)),
        Case("nothing is seen of either", two(-np.inf, -np.inf)),
    ),
    slips=(
        Slip("two empty parts gave NaN", NOTHING, "0.0 if np.isinf(m) else m -> m"),
        Slip(
            "l was repaired and o was not", "o needs the same factors.", "o_a * repair_a + o_b * repair_b -> o_a + o_b"
        ),
        Slip(
            "o was repaired and l was not", "l needs the same factors.", "l_a * repair_a + l_b * repair_b -> l_a + l_b"
        ),
        Slip(
            "the part with the smaller maximum was not repaired",
            "Its sums were measured from its own maximum, and either part may be the one: multiply each by exp(its "
            "maximum - m). The factor is 1 for the part with the larger one.",
            f"{REPAIRS} -> 1.0, 1.0",
            f"{REPAIRS} -> 1.0, float(np.exp(m_b - shift))",
            f"{REPAIRS} -> float(np.exp(m_a - shift)), 1.0",
        ),
        Slip(
            "the merged maximum is not the larger of the two",
            "m = max(m_a, m_b). Any other shift overflows sooner or later, or loses everything to underflow.",
            "max(m_a, m_b) -> m_a",
            "max(m_a, m_b) -> m_b",
            "max(m_a, m_b) -> min(m_a, m_b)",
            "max(m_a, m_b) -> (m_a + m_b) / 2",
            "max(m_a, m_b) -> m_a + m_b",
            "max(m_a, m_b) -> m_a + float(np.log(1 + np.exp(min(m_b - m_a, 700))))",
        ),
        Slip(
            "each part got the other part's factor",
            "Part a is multiplied by exp(m_a - m).",
            "repair_a, repair_b = -> repair_b, repair_a =",
        ),
        Slip(
            "the repair is upside down",
            "m is the larger one: exp(m_a - m) is at most 1.",
            "np.exp(m_a - shift)), float(np.exp(m_b - shift) -> np.exp(shift - m_a)), float(np.exp(shift - m_b)",
        ),
        Slip(
            "o was divided by l",
            "o stays a sum, so that it can be merged again; whoever has merged everything divides once.",
            "o_a * repair_a + o_b * repair_b -> "
            "(o_a * repair_a + o_b * repair_b) / max(l_a * repair_a + l_b * repair_b, 1e-300)",
        ),
    ),
    hints={
        "exception": "exp of a large difference overflows in Python too: math.exp raises OverflowError above 709. "
        "Subtract the larger maximum from both, so that no exponent is above 0.",
        "wrong": "Take the logits [1, 2] and [3], work out both states by hand, and compare with that of [1, 2, 3].",
    },
)

# ---------------------------------------------------------------- 06.4 the online kernel


@gives(y="out_dtype")
def with_sink(x, sink):
    """Softmax of each row and its sink, without the sink's share."""
    top = np.maximum(x.max(axis=1, keepdims=True), sink)
    e = np.exp(x - top)
    return e / (e.sum(axis=1, keepdims=True) + np.exp(sink - top))


def sunk(dtype):
    """Rows with a sink logit for each, and the dtype in which the result is wanted."""

    def of(rows, cols, from_dtype, row_stride=None, sink=1.0, **more):
        x = rows_of(rows, cols, from_dtype, row_stride, **more)
        return lambda rng: {**x(rng), "sink": tensor(rng.normal(sink, 1, (rows, 1))), "out_dtype": DType(dtype)}

    return of


def sunk_bytes(x, sink, out_dtype):
    rows, cols = x.shape
    return {"x": 2 * x.nbytes, "sink": 4 * rows, "returned 0": rows * cols * SIZE[out_dtype.name]}


BEHIND = (
    "The lanes behind the row's last column enter the maximum and the sum: what `other=` puts there has to lose every "
    "maximum and add nothing to a sum."
)
SUM = "(e.sum(axis=1, keepdims=True) + np.exp(sink - top))"
WIDE = Task(
    id="06.4",
    title="The online kernel, with a sink",
    points=5,
    functions={"sink_softmax": with_sink},
    kernel=True,
    cases=(
        *row_cases(
            sunk("fp32"),
            leave_out=(
                "one less than a power of two",
                "one more than a power of two",
                "a multiple of 128",
                "a wide row",
            ),
        ),
        Case("2 x 4097 fp32 to bf16, one column over the widest tile", sunk("bf16")(2, 4097, "fp32", std=0.5)),
        Case("2 x 5003 bf16 to fp32, rising", sunk("fp32")(2, 5003, "bf16", change=stairs)),
        Case("2 x 5000 fp32 to fp32, a maximum in the last column", sunk("fp32")(2, 5000, "fp32", change=late)),
        Case("2 x 5000 fp32 to bf16, all but 64 logits near -200", sunk("bf16")(2, 5000, "fp32", change=falls)),
        Case("2 x 1500 fp16 to fp16, far above its sink", sunk("fp16")(2, 1500, "fp16", sink=-40.0, std=1.0)),
        Case("2 x 1500 fp16 to bf16, a sink above all", sunk("bf16")(2, 1500, "fp16", sink=25.0, std=1.0)),
        Case(
            "3 x 300 fp32 to bf16, logits near -20,000",
            sunk("bf16")(3, 300, "fp32", sink=-20002.0, change=low, std=0.5),
            hint="Here all logits and sinks lie near -20,000: what stands for a masked lane, or for the first m, has "
            "to lie below every logit.",
        ),
        Case("3 x 1500 fp32 to bf16, logits up to 10,000", sunk("bf16")(3, 1500, "fp32", change=huge)),
        Case(
            "3 x 5000 fp32 to fp32, -inf up to column 4,500, and a row of nothing else",
            sunk("fp32")(3, 5000, "fp32", change=behind),
            hint=NOTHING,
        ),
    ),
    slips=(
        Slip(
            "the sink was left out of the sum",
            "The sink takes part in the sum: exp(sink - m) belongs to l.",
            f"{SUM} -> e.sum(axis=1, keepdims=True)",
            answer="l = 1.0 -> l = 0.0",
        ),
        Slip(
            "l was not repaired when a larger maximum came",
            "What l holds was measured from m_old: multiply it by exp(m_old - m_new), then add the tile.",
            f"{SUM} -> (np.exp(x - risen(x, TILE, sink)).sum(axis=1, keepdims=True) + 1)",
            f"{SUM} -> (np.exp(x - risen(x, TILE)).sum(axis=1, keepdims=True) + np.exp(sink - top))",
            "np.exp(sink - top) -> 1",
            answer="l * tl.exp(m - m_new) + -> l +",
        ),
        Slip(
            "the sink was not shifted by the maximum",
            "The sink is a logit: it counts as exp(sink - m).",
            "np.exp(sink - top) -> np.exp(sink)",
            "np.exp(sink - top) -> sink",
        ),
        Slip(
            "the repair is upside down",
            "m_new is the larger one: the factor exp(m_old - m_new) is at most 1.",
            f"{SUM} -> upside_down(x, sink, TILE)",
        ),
        Slip(
            "each tile was shifted by its own maximum",
            "All tiles are measured from one number: m_new, the larger of m and the tile's maximum.",
            f"{SUM} -> (np.exp(x - tops(x, TILE)).sum(axis=1, keepdims=True) + np.exp(sink - top))",
            f"{SUM} -> (np.exp(x - tops(x, TILE)).sum(axis=1, keepdims=True) + 1)",
        ),
        Slip("the exponentials were not divided by l", "The second loop stores exp(x - m) / l.", f"e / {SUM} -> e"),
        Slip(
            "masked lanes were loaded as 0 and counted as logits",
            BEHIND,
            f"{SUM} -> (np.exp(filled(x, TILE) - top).sum(axis=1, keepdims=True) + np.exp(sink - top))",
        ),
        *parts("x", lambda columns: f"{SUM} -> (e[:, {columns}].sum(axis=1, keepdims=True) + np.exp(sink - top))"),
    ),
    minimum_bytes=sunk_bytes,
    max_tile=4096,
    hints={
        "unwritten": "The second loop has to cover every tile of the row, the ragged last one too.",
        "bytes": "Two readings are enough: the first loop finds m and l together, the second stores.",
        "dtype": "Allocate y with dtype=out_dtype; `tl.store` casts to the type of the pointer.",
        "overflow": "exp overflows fp32 above 88: subtract m before exp, in both loops.",
        "infinite": "exp overflows fp32 above 88: subtract m before exp, in both loops, and load masked lanes as -inf.",
        "nan": "NaN comes from -inf - (-inf), which a tile of -inf makes of an m that is still -inf; from inf / inf, "
        "where less than the row's maximum was subtracted before exp; and from lanes loaded without `other=`.",
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


@gives(y="scores")
def capped_causal(scores, first, cap):
    """Softmax of the capped scores that each query sees, zeros elsewhere; zeros for a query that sees nothing."""
    queries, keys = scores.shape[1:]
    key = np.arange(keys)
    last = np.arange(queries)[:, None] + keys - queries
    seen = (key <= last) & (key >= first[:, None, None])
    s = np.where(seen, cap * np.tanh(scores / cap), -np.inf)
    top = s.max(axis=2, keepdims=True)
    e = np.where(seen, np.exp(s - np.where(np.isinf(top), 0, top)), 0)
    total = e.sum(axis=2, keepdims=True)
    return e / np.where(total == 0, 1, total)


def scored(batch, queries, keys, dtype, first=(0, 1), stride=None, change=None, std=4.0, cap=5.0):
    """Scores, poison above the diagonal, and the first key of each sequence, drawn from first[0] to first[1] - 1."""

    def make(rng):
        scores = rng.normal(0, std, (batch, queries, keys))
        scores = scores if change is None else change(scores)
        begin = rng.sizes.integers(*first, batch)
        hidden = np.arange(keys) > np.arange(queries)[:, None] + keys - queries
        scores = np.where(hidden | (np.arange(keys) < begin[:, None, None]), np.nan, scores)
        made = tensor(scores, dtype) if stride is None else spread(scores, dtype, *stride)
        return {"scores": made, "first": tensor(begin, "int32"), "cap": cap}

    return make


def seen_bytes(scores, first) -> int:
    """Bytes of the scores that some query sees."""
    queries, keys = scores.shape[1:]
    seen = np.arange(queries) + keys - queries + 1 - first.values[:, None]
    return int(np.maximum(seen, 0).sum()) * scores.itemsize


def causal_bytes(scores, first, cap):
    programs = scores.shape[0] * scores.shape[1]
    return {"scores": 2 * seen_bytes(scores, first), "first": 4 * programs, "returned 0": scores.nbytes}


def step(scores):
    """A large score for the last key that the last query sees, which takes all: m rises in the last tile."""
    return np.concatenate([scores[..., :-1] / 4 - 3, np.full((*scores.shape[:2], 1), 60.0)], axis=2)


def below(scores):
    """All scores near -200."""
    return scores - 200


def falling(scores):
    """64 scores near 6,000, then all near -6,000: y is 1/64, exactly, and every later tile lies far below m."""
    return scores + np.where(np.arange(scores.shape[2]) < 64, 6000, -6000)


OVERFLOW = (
    "exp overflows fp32 above 88, where m is not the maximum of all that is seen; and l is 0 where the first loop saw "
    "less than the second. Convert the scores to fp32 at the load."
)
EMPTY = "Here some queries see no key: the kernel stores zeros for them, without a sum to divide by or a key to load."
TOTAL_SEEN = "e.sum(axis=2, keepdims=True)"
CAP = "cap * np.tanh(scores / cap)"
SHIFT = "np.where(np.isinf(top), 0, top)"
LANES = (
    "unseen(seen, TILE, first[:, None, None], last[None] + 1)",
    "unseen(seen, TILE, 0, last[None] + 1)",
    "unseen(seen, TILE)",
    "unseen(seen, TILE, first[:, None, None] // TILE * TILE, last[None] + 1)",
)
CAUSAL = Task(
    id="06.5",
    title="Causal softmax, capped and padded",
    points=6,
    functions={"capped_causal_softmax": capped_causal},
    kernel=True,
    cases=(
        Case("2 x 3 x 300 fp16, more keys than queries", scored(2, 3, 300, "fp16")),
        Case("1 x 19 x 19 bf16, square", scored(1, 19, 19, "bf16")),
        Case("2 x 3 x 700 fp16, padded on the left", scored(2, 3, 700, "fp16", first=(280, 600))),
        Case("3 x 2 x 333 bf16, three sequences with their own padding", scored(3, 2, 333, "bf16", first=(1, 200))),
        Case("2 x 9 x 5 fp16, queries that see nothing", scored(2, 9, 5, "fp16", first=(1, 4)), hint=EMPTY),
        Case("1 x 1 x 1 bf16, one score", scored(1, 1, 1, "bf16")),
        Case(
            f"{MANY} x 1 x 3 fp16, more sequences than a GPU has multiprocessors",
            scored(MANY, 1, 3, "fp16", first=(0, 3)),
        ),
        Case(
            "2 x 3 x 290 fp16, keys before queries in memory",
            scored(2, 3, 290, "fp16", stride=(900, 1, 3), first=(0, 9)),
            hint="Here scores.stride() is (900, 1, 3): use all three. y is contiguous.",
        ),
        Case("2 x 3 x 520 fp16, a maximum at the last key, cap 30", scored(2, 3, 520, "fp16", change=step, cap=30.0)),
        Case(
            "2 x 2 x 400 fp16, scores near 6,000 and then near -6,000, cap 120",
            scored(2, 2, 400, "fp16", change=falling, cap=120.0),
            hint="Large scores and a large cap: exp overflows fp32 above 88, in a softmax without the maximum of all "
            "that was seen, and in a tanh made of exponentials.",
        ),
        Case("1 x 2 x 200 fp16, scores near -200, cap 400", scored(1, 2, 200, "fp16", change=below, cap=400.0)),
    ),
    slips=(
        Slip(
            "the diagonal is off by one",
            "Query i sees key j where j <= i + keys - queries: the last query sees every key.",
            "(key <= last) -> (key < last)",
            "(key <= last) -> (key <= last + 1)",
            answer="query + keys - queries + 1 -> query + keys - queries",
        ),
        Slip(
            "the diagonal begins at the first key",
            "With fewer queries than keys the last query sees every key: query i sees keys up to i + keys - queries.",
            "np.arange(queries)[:, None] + keys - queries -> np.arange(queries)[:, None]",
        ),
        Slip(
            "queries see keys behind them",
            "Causal: key j counts where j <= i + keys - queries, and first[b] is where it begins.",
            "(key <= last) & (key >= first[:, None, None]) -> (key >= 0 * last) & (key >= first[:, None, None])",
        ),
        Slip(
            "the padding on the left was not left out",
            "Keys before first[b] are seen by no query of sequence b.",
            "(key >= first[:, None, None]) -> (key >= 0 * first[:, None, None])",
        ),
        Slip(
            "the padding is off by one",
            "Key first[b] is the first that counts.",
            "(key >= first[:, None, None]) -> (key > first[:, None, None])",
            "(key >= first[:, None, None]) -> (key >= first[:, None, None] - 1)",
        ),
        Slip("the scores were not capped", "The logits are cap * tanh(scores / cap).", f"{CAP} -> scores"),
        Slip(
            "the scores were cut off at the cap",
            "A soft cap bends every score: cap * tanh(scores / cap).",
            f"{CAP} -> np.clip(scores, -cap, cap)",
        ),
        Slip(
            "the tanh was not multiplied by the cap, or the scores not divided by it",
            "The logits are cap * tanh(scores / cap).",
            f"{CAP} -> np.tanh(scores / cap)",
            f"{CAP} -> cap * np.tanh(scores)",
        ),
        Slip(
            "tanh(u) was taken for 2 * sigmoid(u) - 1",
            "tanh(u) = 2 * sigmoid(2 * u) - 1.",
            f"{CAP} -> cap * np.tanh(scores / cap / 2)",
        ),
        Slip(
            "the mask came before the cap",
            "The cap makes -cap of -inf, and then a key that is not seen adds exp(-cap - m) to l: bend the scores "
            "first, then take out what is not seen.",
            *(f"{TOTAL_SEEN} -> ({TOTAL_SEEN} + {lanes} * np.exp(-cap - {SHIFT}))" for lanes in LANES),
            *(
                (
                    "np.tanh(scores / cap), -np.inf) -> np.tanh(scores / cap), -cap)",
                    "e = np.where(seen, -> e = np.where(True,",
                    f"{TOTAL_SEEN} -> ((seen * e).sum(axis=2, keepdims=True) + {lanes} * np.exp(-cap - top))",
                )
                for lanes in LANES
            ),
        ),
        Slip(
            "keys that are not seen took part in the sum",
            "A key that is not seen counts as -inf, after the cap: exp gives 0. The cap makes -cap of -inf.",
            "np.tanh(scores / cap), -np.inf) -> np.tanh(scores / cap), -cap)",
            (
                "np.tanh(scores / cap), -np.inf) -> np.tanh(scores / cap), 0)",
                "e = np.where(seen, -> e = np.where(True,",
            ),
            (
                "np.tanh(scores / cap), -np.inf) -> np.tanh(scores / cap), -cap)",
                "e = np.where(seen, -> e = np.where(True,",
            ),
            *(f"{TOTAL_SEEN} -> ({TOTAL_SEEN} + {lanes} * np.exp(-{SHIFT}))" for lanes in LANES),
        ),
        Slip(
            "a query that sees nothing did not give zeros",
            NOTHING,
            "np.where(np.isinf(top), 0, top) -> top",
            "np.where(total == 0, 1, total) -> total",
            "return e / np.where(total == 0, 1, total) -> return np.where(total == 0, 1 / keys, e / total)",
        ),
        Slip(
            "l was not repaired when a larger maximum came",
            "What l holds was measured from m_old: multiply it by exp(m_old - m_new), then add the tile.",
            f"{TOTAL_SEEN} -> np.exp(s - risen(s, TILE)).sum(axis=2, keepdims=True)",
            answer="l * tl.exp(m - m_new) + -> l +",
        ),
        Slip(
            "each tile was shifted by its own maximum",
            "All tiles are measured from one number: m_new, the larger of m and the tile's maximum.",
            f"{TOTAL_SEEN} -> np.exp(s - tops(s, TILE, 0)).sum(axis=2, keepdims=True)",
        ),
        Slip(
            "the exponentials were not divided by their sum",
            "The second loop stores exp(logit - m) / l.",
            "return e / np.where(total == 0, 1, total) -> return e",
        ),
    ),
    minimum_bytes=causal_bytes,
    reads=lambda scores, first, cap: {"scores": seen_bytes(scores, first)},
    max_tile=128,
    hints={
        "out_of_bounds": "The mask of a load is what the query sees: key j from first[b] to i + keys - queries, which "
        "may be none. The mask of a store is key < keys. scores has three strides, and y is contiguous.",
        "bytes": "Let the mask of the loads be what the query sees, so that nothing else is read, and read it twice at "
        "most; loop over the tiles from first[b] to the diagonal alone.",
        "nan": "A score that its query does not see may hold NaN: do not load it. NaN also comes from -inf - (-inf), "
        "in a tile or a row of which nothing is seen, and from 0 / 0.",
        "overflow": OVERFLOW,
        "infinite": OVERFLOW,
    },
)

# ---------------------------------------------------------------- 06.6 entropy in one reading


@gives(entropy="fp32", lse="fp32")
def entropy_and_lse(x):
    """The entropy of each row's softmax, in nats, and its log-sum-exp."""
    top = x.max(axis=1)
    below = np.where(np.isinf(x), 0, x - top[:, None])
    e = np.where(np.isinf(x), 0, np.exp(below))
    total = e.sum(axis=1)
    t = (e * below).sum(axis=1)
    return np.log(total) - t / total, top + np.log(total)


def entropy_bytes(x):
    return {"x": x.nbytes, "returned 0": 4 * x.shape[0], "returned 1": 4 * x.shape[0]}


def crowded(rng, x):
    """Forty equal maxima behind the rest, 30 above: the entropy is near log(40)."""
    return np.concatenate([x[:, :-40], np.full((len(x), 40), 30.0)], axis=1)


def far(rng, x):
    """The logits of the first row near 10,000, those of the others near -20,000."""
    return x + np.where(np.arange(len(x)) == 0, 1e4, -2e4)[:, None]


def top_k(rng, x):
    """-inf in the first 5,000 columns and in nine of ten behind."""
    x = np.where((np.arange(x.shape[1]) < 5000) | (rng.random(x.shape) < 0.9), -np.inf, x)
    x[:, -3:] = 1.0
    return x


def flat(rows, cols, dtype, row_stride=None):
    """Logits near each other: an entropy near 0 would be the small difference of two numbers."""
    return rows_of(rows, cols, dtype, row_stride, std=1.0)


FAR = "Here logits lie near 10,000 and -20,000, in steps of 0.001 and more: subtract m before you multiply by anything."
T = "(e * below).sum(axis=1)"
ENTROPY = Task(
    id="06.6",
    title="Entropy in one reading",
    points=5,
    functions={"entropy": entropy_and_lse},
    kernel=True,
    cases=(
        *row_cases(
            flat, leave_out=("one less than a power of two", "one more than a power of two", "a multiple of 128")
        ),
        Case("2 x 9001 bf16, rising", rows_of(2, 9001, "bf16", change=stairs)),
        Case("2 x 5000 fp32, the largest at the end", rows_of(2, 5000, "fp32", change=crowded)),
        Case("3 x 1500 fp32, logits near 10,000 and near -20,000", rows_of(3, 1500, "fp32", change=far), hint=FAR),
        Case("2 x 5000 fp32, all but 64 logits near -200", rows_of(2, 5000, "fp32", change=falls, std=1.0)),
        Case("2 x 6000 fp16, -inf in the first tile and here and there", rows_of(2, 6000, "fp16", change=top_k)),
    ),
    slips=(
        Slip(
            "t was multiplied by the repair, and not moved to the new maximum",
            "t is a sum of (x - m) * exp(x - m): when m rises, each x - m falls by m_new - m_old as well. Write out "
            "what t becomes before the factor.",
            f"{T} -> (e * np.where(np.isinf(x), 0, x - risen(x, TILE))).sum(axis=1)",
            answer="(t + l * (m - m_new)) * repair -> t * repair",
        ),
        Slip(
            "t was repaired with the l that holds the new tile already",
            "What t needs is the sum of what was seen before the tile: repair t first, then l.",
            f"{T} -> too_late(x, TILE)",
        ),
        Slip(
            "masked lanes were loaded as 0 and counted as logits",
            BEHIND,
            "top = x.max(axis=1) -> x = filled(x, TILE); top = x.max(axis=1)",
            answer='mask=columns < cols, other=float("-inf")) -> mask=columns < cols, other=0.0)',
        ),
        Slip(
            "the old sums were not repaired",
            "l and t were measured from m_old: both are repaired before the tile is added.",
            ("np.where(np.isinf(x), 0, x - top[:, None]) -> np.where(np.isinf(x), 0, x - risen(x, TILE))",),
        ),
        Slip(
            "the entropy has the wrong sign",
            "The entropy is log(l) - t / l, and never negative.",
            "np.log(total) - t / total -> t / total - np.log(total)",
        ),
        Slip(
            "t was added",
            "t is negative, and -t / l is what it adds: log(l) - t / l.",
            "np.log(total) - t / total -> np.log(total) + t / total",
        ),
        Slip("t was not divided by l", "The probabilities are exp(x - m) / l.", "t / total -> t"),
        Slip(
            "t holds x * exp(x - m)",
            "With x in the place of x - m, m has to be added to log(l), and both are large: measure from m.",
            f"{T} -> (e * np.where(np.isinf(x), 0, x)).sum(axis=1)",
        ),
        Slip(
            "the entropy or the log-sum-exp is in bits",
            "In nats: the natural logarithm. log2(e) belongs to exp2 alone.",
            "np.log(total) - t / total -> (np.log(total) - t / total) / np.log(2)",
            "top + np.log(total) -> (top + np.log(total)) / np.log(2)",
            "top + np.log(total) -> top + np.log2(total)",
        ),
        Slip(
            "the maximum was left out of the log-sum-exp",
            "The log-sum-exp of the row is m + log(l).",
            "top + np.log(total) -> np.log(total)",
            results=("lse",),
        ),
        Slip(
            "l was stored in the place of its logarithm",
            "The log-sum-exp of the row is m + log(l).",
            "top + np.log(total) -> total",
            "top + np.log(total) -> top + total",
            results=("lse",),
        ),
        *parts("x", lambda columns: f"total = e.sum(axis=1) -> total = e[:, {columns}].sum(axis=1)"),
    ),
    minimum_bytes=entropy_bytes,
    bytes_factor=1.2,  # states of parts of a row may go through memory
    max_tile=4096,
    hints={
        "bytes": "Nothing as wide as the row comes out, so nothing needs a second reading: keep m, l and t for the row "
        "and repair all three.",
        "nan": "Three ways lead to NaN: -inf - (-inf), where nothing but -inf was seen yet; 0 * -inf, in "
        "(x - m) * exp(x - m), where a column of -inf has to add 0 to t; and, with no -inf in the row, "
        "l * (m_old - m_new) in the first tile, where the difference is enormous or -inf and the repair factor is 0: m "
        "has to start finite, and l has to be the one from before the tile, which is still 0.",
        "overflow": "exp overflows fp32 above 88: subtract m_new before exp.",
        "infinite": "exp overflows fp32 above 88: subtract m_new before exp. And 0 * -inf is NaN.",
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
