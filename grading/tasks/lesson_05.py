"""Exercise 05: Gemma's RMSNorm. Its weight is stored as the difference from one, so y = x * scale * (1 + weight)."""

import numpy as np

from grading.tasks import Case, DType, RandomTensor, Slip, Speed, Task, gives, rounded, tensor
from grading.tasks.properties import row_cases

EXERCISE = "05_rmsnorm"
SIZE = {"fp32": 4, "fp16": 2, "bf16": 2}

# ---------------------------------------------------------------- the operation, and ways to get it wrong


@gives(y="fp32", scale="fp32")
def norm_and_scale(x, weight, eps):
    """Gemma's norm of each row, and the factor 1 / sqrt(mean(x^2) + eps) that x was multiplied by."""
    scale = 1 / np.sqrt((x * x).sum(axis=1) / x.shape[1] + eps)
    return x * scale[:, None] * (1 + weight), scale


@gives(y="out_dtype")
def norm(x, weight, eps):
    """Gemma's norm of each row."""
    scale = 1 / np.sqrt((x * x).sum(axis=1) / x.shape[1] + eps)
    return x * scale[:, None] * (1 + weight)


@gives(y="x", residual="fp32", in_place=("residual",))
def add_norm(x, residual, weight, eps):
    """The residual stream with x added, and its norm."""
    total = rounded(x + residual, "fp32")
    scale = 1 / np.sqrt((total * total).sum(axis=1) / total.shape[1] + eps)
    return total * scale[:, None] * (1 + weight), total


def norm_slips(x: str, loops: bool = False) -> tuple:
    """The slips of a norm of rows called `x` in its oracle and in the answer; loops: the answer goes through tiles."""
    sums, mean = f"({x} * {x}).sum(axis=1)", f"({x} * {x}).sum(axis=1) / {x}.shape[1]"
    scale = f"1 / np.sqrt({mean} + eps)"
    kernel = "tl.rsqrt(tl.sum(squares) / cols + eps)" if loops else f"tl.rsqrt(tl.sum({x} * {x}) / cols + eps)"
    centred = f"({x} - {x}.mean(axis=1, keepdims=True))"

    def as_scale(fault, hint, wrong, answer=None):
        edit = (f"{kernel} -> {kernel.replace(*answer)}",) if answer else ()
        return Slip(fault, hint, f"{scale} -> {wrong}", answer=edit)

    def part(fault, hint, columns):
        return Slip(fault, hint, f"{scale} -> 1 / np.sqrt(({x}[:, {columns}]**2).sum(axis=1) / {x}.shape[1] + eps)")

    return (
        Slip(
            "the weight was applied as weight, not as 1 + weight",
            "Here the weight is stored as the difference from one: multiply by (1 + weight).",
            "(1 + weight) -> weight",
            answer="(1 + weight) -> weight",
        ),
        Slip(
            "the weight was not applied",
            "Multiply each column by (1 + weight).",
            " * (1 + weight) -> ",
            answer=" * (1 + weight) -> ",
        ),
        Slip(
            "the mean of the row was subtracted",
            "RMSNorm does not subtract a mean: that is LayerNorm.",
            f"    scale = ->     {x} = {centred}\n    scale =",
        ),
        as_scale(
            "the sum of squares was not divided by the number of columns",
            "The scale needs the mean of the squares: divide the sum by cols.",
            f"1 / np.sqrt({sums} + eps)",
            answer=(" / cols", ""),
        ),
        as_scale(
            "eps was left out",
            "Add eps to the mean of the squares, under the root.",
            f"1 / np.sqrt({mean})",
            answer=(" + eps", ""),
        ),
        as_scale(
            "eps was added after the root",
            "eps belongs under the root: 1 / sqrt(mean + eps).",
            f"1 / (np.sqrt({mean}) + eps)",
        ),
        as_scale(
            "eps was added to the sum before the division",
            "Divide first, then add eps.",
            f"1 / np.sqrt(({sums} + eps) / {x}.shape[1])",
        ),
        as_scale(
            "the root is missing",
            "The scale is 1 / sqrt(mean + eps): use tl.rsqrt.",
            f"1 / ({mean} + eps)",
            answer=("tl.rsqrt(", "1 / ("),
        ),
        as_scale(
            "the scale is the root itself, not one over it",
            "Use tl.rsqrt, or divide by the root.",
            f"np.sqrt({mean} + eps)",
            answer=("tl.rsqrt(", "tl.sqrt("),
        ),
        as_scale(
            "the mean of the row was subtracted in the statistic",
            "RMSNorm does not subtract a mean: that is LayerNorm.",
            f"1 / np.sqrt(({centred}**2).mean(axis=1) + eps)",
        ),
        as_scale(
            "the mean was taken over all rows together",
            "Each row has a scale of its own: one sum per row.",
            f"np.full(len({x}), 1 / np.sqrt(({x} * {x}).mean() + eps))",
        ),
        as_scale(
            "the lanes beyond the row counted as 1 in the sum",
            "Load masked lanes as the neutral element of a sum: other=0.0.",
            f"1 / np.sqrt(({sums} + (1 << ({x}.shape[1] - 1).bit_length()) - {x}.shape[1]) / {x}.shape[1] + eps)",
        ),
        part("only the first tile went into the sum", "Add up every tile of the row before the root.", ":TILE"),
        part(
            "only the last tile went into the sum",
            "Accumulate with +=, from zero, over all tiles.",
            f"({x}.shape[1] - 1) // TILE * TILE:",
        ),
        part(
            "the columns after the last full tile are missing from the sum",
            "The number of tiles is rounded up: range(0, cols, BLOCK), with a mask in the last one.",
            f":{x}.shape[1] // TILE * TILE",
        ),
        part("the last column is missing from the sum", "The mask is columns < cols, not less.", ":-1"),
    )


INVERTED = Slip(
    "the root mean square was returned where the scale belongs",
    "Store the factor that x is multiplied by: 1 / sqrt(mean + eps).",
    "(1 + weight), scale -> (1 + weight), 1 / scale",
    results=("scale",),
)

# ---------------------------------------------------------------- inputs


def inputs(rows, cols, dtype, row_stride=None, std=1.0, eps=1e-6, **more):
    """A random matrix and a weight."""
    return lambda rng: {
        "x": tensor(rng.normal(0, std, (rows, cols)), dtype, row_stride),
        "weight": tensor(rng.normal(0, 0.3, cols), "fp32"),
        "eps": eps,
        **more,
    }


def spoilt(change, rows, cols, dtype, **rest):
    """The same with x as change(rng, x) makes it."""

    def make(rng):
        given = inputs(rows, cols, dtype, **rest)(rng)
        return {**given, "x": tensor(change(rng, given["x"].values), dtype)}

    return make


def outlier(rng, x):
    """Small values and one large one in the last column: a sum that ends early misses it."""
    return np.concatenate([0.01 * x[:, :-1], np.full((len(x), 1), 50.0)], axis=1)


def zeros(rng, x):
    """The first row is zero."""
    return x * (np.arange(len(x)) > 0)[:, None]


def large(rng, x):
    """fp16 values whose squares overflow fp16, which ends at 65,504."""
    return rng.uniform(300, 2000, x.shape) * np.sign(x)


# ---------------------------------------------------------------- 05.1 count the bytes


@gives("bytes")
def eager_bytes(rows, cols, itemsize):
    """Five PyTorch operations."""
    return (7 * rows * cols + cols) * itemsize + 4 * rows * 4


@gives("bytes")
def two_pass_bytes(rows, cols, itemsize):
    """x twice, the weight, y, the scale."""
    return (3 * rows * cols + cols) * itemsize + 4 * rows


@gives("bytes")
def resident_bytes(rows, cols, itemsize):
    """x once, the weight, y, the scale."""
    return (2 * rows * cols + cols) * itemsize + 4 * rows


def sizes(itemsize):
    return lambda rng: {
        "rows": int(rng.integers(100, 20_000)),
        "cols": int(rng.integers(100, 20_000)),
        "itemsize": itemsize,
    }


VARIANTS = {oracle.__name__: oracle for oracle in (eager_bytes, two_pass_bytes, resident_bytes)}
COUNT = Task(
    id="05.1",
    title="Count the bytes of three variants",
    points=3,
    functions=VARIANTS,
    cases=tuple(
        Case(f"{function}, elements of {size} bytes", sizes(size), function) for function in VARIANTS for size in (2, 4)
    ),
    slips=(
        Slip(
            "the weight was counted once per row",
            "All rows share one weight: DRAM delivers it once and the caches serve the rest.",
            "+ cols) -> + rows * cols)",
        ),
        Slip("the weight was left out", "The weight is read too: cols elements, once.", " + cols) -> )"),
        Slip(
            "the values kept per row were left out",
            "One fp32 number per row is small beside a row, but it is written (and, unfused, read again).",
            " + 4 * rows -> + 0 * rows",
        ),
        Slip(
            "the values kept per row were counted with itemsize",
            "They are fp32 whatever x is: 4 bytes each.",
            "+ 4 * rows * 4 -> + 4 * rows * itemsize",
            "+ 4 * rows -> + itemsize * rows",
        ),
        Slip(
            "elements were counted, not bytes",
            "Multiply by the bytes of an element.",
            (") * itemsize + 4 * rows * 4 -> ) + 4 * rows",),
            (") * itemsize + 4 * rows -> ) + rows",),
        ),
        Slip(
            "x was counted once, and the variant reads it twice",
            "Go through the steps and note for each what it reads: x comes up twice.",
            "7 * rows -> 6 * rows",
            "3 * rows -> 2 * rows",
        ),
        Slip(
            "x was counted twice, and the resident kernel reads it once",
            "The row stays in registers between the sum and the output.",
            "(2 * rows -> (3 * rows",
        ),
        Slip(
            "one pass over the matrix too many was counted",
            "x * x reads x once, and a fused kernel writes only y.",
            "7 * rows -> 8 * rows",
            "3 * rows -> 4 * rows",
        ),
        Slip(
            "several intermediate results were left out",
            "Each PyTorch operation reads its inputs from memory and writes its result back to memory.",
            "7 * rows -> 3 * rows",
        ),
    ),
    hints={"wrong": "List each step with what it reads and what it writes, then add up."},
)

# ---------------------------------------------------------------- 05.2 the loop in PyTorch

TILE_LOOP = Task(
    id="05.2",
    title="The tile loop, in PyTorch",
    points=3,
    functions={"tile_loop": norm_and_scale},
    cases=(
        Case("4 x 256 fp32, tiles of 64", inputs(4, 256, "fp32", block=64)),
        Case("3 x 1000 bf16, tiles of 128: a ragged last tile", inputs(3, 1000, "bf16", block=128)),
        Case("5 x 1 fp16, tiles of 64: one column", inputs(5, 1, "fp16", block=64)),
        Case("7 x 129 fp32, tiles of 64: one column over", inputs(7, 129, "fp32", block=64)),
        Case("2 x 300 fp32, a row of zeros", spoilt(zeros, 2, 300, "fp32", eps=1e-5, block=64)),
        Case("2 x 500 fp32, small values, eps 0.001", inputs(2, 500, "fp32", std=0.01, eps=1e-3, block=100)),
        Case("2 x 400 fp16, large values", spoilt(large, 2, 400, "fp16", block=128)),
        Case("2 x 700 fp32, outlier in the last column", spoilt(outlier, 2, 700, "fp32", block=256)),
    ),
    slips=(*norm_slips("x"), INVERTED),
    tile_elements=lambda x, weight, eps, block: len(x) * block,
    hints={
        "tail": "The last slice is shorter where block does not divide cols: let the slice's end be min(start + block, "
        "cols), in both loops.",
        "nan": "A part of y was never written, or something was divided by zero: check that the second loop covers "
        "every column and that eps is under the root.",
    },
)

# ---------------------------------------------------------------- 05.3 the resident kernel


def norm_bytes(x, weight, eps):
    rows, cols = x.shape
    return {"x": x.nbytes, "weight": rows * cols * 4, "returned 0": rows * cols * 4, "returned 1": rows * 4}


RESIDENT = Task(
    id="05.3",
    title="The resident kernel",
    points=4,
    functions={"gemma_norm": norm_and_scale},
    kernel=True,
    like="rmsnorm",
    prepared=("weight",),
    cases=(
        *row_cases(inputs),
        Case("2 x 300 fp32, a row of zeros", spoilt(zeros, 2, 300, "fp32", eps=1e-5)),
        Case("2 x 500 fp32, small values, eps 0.001", inputs(2, 500, "fp32", std=0.01, eps=1e-3)),
        Case("2 x 400 fp16, large values", spoilt(large, 2, 400, "fp16")),
        Case("1 x 32768 fp32, the widest row", inputs(1, 32768, "fp32")),
        Case("1 x 32768 bf16, outlier in the last column", spoilt(outlier, 1, 32768, "bf16")),
    ),
    slips=(*norm_slips("x"), INVERTED),
    minimum_bytes=norm_bytes,
    hints={
        "unwritten": "The tile is narrower than the row. A resident kernel's tile spans the row: "
        "BLOCK = triton.next_power_of_2(cols).",
        "bytes": "Load the row once: the registers that gave the sum of squares also give the output.",
    },
    speed=Speed(
        points=1,
        share=0.75,
        bytes=8192 * 8192 * 6 + 8192 * 8,
        shape="8192 x 8192 bf16",
        make=lambda: {
            "x": RandomTensor((8192, 8192), "bf16"),
            "weight": RandomTensor((8192,), "fp32", 0, 0.3),
            "eps": 1e-6,
        },
    ),
)

# ---------------------------------------------------------------- 05.4 the streaming kernel


def wide_bytes(x, weight, eps, out_dtype):
    rows, cols = x.shape
    return {"x": 2 * x.nbytes, "weight": rows * cols * 4, "returned 0": rows * cols * SIZE[out_dtype.name]}


def to(dtype):
    """Inputs of which the result is wanted in this dtype."""
    return lambda rows, cols, of, row_stride=None, **more: inputs(
        rows, cols, of, row_stride, out_dtype=DType(dtype), **more
    )


STREAMING = Task(
    id="05.4",
    title="The streaming kernel, for rows of any width",
    points=4,
    functions={"wide_norm": norm},
    kernel=True,
    like="rmsnorm",
    prepared=("weight",),
    cases=(
        *row_cases(
            to("fp32"), leave_out=("one less than a power of two", "one more than a power of two", "a wide row")
        ),
        Case("2 x 4096 bf16 to fp32, one widest tile", to("fp32")(2, 4096, "bf16")),
        Case("2 x 4097 fp32 to bf16, one column over", to("bf16")(2, 4097, "fp32")),
        Case("2 x 10007 bf16 to bf16, a prime", to("bf16")(2, 10007, "bf16")),
        Case(
            "2 x 5000 fp16 to fp16, rows 5,120 elements apart",
            to("fp16")(2, 5000, "fp16", 5120),
            hint="This x has padded rows: the next row starts x.stride(0) elements on, not cols.",
        ),
        Case("2 x 400 fp16 to fp32, large values", spoilt(large, 2, 400, "fp16", out_dtype=DType("fp32"))),
        Case("2 x 500 fp32 to fp32, small values, eps 0.001", to("fp32")(2, 500, "fp32", std=0.01, eps=1e-3)),
        Case("1 x 40000 fp32 to fp32, ten tiles", to("fp32")(1, 40000, "fp32")),
        Case(
            "1 x 70001 bf16 to fp32, outlier in the last column",
            spoilt(outlier, 1, 70001, "bf16", out_dtype=DType("fp32")),
        ),
    ),
    slips=norm_slips("x", loops=True),
    minimum_bytes=wide_bytes,
    max_tile=4096,
    hints={
        "unwritten": "The second loop has to cover every tile of the row, the ragged last one too.",
        "bytes": "Two passes read x twice; the weight is needed only in the second, and y is written once.",
        "dtype": "Allocate y with dtype=out_dtype; `tl.store` casts to the type of the pointer.",
    },
    speed=Speed(
        points=1,
        share=0.45,
        bytes=4096 * 65536 * 4 + 65536 * 4,
        shape="4096 x 65536 bf16",
        make=lambda: {
            "x": RandomTensor((4096, 65536), "bf16"),
            "weight": RandomTensor((65536,), "fp32", 0, 0.3),
            "eps": 1e-6,
            "out_dtype": DType("bf16"),
        },
    ),
)

# ---------------------------------------------------------------- 05.5 residual add and norm


def added(rows, cols, dtype, row_stride=None, residual=1.0, eps=1e-6, cancel=False, std=1.0):
    """x and a residual stream; cancel: so that little is left of their sum."""

    def make(rng):
        x = rounded(rng.normal(0, std, (rows, cols)), dtype)
        before = -x + rng.normal(0, 0.05, x.shape) if cancel else rng.normal(0, residual, (rows, cols))
        return {
            "x": tensor(x, dtype),
            "residual": tensor(before, "fp32"),
            "weight": tensor(rng.normal(0, 0.3, cols), "fp32"),
            "eps": eps,
        }

    return make


def between_numbers(rows, cols):
    """Sums that lie between two bf16 numbers: rounded before the norm, up or down, they lose most."""

    def make(rng):
        x = rounded(rng.normal(0, 1, (rows, cols)), "bf16")
        total = rng.choice([-1, 1], x.shape) * (
            1 + (rng.integers(0, 12, x.shape) + rng.choice([0.48, 0.52], x.shape)) * 2.0**-7
        )
        return {
            "x": tensor(x, "bf16"),
            "residual": tensor(total - x, "fp32"),
            "weight": tensor(rng.normal(0, 0.3, cols), "fp32"),
            "eps": 1e-6,
        }

    return make


def added_bytes(x, residual, weight, eps):
    rows, cols = x.shape
    return {"x": x.nbytes, "residual": 2 * rows * cols * 4, "weight": rows * cols * 4, "returned 0": x.nbytes}


SUM = 'rounded(x + residual, "fp32")'
ADDED = Task(
    id="05.5",
    title="Residual add and norm at minimum traffic",
    points=5,
    functions={"add_gemma_norm": add_norm},
    kernel=True,
    like="add_rmsnorm",
    prepared=("weight",),
    cases=(
        *row_cases(
            added,
            leave_out=("padded rows", "one less than a power of two"),
            a_wide_row="fp32",
            one_more_than_a_power_of_two="fp16",
        ),
        Case("2 x 777 fp32, x and residual nearly cancel", added(2, 777, "fp32", cancel=True)),
        Case("2 x 640 bf16, sums between two bf16 numbers", between_numbers(2, 640)),
        Case("2 x 600 bf16, a large residual", added(2, 600, "bf16", residual=300.0)),
        Case("2 x 300 fp16, a sum whose square overflows fp16", added(2, 300, "fp16", residual=1000.0)),
        Case("2 x 500 fp32, small values, eps 0.001", added(2, 500, "fp32", std=0.01, residual=0.01, eps=1e-3)),
        Case("1 x 32768 fp32, the widest row", added(1, 32768, "fp32")),
    ),
    slips=(
        Slip(
            "the residual was not updated",
            "Store the sum back into residual, in place.",
            "(1 + weight), total -> (1 + weight), residual",
        ),
        Slip(
            "x alone was normed, not the sum",
            "The norm takes residual + x.",
            (f"total = {SUM} -> total = x", "(1 + weight), total -> (1 + weight), x + residual"),
            answer=("tl.sum(total * total) -> tl.sum(x * x)", "total * scale -> x * scale"),
        ),
        Slip(
            "the residual from before the addition was normed",
            "The norm takes residual + x.",
            (f"total = {SUM} -> total = residual", "(1 + weight), total -> (1 + weight), x + residual"),
        ),
        Slip(
            "the sum was rounded to 16 bits",
            "The residual stream stays fp32: convert x to fp32, add, store the fp32 sum.",
            f"{SUM} -> rounded(x + residual, 'bf16')",
            f"{SUM} -> rounded(x + residual, 'fp16')",
        ),
        Slip("x was subtracted", "The norm takes residual + x.", f"{SUM} -> residual - x"),
        Slip(
            "the scale is that of x alone, or of the old residual",
            "The sum of squares is taken over the new residual, x + residual.",
            "(total * total).sum -> (x * x).sum",
            "(total * total).sum -> (residual * residual).sum",
            answer="tl.sum(total * total) -> tl.sum(x * x)",
        ),
        Slip(
            "the normed rows were written over the residual",
            "residual gets the sum; y, a tensor of its own, gets the normed sum.",
            "(1 + weight), total -> (1 + weight), total * scale[:, None] * (1 + weight)",
            results=("residual",),
        ),
        *norm_slips("total"),
    ),
    minimum_bytes=added_bytes,
    hints={
        "unwritten": "The tile is narrower than the row: BLOCK = triton.next_power_of_2(cols), as in 05.3.",
        "bytes": "x and residual are read once, residual and y are written once, and nothing else moves: keep the sum "
        "in registers until y is stored.",
    },
    speed=Speed(
        points=1,
        share=0.75,
        bytes=8192 * 8192 * 12 + 8192 * 4,
        shape="8192 x 8192 bf16",
        make=lambda: {
            "x": RandomTensor((8192, 8192), "bf16"),
            "residual": RandomTensor((8192, 8192), "fp32"),
            "weight": RandomTensor((8192,), "fp32", 0, 0.3),
            "eps": 1e-6,
        },
    ),
)

# ---------------------------------------------------------------- 05.6 the wrong accumulator

TILE = 64
OFF_BY, RIGHT_WITHIN, LARGEST = 0.10, 0.03, 4.0


def _bf16(values):
    return rounded(values, "bf16").astype(np.float32)


def lanes(row):
    """64 fp32 running sums, added up at the end."""
    return float(
        np.sum((row.astype(np.float32) ** 2).reshape(-1, TILE).sum(axis=0, dtype=np.float32), dtype=np.float32)
    )


def tree(row):
    """Squares and every partial sum in bf16, added in pairs, in pairs of pairs and so on."""
    sums = _bf16(row.astype(np.float32) ** 2)
    sums = np.concatenate([sums, np.zeros(2 ** int(np.ceil(np.log2(len(sums)))) - len(sums), np.float32)])
    while len(sums) > 1:
        sums = _bf16(sums[0::2] + sums[1::2])
    return float(sums[0])


def squares(row):
    """Squares rounded to bf16, added in fp32."""
    return float(np.sum(_bf16(row.astype(np.float32) ** 2), dtype=np.float32))


def carry(row):
    """fp32 within a tile of 64, a bf16 running sum from tile to tile."""
    total = np.float32(0)
    for tile in (row.astype(np.float32) ** 2).reshape(-1, TILE):
        total = _bf16(total + tile.sum(dtype=np.float32))
    return float(total)


ACCUMULATORS = {"lanes": lanes, "tree": tree, "squares": squares, "carry": carry}


def _shown(arguments, returned):
    """Whether the named accumulator is far off on the returned row while the others are right."""
    cols = arguments["cols"]
    if len(returned) != 2:
        return f"{len(returned)} values came back, expected the name of an accumulator and a row"
    name, row = returned
    if not isinstance(name, str) or name not in ACCUMULATORS:
        said = repr(name) if isinstance(name, str) else f"the first value, a {type(name).__name__},"
        return f"{said} is none of the four names: " + ", ".join(ACCUMULATORS)
    if not isinstance(row, np.ndarray) or row.shape != (cols,):
        got = f"shape {list(row.shape)}" if isinstance(row, np.ndarray) else type(row).__name__
        return f"the row has to be a tensor of shape [{cols}], got {got}"
    if arguments["_dtypes"][1] != "fp32":
        return f"the row has to be an fp32 tensor, got {arguments['_dtypes'][1]}"
    if not np.isfinite(row).all() or np.abs(row).max() > LARGEST:
        return f"every value of the row has to lie between -{LARGEST:g} and {LARGEST:g}"
    if not np.array_equal(rounded(row, "bf16"), row):
        return "every value of the row has to be a bf16 number, so that no accumulator is blamed for rounding the input"
    exact = float((row * row).sum())
    if exact == 0:
        return "a row of zeros shows nothing"
    errors = {other: abs(sum_of(row) / exact - 1) for other, sum_of in ACCUMULATORS.items()}
    if errors[name] < OFF_BY:
        advice = (
            "Think of when a bf16 running sum no longer changes: it has 8 significant bits, so it absorbs whatever is "
            "less than 1/512 of it."
        )
        return f"on this row {name} is not off by {OFF_BY:.0%} or more, but by {errors[name]:.1%}. {advice}"
    if max(error for other, error in errors.items() if other != name) > RIGHT_WITHIN:  # which one, is theirs to find
        return (
            f"on this row {name} is off by {errors[name]:.1%}, and another one by more than {RIGHT_WITHIN:.0%} as "
            "well, so the row does not tell them apart"
        )
    return ""


HUNT = Task(
    id="05.6",
    title="Which accumulator is wrong? Show it",
    points=3,
    functions={"show_wrong": None},
    verdict=_shown,
    cases=tuple(Case(f"row {turn}", lambda rng: {"cols": TILE * int(rng.integers(128, 257))}) for turn in (1, 2, 3)),
    success="the accumulator that you named is off by 10% or more on your rows, and the other three are not",
)

TASKS = (COUNT, TILE_LOOP, RESIDENT, STREAMING, ADDED, HUNT)
