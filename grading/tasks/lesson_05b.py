"""Exercise 05b: the statistics of LayerNorm, merged from parts of a row, kept by a kernel that normalises, and taken
from one read of a row of any width."""

import numpy as np

from grading.tasks import TILE, Case, Mistake, Task, returns, tensor
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

# ---------------------------------------------------------------- 05b.3 both statistics in one read


@returns(mean="fp32", scale="fp32")
def statistics(x, eps, *, within=0, padding=0, weighted=True, divide="cols", inverse=True):
    """The mean of each row and 1 / sqrt(var + eps).

    within: the width of tiles whose elements each have a mean of their own, where squared deviations are measured from
    those only. padding: the width of tiles whose masked-out elements count as zeros. weighted: whether those means are
    averaged by their counts.
    """
    rows, cols = x.shape
    width = within or padding or cols
    filled = np.pad(x, ((0, 0), (0, -cols % width)))
    if within or padding:
        inside = (np.arange(filled.shape[1]) < cols).reshape(-1, width)
        tiles = filled.reshape(rows, -1, width)
        count = inside.sum(axis=0)
        means = tiles.sum(axis=1) / (len(inside) if padding else np.maximum(count, 1))
        mean = (means * count).sum(axis=1) / cols if weighted else means[:, count > 0].mean(axis=1)
        squares = (((tiles - means[:, None]) * (padding > 0 or inside)) ** 2).sum(axis=(1, 2))
        if padding or not weighted:
            squares = squares + (count * (means - mean[:, None]) ** 2).sum(axis=1)
    else:
        mean = x.sum(axis=1) / cols
        squares = ((x - mean[:, None]) ** 2).sum(axis=1)
    root = np.sqrt(squares / {"cols": cols, "less one": max(cols - 1, 1), "none": 1}[divide] + eps)
    return mean, 1 / root if inverse else root


def statistics_bytes(x, eps):
    return {"x": x.nbytes, "returned 0": 4 * x.shape[0], "returned 1": 4 * x.shape[0]}


CANCELS = "Here mean(x * x) - mean * mean cancels: subtract a mean before you square."
STATISTICS = Task(
    id="05b.3",
    title="Both statistics in one read",
    points=5,
    functions={"statistics": statistics},
    kernel=True,
    cases=(
        *row_cases(inputs),
        Case("2 x 5000 fp32, a ragged last tile", inputs(2, 5000, "fp32")),
        Case("2 x 9001 bf16", inputs(2, 9001, "bf16")),
        Case(
            "2 x 20001 fp32, a mean of 100 standard deviations",
            inputs(2, 20001, "fp32", mean=200.0, std=2.0),
            hint=CANCELS,
        ),
        Case("1 x 40000 fp16, small values, eps 0.001", inputs(1, 40000, "fp16", mean=0.01, std=0.01, eps=1e-3)),
    ),
    mistakes=(
        Mistake(
            "the distance between the means was left out",
            "An accumulator with n values whose mean is d away from the row's lacks n * d**2.",
            within=TILE,
        ),
        Mistake(
            "the means were averaged without their counts",
            "In a ragged last tile some accumulators get one value less: weight each mean by its count.",
            within=TILE,
            weighted=False,
        ),
        Mistake(
            "the masked-out elements of the last tile counted as zeros",
            "A masked-out element must change neither the mean nor the deviations: set its delta to 0.",
            padding=TILE,
        ),
        Mistake(
            "the variance was not divided by the number of columns",
            "The variance is the mean of the squared deviations: divide by cols, not by cols - 1.",
            {"divide": "none"},
            {"divide": "less one"},
        ),
        Mistake(
            "the scale is the square root itself, not one over it",
            "Use tl.rsqrt, or divide by the root.",
            inverse=False,
        ),
    ),
    minimum_bytes=statistics_bytes,
    max_tile=4096,
    hints={
        "traffic": "Read x once: carry a mean and a sum of squared deviations from tile to tile.",
        "values": "Follow one accumulator by hand: values 1, 2 and 6 in three tiles have the mean 3 and the sum 14.",
    },
)

TASKS = (MERGE, NORMALISE, STATISTICS)
