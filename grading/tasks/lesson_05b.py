"""Exercise 05b: the statistics of LayerNorm, merged from parts of a row, kept by a kernel that normalises, and taken
from one read of a row that several programs share."""

from functools import partial

import numpy as np

from grading.tasks import TILE, Case, Mistake, Task, ceil, returns, tensor
from grading.tasks.properties import row_cases

EXERCISE = "05b_layernorm"

# ---------------------------------------------------------------- 05b.1 merge two parts of a row


@returns("count", "mean", "deviations")
def merge(
    count_a, mean_a, deviations_a, count_b, mean_b, deviations_b, *, between="right", mean="right", returned="sum"
):
    """Count, mean and squared deviations of a row, from those of its two parts (Chan, Golub and LeVeque, 1979).

    between: how the squared distance between the two means is weighted. mean: how the two means are averaged.
    """
    count = count_a + count_b
    distance = mean_b - mean_a
    weights = {"right": count_a * count_b / count, "none": 0, "one": 1, "count": count, "product": count_a * count_b}
    share = {"right": count_b / count, "swapped": count_a / count, "plain": 1 / 2}[mean]
    deviations = deviations_a + deviations_b + distance**2 * weights[between]
    return count, mean_a + distance * share, deviations / (count if returned == "variance" else 1)


def parts(most_a: int, most_b: int, around: float = 0.0, least: int = 2):
    """Statistics of two random parts whose means lie apart; a part of no elements has zeros."""

    def of(rng, most, mean):
        row = rng.normal(mean, 1, int(rng.integers(least, most + 1)) if most > least else most)
        return (len(row), float(row.mean()), float(((row - row.mean()) ** 2).sum())) if most else (0, 0.0, 0.0)

    def make(rng):
        a, b = of(rng, most_a, around + 2), of(rng, most_b, around - 3)
        names = ("count", "mean", "deviations")
        return {
            f"{name}_{part}": value for part, numbers in (("a", a), ("b", b)) for name, value in zip(names, numbers)
        }

    return make


MERGE = Task(
    id="05b.1",
    title="Merge two parts of a row",
    points=3,
    functions={"merge": merge},
    cases=(
        Case("two parts of some size", parts(90, 90, least=40)),
        Case("a long part and a short one", parts(900, 9)),
        Case("a part of one element, which has no deviations", parts(50, 1)),
        Case(
            "the second part is empty",
            parts(50, 0),
            hint="An empty part changes nothing: count_b = 0 has to leave the first part as it is.",
        ),
        Case("the first part is empty", parts(0, 50), hint="With count_a = 0 the result is the second part."),
        Case(
            "means near ten million",
            parts(90, 90, around=1e7),
            hint="Squares of means near ten million cancel when they are subtracted, in float64 too: square only the "
            "distance between the two means.",
        ),
    ),
    mistakes=(
        Mistake(
            "the distance between the two means was left out",
            "Each part measured its deviations from its own mean: add what the distance between the means makes.",
            between="none",
        ),
        Mistake(
            "the two means were averaged without their counts",
            "A long part moves the mean more than a short one: weight each mean by its count.",
            mean="plain",
        ),
        Mistake(
            "each mean got the weight of the other part",
            "Start at mean_a and move by the share of elements that part b has: count_b / count.",
            mean="swapped",
        ),
        Mistake(
            "the squared distance between the means has the wrong weight",
            "Measure each part from the merged mean: count_a times one squared distance plus count_b times the other.",
            {"between": "one"},
            {"between": "count"},
            {"between": "product"},
        ),
        Mistake(
            "merge returned the variance instead of the sum of squared deviations",
            "Return the sum. Divide by the count only after the last merge.",
            returned="variance",
        ),
    ),
    hints={"values": "Merge the statistics of two short lists by hand and compare them with those of the joined list."},
)

# ---------------------------------------------------------------- 05b.2 normalise, and keep the statistics


@returns(y="x", mean="fp32", scale="fp32")
def normalise(x, eps, *, centered=True, padding=0, eps_outside=False, divide=True, inverse=True):
    """Each row minus its mean, times 1 / sqrt(var + eps); the mean; that factor.

    padding: elements of value 0 that count in the variance as if they were masked too late.
    """
    cols = x.shape[1]
    mean = x.sum(axis=1) / cols
    distance = x - mean[:, None]
    squares = ((distance if centered else x) ** 2).sum(axis=1) + (max(padding - cols, 0) * mean**2)
    variance = squares / (cols if divide else 1)
    root = np.sqrt(variance) + eps if eps_outside else np.sqrt(variance + eps)
    scale = 1 / root if inverse else root
    return distance * scale[:, None], mean, scale


def inputs(rows, cols, dtype, row_stride=None, mean=1.0, std=1.0, eps=1e-5):
    """A random matrix whose rows have a mean."""
    return lambda rng: {"x": tensor(rng.normal(mean, std, (rows, cols)), dtype, row_stride), "eps": eps}


def normalise_bytes(x, eps):
    per_row = 4 * x.shape[0]
    return {"x": x.nbytes, "returned 0": x.nbytes, "returned 1": per_row, "returned 2": per_row}


NORMALISE = Task(
    id="05b.2",
    title="Normalize and return the statistics",
    points=5,
    functions={"normalise": normalise},
    kernel=True,
    cases=(
        *row_cases(inputs),
        Case("2 x 500 fp32, small values, eps 0.001", inputs(2, 500, "fp32", mean=0.01, std=0.01, eps=1e-3)),
        Case("2 x 520 bf16, far below 1,024", inputs(2, 520, "bf16")),
        Case(
            "3 x 600 fp16, a mean of 600 standard deviations",
            inputs(3, 600, "fp16", mean=1200.0, std=2.0),
            hint="Here mean(x * x) - mean * mean cancels: take the mean first, then the mean of (x - mean) squared, in "
            "fp32.",
        ),
        Case("1 x 32768 fp32, the widest row", inputs(1, 32768, "fp32")),
    ),
    mistakes=(
        Mistake(
            "the masked-out elements of the tile counted in the variance",
            "A masked-out element holds 0, so x - mean is -mean there: set it to 0 before the second sum.",
            padding=TILE,
        ),
        Mistake(
            "the mean was not subtracted before squaring",
            "The variance is the mean of (x - mean) squared. The mean of x squared belongs to RMSNorm.",
            centered=False,
        ),
        Mistake(
            "the squared deviations were not divided by the number of columns",
            "The variance is a mean: divide the sum by cols.",
            divide=False,
        ),
        Mistake(
            "eps was added after the square root", "eps belongs under the root: 1 / sqrt(var + eps).", eps_outside=True
        ),
        Mistake(
            "the scale is the square root itself, not one over it",
            "Use tl.rsqrt, or divide by the root.",
            inverse=False,
        ),
    ),
    minimum_bytes=normalise_bytes,
    hints={
        "unwritten": "The tile is narrower than the row: BLOCK = triton.next_power_of_2(cols).",
        "traffic": "Load each row once and keep it in registers: mean, variance and output all come from there.",
    },
)

# ---------------------------------------------------------------- 05b.3 a row split among programs


@returns(mean="fp32", scale="fp32", part_means="fp32", part_deviations="fp32")
def statistics(
    x,
    eps,
    parts,
    *,
    padding=0,
    overrun=0,
    divisor="count",
    weights="count",
    between="count",
    divide="cols",
    inverse=True,
):
    """The mean of each row and 1 / sqrt(var + eps), merged from the mean and the squared deviations of each part.

    padding: the width of a tile whose masked-out elements count as zeros in the deviations. overrun: the width of a
    tile that reads on beyond its part. divisor: what the sum of a part is divided by. weights: how the parts' means are
    averaged. between: the weight of the squared distance between a part's mean and the row's.
    """
    rows, cols = x.shape
    width = ceil(cols, parts)
    starts = np.arange(parts) * width
    count = np.clip(cols - starts, 0, width)
    means, deviations = np.zeros((rows, parts)), np.zeros((rows, parts))
    for part, (start, n) in enumerate(zip(starts, count)):
        elements = x[:, start : start + max(width, overrun)]
        over = {"count": max(n, 1), "width": width, "read": max(elements.shape[1], 1)}[divisor]
        means[:, part] = elements.sum(axis=1) / over
        distance = elements - means[:, part, None]
        deviations[:, part] = (distance**2).sum(axis=1) + max(padding - n, 0) * means[:, part] ** 2
    weight = {"count": count, "all": np.ones(parts), "filled": np.minimum(count, 1)}[weights]
    mean = (means * weight).sum(axis=1) / weight.sum()
    apart = {"count": count, "one": np.minimum(count, 1), "none": 0 * count}[between] * (means - mean[:, None]) ** 2
    squares = (deviations + apart).sum(axis=1)
    root = np.sqrt(squares / {"cols": cols, "less one": max(cols - 1, 1), "none": 1}[divide] + eps)
    return mean, 1 / root if inverse else root, means, deviations


def split(parts, *sizes, **more):
    """Inputs of 05b.2 and the number of parts."""
    make = inputs(*sizes, **more)
    return lambda rng: {**make(rng), "parts": parts}


def statistics_bytes(x, eps, parts):
    """x once, the results once; the statistics of the parts are written, and read by the second kernel."""
    per_row, per_part = 4 * x.shape[0], 8 * x.shape[0] * parts
    both = {"returned 2": per_part, "returned 3": per_part}
    return {"x": x.nbytes, "returned 0": per_row, "returned 1": per_row, **both}


EMPTY = "Here the row ends before the last part: that part is empty, its mean and deviations are 0, and 0 / 0 is NaN."
STATISTICS = Task(
    id="05b.3",
    title="Split a row among programs",
    points=5,
    functions={"statistics": statistics},
    kernel=True,
    cases=(
        *row_cases(partial(split, 3)),
        Case("2 x 5000 fp32 in 5 parts, all full", split(5, 2, 5000, "fp32")),
        Case("3 x 9 fp32 in 4 parts, the last one empty", split(4, 3, 9, "fp32"), hint=EMPTY),
        Case(
            "2 x 25 bf16 in 12 parts, one of one element, then three empty ones", split(12, 2, 25, "bf16"), hint=EMPTY
        ),
        Case("2 x 600 bf16 in one part", split(1, 2, 600, "bf16")),
        Case("1 x 20000 fp16 in 150 parts", split(150, 1, 20000, "fp16")),
        Case(
            "2 x 20001 fp32 in 12 parts, a mean of 100 standard deviations",
            split(12, 2, 20001, "fp32", mean=200.0, std=2.0),
            hint="Here mean(x * x) - mean * mean cancels, in a part and in the merge: subtract a mean before you "
            "square.",
        ),
        Case(
            "1 x 40000 fp16 in 16 parts, small values, eps 0.001",
            split(16, 1, 40000, "fp16", mean=0.01, std=0.01, eps=1e-3),
        ),
    ),
    mistakes=(
        Mistake(
            "a program read on beyond the end of its part",
            "A tile is a power of two and may be wider than the part: mask with the end of the part as well as with "
            "cols.",
            {"overrun": TILE},
            {"overrun": TILE, "divisor": "read"},
        ),
        Mistake(
            "the masked-out elements of the tile counted in the deviations",
            "A masked-out element holds 0, so x - mean is -mean there: set it to 0 before the second sum.",
            padding=TILE,
        ),
        Mistake(
            "a ragged or an empty part counted as much as a full one",
            "A ragged part has fewer than width elements, an empty one none: divide its sum by its own count, and "
            "weight its mean by that count.",
            {"divisor": "width"},
            {"weights": "all"},
            {"weights": "filled"},
        ),
        Mistake(
            "the distance between the means was left out, or not multiplied by the count",
            "A part measured from its own mean. With n elements and a mean that is d away from the row's, it lacks "
            "n * d**2.",
            {"between": "none"},
            {"between": "one"},
        ),
        Mistake(
            "the scale is not 1 / sqrt(var + eps)",
            "Divide the squared deviations by cols, not by cols - 1, add eps, and take one over the root.",
            {"divide": "none"},
            {"divide": "less one"},
            {"inverse": False},
        ),
    ),
    minimum_bytes=statistics_bytes,
    max_tile=4096,
    hints={
        "traffic": "The first kernel loads its part of x once and takes both sums from registers. The second kernel "
        "loads means and deviations of the parts and nothing else: their counts follow from cols and width.",
        "values": "Is it NaN? The count of an empty part is 0, and 0 / 0 is NaN. Otherwise follow the card's example "
        "by hand: which count, mean and deviations has each part?",
    },
)

TASKS = (MERGE, NORMALISE, STATISTICS)
