"""Exercise 05b: the statistics of LayerNorm, merged from parts of a row, and kept by a kernel that normalises."""

import numpy as np

from grading.tasks import Case, Slip, Task, gives, tensor
from grading.tasks.properties import row_cases

EXERCISE = "05b_layernorm"

# ---------------------------------------------------------------- 05b.1 merge two parts of a row


@gives("count", "mean", "deviations")
def merged(count_a, mean_a, deviations_a, count_b, mean_b, deviations_b):
    """A row's count, mean and squared deviations, from those of its two parts (Chan, Golub and LeVeque, 1979)."""
    count = count_a + count_b
    apart = mean_b - mean_a
    mean = mean_a + apart * count_b / count
    deviations = deviations_a + deviations_b + apart**2 * count_a * count_b / count
    return count, mean, deviations


def parts(most_a: int, most_b: int, around: float = 0.0, least: int = 2):
    """Statistics of two random parts whose means lie apart; a part of no elements has zeros."""

    def of(rng, most, mean):
        row = rng.normal(mean, 1, int(rng.integers(least, most + 1)) if most > least else most)
        return (len(row), float(row.mean()), float(((row - row.mean()) ** 2).sum())) if most else (0, 0.0, 0.0)

    def make(rng):
        a, b = of(rng, most_a, around + 2), of(rng, most_b, around - 3)
        names = ("count", "mean", "deviations")
        return {f"{name}_{part}": value for part, found in (("a", a), ("b", b)) for name, value in zip(names, found)}

    return make


BETWEEN = "apart**2 * count_a * count_b / count"
MERGE = Task(
    id="05b.1",
    title="Merge two parts of a row",
    points=3,
    functions={"merge": merged},
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
    slips=(
        Slip(
            "how far the two means lie apart was left out",
            "Each part has measured from its own mean: add what their distance makes.",
            f" + {BETWEEN} -> ",
        ),
        Slip(
            "the two means were averaged without their counts",
            "A long part moves the mean more than a short one: weight each mean by its count.",
            "mean_a + apart * count_b / count -> (mean_a + mean_b) / 2",
        ),
        Slip(
            "each mean got the other part's weight",
            "Seen from mean_a, the mean moves by the share of elements that part b has: count_b / count.",
            "apart * count_b / count -> apart * count_a / count",
        ),
        Slip(
            "the squared distance between the means has a wrong weight",
            "Measure each part from the merged mean: count_a times one squared distance plus count_b times the other.",
            f"{BETWEEN} -> apart**2",
            f"{BETWEEN} -> apart**2 * count",
            f"{BETWEEN} -> apart**2 * count_b",
            f"{BETWEEN} -> apart**2 * count_a",
            f"{BETWEEN} -> apart**2 * count_a * count_b",
        ),
        Slip(
            "the distance between the means was not squared",
            "Squared deviations are merged: the distance counts squared.",
            f"{BETWEEN} -> apart * count_a * count_b / count",
            f"{BETWEEN} -> abs(apart) * count_a * count_b / count",
        ),
        Slip(
            "the variance was returned where the sum of squared deviations belongs",
            "Return the sum; dividing by the count is left to whoever has merged everything.",
            "return count, mean, deviations -> return count, mean, deviations / count",
        ),
    ),
    hints={"wrong": "Take two short lists, merge their statistics by hand, and compare with those of the joined list."},
)

# ---------------------------------------------------------------- 05b.2 normalise, and keep the statistics


@gives(y="x", mean="fp32", scale="fp32")
def normalised(x, eps):
    """Each row minus its mean, times 1 / sqrt(var + eps); the mean; that factor."""
    mean = x.sum(axis=1) / x.shape[1]
    centred = x - mean[:, None]
    scale = 1 / np.sqrt((centred * centred).sum(axis=1) / x.shape[1] + eps)
    return centred * scale[:, None], mean, scale


def inputs(rows, cols, dtype, row_stride=None, mean=1.0, std=1.0, eps=1e-5):
    """A random matrix whose rows have a mean."""
    return lambda rng: {"x": tensor(rng.normal(mean, std, (rows, cols)), dtype, row_stride), "eps": eps}


def kept_bytes(x, eps):
    per_row = 4 * x.shape[0]
    return {"x": x.nbytes, "returned 0": x.nbytes, "returned 1": per_row, "returned 2": per_row}


SQUARES = "(centred * centred).sum(axis=1)"
SCALE = f"1 / np.sqrt({SQUARES} / x.shape[1] + eps)"
IN_KERNEL = "tl.rsqrt(tl.sum(centred * centred) / cols + eps)"


def as_scale(fault: str, hint: str, wrong: str, *answer: str) -> Slip:
    """A slip of the scale: what stands in its place, in the oracle, and what in the published answer."""
    return Slip(fault, hint, f"{SCALE} -> {wrong}", answer=tuple(f"{IN_KERNEL} -> {other}" for other in answer))


NORMALISE = Task(
    id="05b.2",
    title="Normalise, and keep the statistics",
    points=5,
    functions={"normalise": normalised},
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
    slips=(
        Slip(
            "the lanes beyond the row counted in the variance",
            "A masked lane holds 0, which is the mean away from the mean: set it back to 0 before the second sum.",
            f"{SQUARES} -> ({SQUARES} + ((1 << (x.shape[1] - 1).bit_length()) - x.shape[1]) * mean**2)",
            answer="tl.where(inside, x - mean, 0.0) -> x - mean",
        ),
        Slip(
            "the mean was not subtracted from the output",
            "y is (x - mean) times the scale.",
            "return centred * -> return x *",
            answer="centred * scale -> x * scale",
        ),
        Slip(
            "the mean was not subtracted before squaring",
            "The variance is the mean of (x - mean) squared; the mean of x squared is RMSNorm's.",
            f"{SQUARES} -> (x * x).sum(axis=1)",
            answer="tl.sum(centred * centred) -> tl.sum(x * x)",
        ),
        Slip(
            "no mean was subtracted at all",
            "That is RMSNorm: subtract the mean, before squaring and from the output.",
            (f"{SQUARES} -> (x * x).sum(axis=1)", "return centred * -> return x *"),
            answer=("tl.sum(centred * centred) -> tl.sum(x * x)", "centred * scale -> x * scale"),
        ),
        Slip(
            "the mean was taken over all rows together",
            "Each row has a mean of its own.",
            "x.sum(axis=1) / x.shape[1] -> np.full(len(x), x.mean())",
        ),
        Slip(
            "the sum was returned where the mean belongs",
            "Divide the sum by the number of columns before you store it.",
            "scale[:, None], mean, scale -> scale[:, None], mean * x.shape[1], scale",
            results=("mean",),
        ),
        Slip(
            "mean and scale were returned in the other order",
            "Return (y, mean, scale).",
            "scale[:, None], mean, scale -> scale[:, None], scale, mean",
        ),
        Slip(
            "the standard deviation was returned where the scale belongs",
            "Store the factor that x - mean is multiplied by: 1 / sqrt(var + eps).",
            "scale[:, None], mean, scale -> scale[:, None], mean, 1 / scale",
            results=("scale",),
        ),
        as_scale(
            "the squared deviations were divided by cols - 1",
            "LayerNorm's variance divides by cols; torch.var divides by cols - 1 unless told otherwise.",
            f"1 / np.sqrt({SQUARES} / max(1, x.shape[1] - 1) + eps)",
        ),
        as_scale(
            "the squared deviations were not divided by the number of columns",
            "The variance is a mean: divide the sum by cols.",
            f"1 / np.sqrt({SQUARES} + eps)",
            "tl.rsqrt(tl.sum(centred * centred) + eps)",
        ),
        as_scale(
            "eps was added after the root",
            "eps belongs under the root: 1 / sqrt(var + eps).",
            f"1 / (np.sqrt({SQUARES} / x.shape[1]) + eps)",
            "1 / (tl.sqrt(tl.sum(centred * centred) / cols) + eps)",
        ),
        as_scale(
            "the root is missing",
            "The scale is 1 / sqrt(var + eps): use tl.rsqrt.",
            f"1 / ({SQUARES} / x.shape[1] + eps)",
            "1 / (tl.sum(centred * centred) / cols + eps)",
        ),
        as_scale(
            "the scale is the root itself, not one over it",
            "Use tl.rsqrt, or divide by the root.",
            f"np.sqrt({SQUARES} / x.shape[1] + eps)",
            "tl.sqrt(tl.sum(centred * centred) / cols + eps)",
        ),
        Slip(
            "the last column is missing from the mean",
            "The mask is columns < cols, not less.",
            "x.sum(axis=1) / x.shape[1] -> x[:, :-1].sum(axis=1) / x.shape[1]",
        ),
    ),
    minimum_bytes=kept_bytes,
    hints={
        "unwritten": "The tile is narrower than the row: BLOCK = triton.next_power_of_2(cols).",
        "bytes": "Load the row once: mean, variance and output all come from the registers it is in.",
    },
)

TASKS = (MERGE, NORMALISE)
