"""Exercise 05: Gemma's RMSNorm. Its weight is stored as the difference from one, so y = x * scale * (1 + weight)."""

from functools import partial

import numpy as np

from grading.tasks import TILE, Case, DType, Mistake, RandomTensor, Speed, Task, returns, rounded, tensor
from grading.tasks.properties import PADDED, row_cases

EXERCISE = "05_rmsnorm"
SIZE = {"fp32": 4, "fp16": 2, "bf16": 2}

# ---------------------------------------------------------------- the norm, its common mistakes and its inputs


def scale_of(x, eps, way="right", tile=1):
    """1 / sqrt(mean(x^2) + eps) of each row. way: 'right' or a common mistake; tile: for those that sum up one."""
    cols = x.shape[1]
    start = (cols - 1) // tile * tile if way == "last tile" else 0
    end = {"first tile": tile, "full tiles": cols // tile * tile}.get(way, cols)
    ones = max(tile - cols, 0) if way == "padding of ones" else 0
    squares = ((x[:, start:end] ** 2).sum(axis=1) + ones) / (1 if way == "sum" else cols)
    inside = 0 if way in ("no eps", "eps outside") else eps
    root = np.sqrt(squares + inside) + (eps if way == "eps outside" else 0)
    return {"root": root, "no root": 1 / root**2}.get(way, 1 / root)


def gain_of(weight, way="1 + weight", tile=1):
    """The factor of each column."""
    ways = {"weight": weight, "none": 1, "first tile": 1 + weight[np.arange(len(weight)) % tile]}
    return ways.get(way, 1 + weight)


@returns(y="fp32", scale="fp32")
def norm_and_scale(x, weight, eps, *, scale="right", gain="1 + weight", centered=False, tile=1):
    """Gemma's norm of each row, and the factor 1 / sqrt(mean(x^2) + eps)."""
    x = x - x.mean(axis=1, keepdims=True) if centered else x
    factor = scale_of(x, eps, scale, tile)
    return x * factor[:, None] * gain_of(weight, gain), factor


def largest_of(x, norm, factor, way="norm", tile=1):
    """The largest absolute value of each row of the norm. way: a common mistake; tile: for one that looks at one."""
    last = (norm.shape[1] - 1) // tile * tile
    ways = {
        "signed": norm,
        "x": np.abs(x),
        "unweighted": np.abs(x * factor[:, None]),
        "last tile": np.abs(norm[:, last:]),
    }
    return ways.get(way, np.abs(norm)).max(axis=1)


@returns(y="fp32", largest="fp32")
def unit_norm(
    x,
    weight,
    eps,
    *,
    scale="right",
    gain="1 + weight",
    centered=False,
    tile=1,
    largest="norm",
    divided=True,
    zeros="kept",
):
    """Gemma's norm of each row, divided by its largest absolute value, and that value. A row of zeros stays one."""
    norm, factor = norm_and_scale(x, weight, eps, scale=scale, gain=gain, centered=centered, tile=tile)
    by = largest_of(x, norm, factor, largest)
    divisor = np.where(by == 0, np.nan if zeros == "divided" else 1, by)
    return norm / divisor[:, None] if divided else norm, by


@returns(y="out_dtype", largest="fp32")
def wide_norm(x, weight, eps, out_dtype, *, scale="right", gain="1 + weight", centered=False, tile=1, largest="norm"):
    """Gemma's norm of each row, and its largest absolute value before y is rounded."""
    x = x - x.mean(axis=1, keepdims=True) if centered else x
    factor = scale_of(x, eps, scale, tile)
    norm = x * factor[:, None] * gain_of(weight, gain, tile)
    return norm, largest_of(x, rounded(norm, out_dtype) if largest == "rounded" else norm, factor, largest, tile)


GAIN = Mistake(
    "the weight was not applied as 1 + weight",
    "The weight is stored as the difference from one: multiply each column by (1 + weight).",
    *({"gain": gain} for gain in ("weight", "none")),
)
CENTERED = Mistake("the mean of each row was subtracted", "RMSNorm subtracts no mean: LayerNorm does.", centered=True)
SCALE = Mistake(
    "the scale is not 1 / sqrt(mean of the squares + eps)",
    "Divide the sum of squares by cols, add eps, and take one over the root of that.",
    *({"scale": way} for way in ("sum", "root", "no root", "no eps", "eps outside")),
)
TILES = Mistake(
    "part of the row is missing from the sum of squares",
    "Start at zero and add the squares of every tile, also of the last one, which may be narrower.",
    *({"scale": way, "tile": TILE} for way in ("first tile", "last tile", "full tiles")),
)
LARGEST = Mistake(
    "largest is not the largest absolute value of the row's norm",
    "Take the absolute value, then the maximum, of x * scale * (1 + weight).",
    *({"largest": way} for way in ("signed", "x", "unweighted")),
)


def inputs(rows, cols, dtype, row_stride=None, std=1.0, eps=1e-6, change=None, **more):
    """A random matrix, as change(rng, x) makes it if there is one, and a weight."""

    def make(rng):
        x = rng.normal(0, std, (rows, cols))
        x = change(rng, rounded(x, dtype)) if change else x
        weight = tensor(rng.paired.normal(0, 0.3, cols), "fp32")
        return {"x": tensor(x, dtype, row_stride), "weight": weight, "eps": eps, **more}

    return make


def outlier(rng, x):
    """Small values and one large one in the last column: a sum that ends early misses it."""
    return np.concatenate([0.01 * x[:, :-1], np.full((len(x), 1), 50.0)], axis=1)


def zeros(rng, x):
    """The first row is zero."""
    return x * (np.arange(len(x)) > 0)[:, None]


def large(rng, x):
    """Values whose squares overflow fp16, which ends at 65,504."""
    return rng.uniform(300, 2000, x.shape) * np.sign(x)


def timed(residual=False, **more):
    """The arguments of a timed call."""
    rows, cols = more.pop("shape", (8192, 8192))
    x = {"x": RandomTensor((rows, cols), "bf16")}
    if residual:
        x["residual"] = RandomTensor((rows, cols), "fp32")
    return lambda: {**x, "weight": RandomTensor((cols,), "fp32", 0, 0.3), "eps": 1e-6, **more}


def row_bytes(x, weight, y_dtype, reads=1, largest=False):
    """The bytes of so many reads of x, of the weight once per row, of y and of one number per row if it is stored."""
    rows, cols = x.shape
    y, numbers = rows * cols * SIZE[y_dtype], {"returned 1": rows * 4} if largest else {}
    return {"x": reads * x.nbytes, "weight": rows * weight.nbytes, "returned 0": y, **numbers}


# ---------------------------------------------------------------- 05.1 count the bytes


def moved(rows, cols, itemsize, matrices, per_row, weights, row_bytes, in_bytes):
    """Bytes of so many matrices, of so many numbers per row and of the weight."""
    itemsize, row_bytes = (itemsize, itemsize if row_bytes == "itemsize" else row_bytes) if in_bytes else (1, 1)
    weights = rows if weights == "once per row" else weights
    return (matrices * rows * cols + weights * cols) * itemsize + per_row * rows * row_bytes


@returns("bytes")
def eager_bytes(rows, cols, itemsize, *, weights=1, row_bytes=4, in_bytes=True, wide=True):
    """Seven PyTorch operations in fp32, the first and the last of which convert. wide: fp32 has 4 bytes."""
    converted = 2 * rows * cols * (itemsize if in_bytes else 1)
    row_bytes = itemsize if row_bytes == "itemsize" else row_bytes
    return converted + moved(rows, cols, 4 if wide else itemsize, 9, 4, weights, row_bytes, in_bytes)


@returns("bytes")
def two_pass_bytes(rows, cols, itemsize, *, weights=1, row_bytes=4, in_bytes=True):
    """x twice, the weight, y, the scale."""
    return moved(rows, cols, itemsize, 3, 1, weights, row_bytes, in_bytes)


@returns("bytes")
def resident_bytes(rows, cols, itemsize, *, weights=1, row_bytes=4, in_bytes=True):
    """x once, the weight, y, the scale."""
    return moved(rows, cols, itemsize, 2, 1, weights, row_bytes, in_bytes)


def sizes(itemsize):
    return lambda rng: {**{name: int(rng.integers(100, 20_000)) for name in ("rows", "cols")}, "itemsize": itemsize}


VARIANTS = {variant.__name__: variant for variant in (eager_bytes, two_pass_bytes, resident_bytes)}
COUNT = Task(
    id="05.1",
    title="Count the bytes of three variants",
    points=3,
    functions=VARIANTS,
    cases=tuple(
        Case(f"{function}, elements of {size} bytes", sizes(size), function) for function in VARIANTS for size in (1, 2)
    ),
    mistakes=(
        Mistake(
            "the weight was not counted exactly once",
            "All rows share one weight: count its `cols` elements once.",
            *({"weights": times} for times in (0, "once per row")),
        ),
        Mistake(
            "the numbers per row were not counted with 4 bytes each",
            "They are fp32, whatever the dtype of x.",
            *({"row_bytes": size} for size in (0, "itemsize")),
        ),
        Mistake("elements were counted, not bytes", "Multiply by the bytes of an element.", in_bytes=False),
        Mistake(
            "the fp32 tensors were counted with itemsize",
            "After x.float(), every element has 4 bytes, until the last operation converts back.",
            wide=False,
        ),
    ),
    hints={"values": "List each step with what it reads and what it writes, then add up."},
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
        Case("2 x 300 fp32, a row of zeros", inputs(2, 300, "fp32", change=zeros, eps=1e-5, block=64)),
        Case("2 x 500 fp32, small values, eps 0.001", inputs(2, 500, "fp32", std=0.01, eps=1e-3, block=100)),
        Case("2 x 400 fp16, large values", inputs(2, 400, "fp16", change=large, block=128)),
        Case("2 x 700 fp32, outlier in the last column", inputs(2, 700, "fp32", change=outlier, block=256)),
    ),
    mistakes=(GAIN, CENTERED, SCALE, TILES),
    max_tile=lambda x, weight, eps, block: len(x) * block,
)

# ---------------------------------------------------------------- 05.3 the resident kernel


RESIDENT = Task(
    id="05.3",
    title="The resident kernel",
    points=4,
    functions={"gemma_norm": unit_norm},
    kernel=True,
    cases=(
        *row_cases(inputs),
        Case("2 x 300 fp32, a row of zeros", inputs(2, 300, "fp32", change=zeros, eps=1e-5)),
        Case("2 x 500 fp32, small values, eps 0.001", inputs(2, 500, "fp32", std=0.01, eps=1e-3)),
        Case("2 x 400 fp16, large values", inputs(2, 400, "fp16", change=large)),
        Case("1 x 32768 fp32, the widest row", inputs(1, 32768, "fp32")),
        Case("1 x 32768 bf16, outlier in the last column", inputs(1, 32768, "bf16", change=outlier)),
    ),
    mistakes=(
        Mistake(
            "a row of zeros was divided by its largest value",
            "That value is 0, and 0 / 0 is NaN: the y of such a row is 0.",
            zeros="divided",
        ),
        GAIN,
        SCALE,
        LARGEST,
        Mistake(
            "y was not divided by the largest value of its row",
            "Divide the norm by largest before you store it.",
            divided=False,
        ),
    ),
    minimum_bytes=lambda x, weight, eps: row_bytes(x, weight, "fp32", largest=True),
    hints={
        "unwritten": "A resident kernel's tile spans the row, BLOCK = triton.next_power_of_2(cols), and every program "
        "stores its whole row and its largest value.",
        "traffic": "Load the row once: the registers that gave the sum of squares also give the largest value and "
        "the output.",
    },
    speed=Speed(points=1, share=0.75, bytes=8192 * 8192 * 6 + 8192 * 8, shape="8192 x 8192 bf16", make=timed()),
)

# ---------------------------------------------------------------- 05.4 the streaming kernel

TO = {dtype: partial(inputs, out_dtype=DType(dtype)) for dtype in SIZE}  # inputs whose result has another dtype
STREAMING = Task(
    id="05.4",
    title="The streaming kernel, for rows of any width",
    points=4,
    functions={"wide_norm": wide_norm},
    kernel=True,
    cases=(
        *row_cases(
            TO["fp32"], leave_out=("one less than a power of two", "one more than a power of two", "a wide row")
        ),
        Case("2 x 4096 bf16 to fp32, one widest tile", TO["fp32"](2, 4096, "bf16")),
        Case("2 x 4097 fp32 to bf16, one column over", TO["bf16"](2, 4097, "fp32")),
        Case("2 x 10007 bf16 to bf16, a prime", TO["bf16"](2, 10007, "bf16")),
        Case("2 x 5000 fp16 to fp16, rows 5,120 elements apart", TO["fp16"](2, 5000, "fp16", 5120), hint=PADDED),
        Case("2 x 400 fp16 to fp32, large values", TO["fp32"](2, 400, "fp16", change=large)),
        Case("2 x 500 fp32 to fp32, small values, eps 0.001", TO["fp32"](2, 500, "fp32", std=0.01, eps=1e-3)),
        Case("1 x 40000 fp32 to fp32, ten tiles", TO["fp32"](1, 40000, "fp32")),
        Case("1 x 70001 bf16 to fp32, outlier in the last column", TO["fp32"](1, 70001, "bf16", change=outlier)),
    ),
    mistakes=(
        GAIN,
        SCALE,
        TILES,
        Mistake(
            "largest is not the largest absolute value of the row's norm",
            "Take the absolute value, then the maximum over all tiles, of the fp32 values before they are rounded.",
            *({"largest": way, "tile": TILE} for way in ("signed", "x", "unweighted", "rounded", "last tile")),
        ),
        Mistake(
            "every tile was multiplied by the weight of the first tile",
            "The second loop loads weight at the same column numbers as x.",
            {"gain": "first tile", "tile": TILE},
        ),
    ),
    minimum_bytes=lambda x, weight, eps, out_dtype: row_bytes(x, weight, out_dtype.name, reads=2, largest=True),
    max_tile=4096,
    hints={
        "traffic": "Two loops over tiles of at most 4,096 columns read x twice. Load the weight in the second loop "
        "alone, and write y once, while you look for the largest value."
    },
    speed=Speed(
        points=1,
        share=0.45,
        bytes=4096 * 65536 * 4 + 65536 * 4 + 4096 * 4,
        shape="4096 x 65536 bf16",
        make=timed(shape=(4096, 65536), out_dtype=DType("bf16")),
    ),
)

# ---------------------------------------------------------------- 05.5 residual add and norm


@returns(y="x", residual="fp32", in_place=("residual",))
def add_gemma_norm(
    x,
    residual,
    weight,
    eps,
    *,
    total="fp32",
    normed="sum",
    squared="",
    stored="sum",
    scale="right",
    gain="1 + weight",
    tile=1,
):
    """The residual stream with x added, and its norm. total: the dtype of the sum."""
    streams = {"sum": rounded(x + residual, total), "x": x, "residual": residual, "added twice": residual + 2 * x}
    factor = scale_of(streams[squared or normed], eps, scale, tile)
    return streams[normed] * factor[:, None] * gain_of(weight, gain, tile), streams[stored]


def added(rows, cols, dtype, row_stride=None, residual=1.0, eps=1e-6, std=1.0, total=None):
    """x and a random residual stream, or one that makes their sum what total(rng, shape) returns."""

    def make(rng):
        x = rounded(rng.normal(0, std, (rows, cols)), dtype)
        stream = total(rng, x.shape) - x if total else rng.normal(0, residual, x.shape)
        weight = tensor(rng.paired.normal(0, 0.3, cols), "fp32")
        return {"x": tensor(x, dtype), "residual": tensor(stream, "fp32"), "weight": weight, "eps": eps}

    return make


def between_numbers(rng, shape):
    """Numbers between two bf16 numbers: rounded before the norm, up or down, they lose most."""
    steps = rng.integers(0, 12, shape) + rng.choice([0.48, 0.52], shape)
    return rng.choice([-1, 1], shape) * (1 + steps * 2.0**-7)


ADDED = Task(
    id="05.5",
    title="Residual add and norm, for rows of any width",
    points=5,
    functions={"add_gemma_norm": add_gemma_norm},
    kernel=True,
    cases=(
        *row_cases(
            added,
            leave_out=("padded rows", "one less than a power of two"),
            a_wide_row="fp32",
            one_more_than_a_power_of_two="fp16",
        ),
        Case(
            "2 x 777 fp32, x and residual nearly cancel",
            added(2, 777, "fp32", total=lambda rng, shape: rng.normal(0, 0.05, shape)),
        ),
        Case("2 x 640 bf16, sums between two bf16 numbers", added(2, 640, "bf16", total=between_numbers)),
        Case("2 x 600 bf16, a large residual", added(2, 600, "bf16", residual=300.0)),
        Case("2 x 300 fp16, a sum whose square overflows fp16", added(2, 300, "fp16", residual=1000.0)),
        Case("2 x 500 fp32, small values, eps 0.001", added(2, 500, "fp32", std=0.01, residual=0.01, eps=1e-3)),
        Case("2 x 4097 bf16, one column over", added(2, 4097, "bf16")),
        Case("1 x 40001 fp16, ten tiles", added(1, 40001, "fp16")),
    ),
    mistakes=(
        Mistake("the residual was not updated", "Store the sum back into residual, in place.", stored="residual"),
        Mistake(
            "the sum of x and the residual was not what was normed",
            "Both loops need residual + x. After a store, residual holds the sum: add x once.",
            *({flag: stream} for flag in ("normed", "squared") for stream in ("x", "residual")),
            {"normed": "added twice", "squared": "sum"},
        ),
        Mistake(
            "the sum was rounded to 16 bits",
            "The residual stream stays fp32: convert x to fp32, add, and store the fp32 sum.",
            *({"total": dtype} for dtype in ("bf16", "fp16")),
        ),
        GAIN,
        Mistake(SCALE.fault, f"{TILES.hint} {SCALE.hint}", *TILES.ways, *SCALE.ways),
    ),
    minimum_bytes=lambda x, residual, weight, eps: {**row_bytes(x, weight, x.dtype), "residual": 3 * residual.nbytes},
    max_tile=4096,
    hints={
        "unwritten": "Store y and the new residual, in tiles that reach to the end of the row.",
        "traffic": "Of x and residual, what does the second loop have to read, if the first one has stored the sum?",
    },
    speed=Speed(
        points=1,
        share=0.45,
        bytes=4096 * 65536 * 12 + 65536 * 4,
        shape="4096 x 65536 bf16",
        make=timed(residual=True, shape=(4096, 65536)),
    ),
)

# ---------------------------------------------------------------- 05.6 the wrong accumulator

WIDTH = 64
OFF_BY, RIGHT_WITHIN, LARGEST = 0.10, 0.03, 4.0


def bf16(values):
    return rounded(values, "bf16").astype(np.float32)


def lanes(squares):
    """64 fp32 running sums, added up at the end."""
    return np.sum(squares.reshape(-1, WIDTH).sum(axis=0, dtype=np.float32), dtype=np.float32)


def tree(squares):
    """Squares and every partial sum in bf16, added in pairs, in pairs of pairs and so on."""
    sums = bf16(squares)
    sums = np.concatenate([sums, np.zeros(2 ** int(np.ceil(np.log2(len(sums)))) - len(sums), np.float32)])
    while len(sums) > 1:
        sums = bf16(sums[0::2] + sums[1::2])
    return sums[0]


def rounded_squares(squares):
    """Squares rounded to bf16, added in fp32."""
    return np.sum(bf16(squares), dtype=np.float32)


def carry(squares):
    """fp32 within a tile of 64, a bf16 running sum from tile to tile."""
    total = np.float32(0)
    for tile in squares.reshape(-1, WIDTH):
        total = bf16(total + tile.sum(dtype=np.float32))
    return total


ACCUMULATORS = {"lanes": lanes, "tree": tree, "squares": rounded_squares, "carry": carry}


def fault_of_form(arguments, returned):
    """What is wrong with the name or the row, whatever the accumulators make of it."""
    cols = arguments["cols"]
    if len(returned) != 2:
        return f"{len(returned)} values were returned, expected the name of an accumulator and a row"
    name, row = returned
    if not isinstance(name, str) or name not in ACCUMULATORS:
        return f"the first value has to be one of the four names: {', '.join(ACCUMULATORS)}"
    if not isinstance(row, np.ndarray) or row.shape != (cols,):
        return f"the row has to be a tensor of shape [{cols}]"
    if arguments["_dtypes"][1] != "fp32":
        return f"the row has to be an fp32 tensor, and it is {arguments['_dtypes'][1]}"
    if not np.isfinite(row).all() or np.abs(row).max() > LARGEST:
        return f"every value of the row has to lie between -{LARGEST:g} and {LARGEST:g}"
    if not np.array_equal(rounded(row, "bf16"), row):
        return "every value of the row has to be a bf16 number, so that no accumulator is blamed for rounding the input"
    return "" if row.any() else "a row of zeros shows nothing"


def show_fault(arguments, returned):
    """Whether the named accumulator is far off on the returned row while the others are right."""
    fault = fault_of_form(arguments, returned)
    if fault:
        return fault
    name, row = returned
    squares, exact = row.astype(np.float32) ** 2, float((row * row).sum())
    errors = {other: abs(float(add_up(squares)) / exact - 1) for other, add_up in ACCUMULATORS.items()}
    if errors[name] < OFF_BY:
        return (
            f"on this row {name} is off by {errors[name]:.1%}, expected {OFF_BY:.0%} or more. A bf16 running sum has 8 "
            "significant bits: it absorbs whatever is less than 1/512 of it"
        )
    if max(error for other, error in errors.items() if other != name) > RIGHT_WITHIN:  # which one, is theirs to find
        return (
            f"on this row {name} is off by {errors[name]:.1%}, and another accumulator by more than "
            f"{RIGHT_WITHIN:.0%}, so the row does not tell them apart"
        )
    return ""


HUNT = Task(
    id="05.6",
    title="Which accumulator is wrong? Show it",
    points=3,
    functions={"show_wrong": None},
    verdict=show_fault,
    cases=tuple(Case(f"row {turn}", lambda rng: {"cols": WIDTH * int(rng.integers(128, 257))}) for turn in (1, 2, 3)),
    hints={"passed": "the accumulator that you named is off by 10% or more on your rows, and the other three are not"},
)

TASKS = (COUNT, TILE_LOOP, RESIDENT, STREAMING, ADDED, HUNT)
