"""Exercise 09: round by hand, encode and pack E2M1, quantize in blocks, multiply packed weights, choose a format."""

from math import isclose

import numpy as np

from grading.tasks import TILE, Case, Mistake, RandomTensor, Speed, Task, ceil, returns, tensor
from grading.tasks.arrays import rounded
from grading.tasks.properties import PADDED, PROGRAMS

EXERCISE = "09_low_precision"

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
MIDDLES = (E2M1[1:] + E2M1[:-1]) / 2


def magnitude_codes(values, ties="even"):
    """The E2M1 codes of the magnitudes, rounded to nearest; what is beyond 6 saturates."""
    low, high = (np.searchsorted(MIDDLES, np.abs(values), side=side) for side in ("left", "right"))
    return {"even": np.where(low % 2 == 0, low, high), "away": high, "towards zero": low}[ties]


def with_signs(rng, magnitudes):
    return magnitudes * rng.choice([-1.0, 1.0], magnitudes.shape)


def magnitudes_with_ties(rng, *shape):
    """Magnitudes up to 6, none of them 0; a third lie halfway between two numbers of E2M1."""
    tie = rng.permutation(int(np.prod(shape))).reshape(shape) % 3 == 0
    return np.where(tie, rng.choice(MIDDLES, shape), rng.uniform(0.01, 6, shape))


EVEN = Mistake(
    "ties were not rounded to the even code",
    "2.5 becomes 2 and 3.5 becomes 4.",
    *({"ties": ties} for ties in ("away", "towards zero")),
)

# ---------------------------------------------------------------- 09.1 by hand

TIE = "It lies halfway between two numbers. Write down their mantissas and take the one that ends in 0."
BEYOND = "E2M1 ends at 6, E4M3 at 448, and neither has an infinity: what is beyond the largest number saturates."
BINADE = "Which binade is it in? With m bits of mantissa, the numbers from 2^e on are 2^(e - m) apart."
SMALL = "Below the smallest normal number, 2^-6, lie subnormals: the spacing stays that of the lowest binade."
UP = "It is a power of two, the smallest one for which 7 / scale is at most 6."
BACK = "Divide by the scale of j, round to E2M1, multiply by the scale."
QUOTIENT = "Divide by the scale of j: the quotient lies halfway between two numbers of E2M1."

NUMBERS = (2, 4, 2, 6, 10 / 32, 16, 448, 5 / 512, 0, 2, 8, 0)
HINTS = (TIE, TIE, TIE, BEYOND, BINADE, TIE, BEYOND, SMALL, SMALL, UP, BACK, QUOTIENT)
NOTES = {
    ("g", 480): "The code that would be 480, S.1111.111, is NaN.",
    ("i", 1 / 512): "2^-9 is the smallest number above 0. Is 0.0009 nearer to it or to 0?",
    ("j", 1): "With a scale of 1, 7 is above 6 and saturates. That is OCP's own rule; here nothing saturates.",
    ("j", 128): "That is what E8M0 stores, the exponent plus 127. The question asks for the scale itself.",
    ("k", 12): "6 is the stored code, and its value is 4: multiply that by the scale.",
}


def hand_verdict(numbers: dict, notes: dict, tolerances: dict | None = None):
    """A verdict on numbers found by hand: what is wrong with the first wrong one, and how many are wrong.

    numbers: {letter: (the right one, what leads to it)}. notes: {(letter, a wrong number): what is wrong with it}.
    tolerances: {letter: relative error allowed}; without, every digit counts.
    """

    def verdict(arguments, returned):
        if len(returned) != len(numbers):
            return f"expected a tuple of {len(numbers)} numbers, a to {max(numbers)}; by_hand returned {len(returned)}"
        faults = []
        for (letter, (right, hint)), value in zip(numbers.items(), returned):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return f"{letter} is not an int or a float"
            if abs(value - right) <= (tolerances or {}).get(letter, 0) * right:
                continue
            if isclose(value, right, rel_tol=0.01):
                hint = "That is near, but every digit counts: write it as a fraction, n / 2**k."
            known = (
                note for (of, wrong), note in notes.items() if of == letter and isclose(value, wrong, rel_tol=0.01)
            )
            faults.append(f"{letter} is not {value:.6g}. {next(known, hint)}")
        count = f" {len(faults)} of {len(numbers)} numbers are wrong." if len(faults) > 1 else ""
        return f"{faults[0]}{count}" if faults else ""

    return verdict


HAND = Task(
    id="09.1",
    title="Round by hand",
    points=2,
    functions={"by_hand": None},
    verdict=hand_verdict(dict(zip("abcdefghijkl", zip(NUMBERS, HINTS))), NOTES),
    cases=(Case("a to l", lambda rng: {}),),
    hints={"passed": "all twelve numbers"},
)

# ---------------------------------------------------------------- 09.2 encode, and pack


@returns(codes="uint8")
def encode(x, *, ties="even", sign=8, negative_zero=True):
    """The E2M1 code of each number. sign: the weight of the sign bit. negative_zero: whether -0.1 becomes -0."""
    codes = magnitude_codes(x, ties)
    return codes + sign * (np.signbit(x) & (negative_zero | (codes > 0)))


@returns(packed="uint8")
def pack(codes, *, even_high=False):
    """Two columns per byte."""
    low, high = codes[:, 0::2], codes[:, 1::2]
    return high + 16 * low if even_high else low + 16 * high


def random_values(rng):
    """Values around the range of E2M1, one in four of them beyond it."""
    return {"x": tensor(with_signs(rng, magnitudes_with_ties(rng, 33, 7) + rng.choice([0, 0, 0, 6], (33, 7))))}


def extreme_values(rng):
    """The ties, their neighbors in fp32, and numbers that are tiny, huge or infinite."""
    ties = MIDDLES.astype(np.float32)
    neighbors = [np.nextafter(ties, np.float32(side)) for side in (0, 9)]
    row = np.concatenate([*neighbors, ties, [1e-30, 1e-3, 0.4, 0.6, 0.9, 6.0, 7.999, 8.0, 1e6, 3e38, np.inf]])
    return {"x": tensor(np.stack([rng.permutation(row), -rng.permutation(row)]))}


ENCODE = Task(
    id="09.2",
    title="Encode E2M1, and pack",
    points=3,
    functions={"encode": encode, "pack": pack},
    cases=(
        Case("encode, 33 x 7", random_values, "encode"),
        Case("encode, beside ties and at the ends", extreme_values, "encode"),
        Case("pack, 5 x 64", lambda rng: {"codes": tensor(rng.integers(0, 16, (5, 64)), "uint8")}, "pack"),
    ),
    mistakes=(
        EVEN,
        Mistake(
            "the sign is missing or in the wrong bit", "It is the highest of the four bits.", {"sign": 0}, {"sign": 128}
        ),
        Mistake("the sign was lost where the magnitude becomes 0", "-0.1 becomes -0, code 8.", negative_zero=False),
        Mistake("the even column went to the high nibble", "Column 2 j is the low nibble of byte j.", even_high=True),
    ),
    hints={
        "form": "encode returns a tensor of the shape of x, pack one with half as many columns; both are torch.uint8.",
        "values": "For encode, which code does each midpoint belong to? For pack, write one byte in binary.",
    },
)

# ---------------------------------------------------------------- 09.3 quantize down the columns

BLOCK = 32  # rows that share a scale
TIMED = 8192  # rows and columns of the matrix that is timed


@returns(packed="uint8", scales="uint8")
def quantize_down(x, *, rounding="up", signed_amax=False, tile=1, ties="even", even_high=False):
    """E2M1 codes, rows 2 i and 2 i + 1 in a byte, and one E8M0 code per 32 rows of a column.

    rounding: of the scale to a power of two. tile: columns that share a scale.
    """
    rows, cols = x.shape
    blocks = np.pad(x, ((0, -rows % BLOCK), (0, 0))).reshape(-1, BLOCK, cols)
    amax = np.maximum(blocks.max(axis=1), 0) if signed_amax else np.abs(blocks).max(axis=1)
    amax = np.pad(amax, ((0, 0), (0, -cols % tile))).reshape(len(amax), -1, tile).max(axis=2)
    amax = np.repeat(amax, tile, axis=1)[:, :cols]
    fraction, exponent = np.frexp(amax)  # amax = fraction * 2**exponent, and 6 = 0.75 * 2**3
    power = exponent - 3 + {"up": fraction > 0.75, "OCP": 0, "down": (fraction >= 0.75) - 1}[rounding]
    units = blocks / 2.0 ** power[:, None]
    codes = (magnitude_codes(units, ties) + 8 * np.signbit(units)).reshape(-1, cols)[:rows]
    low, high = (codes[1::2], codes[0::2]) if even_high else (codes[0::2], codes[1::2])
    return low + 16 * high, np.where(amax > 0, power + 127, 0)


def far_apart(rng):
    """Blocks of the largest numbers that the task allows next to blocks of the smallest."""
    part = rng.choice([1, 1.5, 2, 3, 4, 6], (2 * BLOCK, 16))
    magnitudes = np.where(rng.permutation(16) % 2, part * 2.0**-100, 2.0**100 / part)
    magnitudes[0] = np.where(magnitudes[0] > 1, 2.0**100, 2.0**-100)
    return {"x": tensor(with_signs(rng, magnitudes))}


def random_blocks(rows, cols, dtype="fp32", row_stride=None, top="any"):
    """Blocks of very different magnitudes, with ties in units of their scales. top: the largest value of a block."""

    def make(rng):
        count = ceil(rows, BLOCK)
        units = magnitudes_with_ties(rng, count, BLOCK, cols)
        units = np.where(units > 3, units / 2, units)  # one element alone decides about the scale
        tops = rng.choice([3.5, 4.0, 4.5, 5.0, 6.0], (count, 1, cols))
        if top == "at the limit":  # 6 in one column of three, the next fp32 number in the second one
            tops[:] = np.resize([6.0, np.nextafter(np.float32(6), np.float32(7)), 3.5], cols)
        rows_in_last = rows - BLOCK * (count - 1)
        np.put_along_axis(units, rng.integers(rows_in_last, size=tops.shape), tops, axis=1)
        if top == "some zero":
            units[0, :, ::3] = 0
        units *= 2.0 ** rng.integers(-60, 60, tops.shape)
        values = with_signs(rng, units.reshape(-1, cols)[:rows]) + 0.0  # no zero has a sign
        return {"x": tensor(values, dtype, row_stride)}

    return make


def quantize_bytes(x):
    rows, cols = x.shape
    return {"x": x.nbytes, "returned 0": rows // 2 * cols, "returned 1": ceil(rows, BLOCK) * cols}


ZEROS = "A group of zeros has codes 0 and the scale's code 0. It needs neither log2(0) nor 0 / 0."
LOGARITHM = "A logarithm rounds: look at the bits of amax, or compare amax with 6 times the scale."
SHAPES = ((64, 48, "fp32"), (40, 33, "bf16"), (2, 1, "fp32"), (2, 5000, "bf16"), (32 * PROGRAMS, 16, "bf16"))
QUANTIZE = Task(
    id="09.3",
    title="Quantize down the columns",
    points=5,
    functions={"quantize_down": quantize_down},
    kernel=True,
    cases=(
        *(Case("{} x {} {}".format(*shape), random_blocks(*shape)) for shape in SHAPES),
        Case("32 x 24 fp32, padded rows", random_blocks(32, 24, "fp32", 37), hint=PADDED),
        Case("64 x 40 fp32, blocks of zeros", random_blocks(64, 40, top="some zero"), hint=ZEROS),
        Case("64 x 16 fp32, largest values at the limit", random_blocks(64, 16, top="at the limit"), hint=LOGARITHM),
        Case("64 x 16 fp32, sizes of 2^-100 and of 2^100", far_apart, hint="The scale codes here go from 25 to 225."),
    ),
    mistakes=(
        Mistake(
            "the scale was rounded down",
            "Take the smallest power of two with amax / scale <= 6. With OCP's rule, values above 6 saturate.",
            *({"rounding": way} for way in ("OCP", "down")),
        ),
        Mistake("one scale was used for a whole tile of columns", "Use tl.max with axis=0.", tile=TILE),
        Mistake("amax is the largest value, not the largest magnitude", "Take tl.abs before tl.max.", signed_amax=True),
        EVEN,
        Mistake("the even row went to the high nibble", "Row 2 i is the low nibble of byte row i.", even_high=True),
    ),
    minimum_bytes=quantize_bytes,
    coalesced=True,
    hints={
        "form": "Return packed, [rows / 2, cols], and scales, [ceil(rows / 32), cols], both uint8 and contiguous.",
        "traffic": "Each program loads 32 rows of many columns side by side, once, and keeps them in registers.",
        "race": "Two rows share a byte and 32 rows share a scale: let one program handle a whole block.",
        "values": "Work through one column on paper: amax, the scale, x / scale, the codes. Load with other=0.0.",
        "slow": "Let a program take 64 to 256 columns, with 4 warps. Fewer comparisons per value help too.",
    },
    speed=Speed(
        points=1,
        share=0.3,
        bytes=TIMED * TIMED * 2 + TIMED * TIMED // 2 + TIMED * TIMED // BLOCK,
        shape=f"{TIMED} x {TIMED} bf16",
        make=lambda: {"x": RandomTensor((TIMED, TIMED), "bf16")},
        block=BLOCK,
    ),
)

# ---------------------------------------------------------------- 09.4 a matmul with packed weights

GROUP = 32  # columns of a weight that share a scale


@returns(y="fp32")
def q4_linear(x, packed, scales, *, columns="right", wrap=False, scale="right", tile=1, sixteen_bit=False):
    """x times the transposed weights, (q - 8) * scale; byte i of a group holds its columns i and i + 16.

    wrap: whether q - 8 wraps around at 256. tile: columns per step of a loop that leaves out a ragged step.
    """
    rows, groups = scales.shape
    low, high = (nibbles.reshape(rows, groups, 16) for nibbles in (packed & 15, packed >> 4))
    codes = {
        "right": np.concatenate([low, high], axis=2),
        "swapped": np.concatenate([high, low], axis=2),
        "neighbors": np.stack([low, high], axis=3).reshape(rows, groups, GROUP),
    }[columns]
    factors = {"right": scales, "first": scales[:, :1], "transposed": scales.reshape(groups, rows).T}[scale]
    values = (codes - 8.0) % 256 if wrap else codes - 8.0
    weights = (values * factors[..., None]).reshape(rows, -1)
    weights = rounded(weights, "fp16") if sixteen_bit else weights
    end = x.shape[1] // tile * tile
    return x[:, :end] @ weights[:, :end].T


def random_scales(rng, rows, groups, kind):
    """Scales of either sign. tiny: subnormal numbers of fp16, the first of each row 0. exact: powers of two."""
    low, high = {"any": (-7, 4), "tiny": (-20, -14), "exact": (-2, 1)}[kind]
    scales = with_signs(rng, 2.0 ** rng.integers(low, high, (rows, groups)))
    scales *= 1 if kind == "exact" else rng.uniform(0.5, 1, (rows, groups))
    scales[:, 0] *= kind != "tiny"
    return scales


def random_weights(tokens, rows, columns, padding=0, scales="any"):
    """x and weights, with `padding` bytes after each packed row. A single row has values of one sign, so that its short
    sum is no small difference. With exact scales, fp32 holds every sum of products exactly, in any order."""

    def make(rng):
        single = rows == 1
        x = rng.uniform(0.5 if single else -1, 2, (tokens, columns))
        low, high = rng.integers(9 if single else 0, 16, (2, rows, columns // 2))
        stride = columns // 2 + padding if padding else None
        return {
            "x": tensor(np.round(8 * x) / 8 if scales == "exact" else x, "fp16"),
            "packed": tensor(low + 16 * high, "uint8", stride, fill=0xA5),
            "scales": tensor(random_scales(rng, rows, columns // GROUP, scales), "fp16"),
        }

    return make


def q4_bytes(x, packed, scales):
    rows = packed.shape[0]
    x_bytes = x.nbytes * ceil(rows, 16)
    return {"x": x_bytes, "packed": packed.nbytes, "scales": scales.nbytes, "returned 0": 4 * x.shape[0] * rows}


MULTIPLY = Task(
    id="09.4",
    title="Multiply by weights that stay packed",
    points=5,
    functions={"q4_linear": q4_linear},
    kernel=True,
    cases=(
        *(
            Case(f"{tokens} x {columns} to {rows}", random_weights(tokens, rows, columns))
            for tokens, rows, columns in ((1, 64, 256), (3, 37, 96), (8, 16, 128), (1, 1, 32), (1, 16 * PROGRAMS, 32))
        ),
        Case("2 x 160 to 20, padded rows of packed", random_weights(2, 20, 160, 13), hint="Use packed.stride(0)."),
        Case("1 x 8192 to 3", random_weights(1, 3, 8192, scales="exact"), hint="All 256 groups per row count."),
        Case("2 x 64 to 20, tiny scales", random_weights(2, 20, 64, scales="tiny"), hint="Subnormal scales count."),
    ),
    mistakes=(
        Mistake(
            "nibbles were taken for other columns",
            "Byte i of a group holds column i in its low nibble and column i + 16 in its high nibble.",
            *({"columns": columns} for columns in ("swapped", "neighbors")),
        ),
        Mistake("8 was subtracted in uint8", "In uint8, 3 - 8 is 251: convert the nibbles first.", wrap=True),
        Mistake(
            "weights were multiplied by the scale of another group or row",
            "Column c of row n has scales[n, c // 32].",
            *({"scale": scale} for scale in ("first", "transposed")),
        ),
        Mistake("the last tile of columns was left out", "Round the number of steps up.", tile=TILE),
        Mistake("the weights were rounded to fp16", "They have up to 14 bits, and fp16 keeps 11.", sixteen_bit=True),
    ),
    minimum_bytes=q4_bytes,
    hints={
        "traffic": "Read packed and scales once for all tokens, and x once per 16 rows of the weight.",
        "values": "Unpack one group of one row by hand: 16 bytes, 32 weights. Compute in fp32, and load with other=0.",
    },
)

# ---------------------------------------------------------------- 09.5 choose

#: name: format, rows and columns of a block (None: all), format of a scale, as in the cell that the exercise provides
SCHEMES = {
    "bf16": ("bf16", None, None, ""),
    "fp8_tensor": ("e4m3", None, None, "fp32"),
    "fp8_row": ("e4m3", 1, None, "fp32"),
    "fp8_128x128": ("e4m3", 128, 128, "fp32"),
    "mxfp8": ("e4m3", 1, 32, "e8m0"),
    "mxfp4": ("e2m1", 1, 32, "e8m0"),
    "nvfp4": ("e2m1", 1, 16, "e4m3"),
}
LARGEST = {"e2m1": 6, "e4m3": 448}


@returns("bytes")
def stored_bytes(name, rows, cols, *, whole_blocks=False):
    """Codes, scales of all blocks, and NVFP4's scale of the tensor."""
    form, height, width, scale = SCHEMES[name]
    bits = {"bf16": 16, "e4m3": 8, "e2m1": 4}[form]
    count = int.__floordiv__ if whole_blocks else ceil
    blocks = count(rows, height or rows) * count(cols, width or cols)
    scale_bytes = {"": 0, "fp32": 4, "e8m0": 1, "e4m3": 1}[scale]
    return rows * cols * bits // 8 + blocks * scale_bytes + 4 * (name == "nvfp4")


def nearest(values, form):
    return rounded(values, form) if form == "e4m3" else np.sign(values) * E2M1[magnitude_codes(values)]


def round_trip(x, name):
    """x after quantization and dequantization by a scheme."""
    form, height, width, scale_format = SCHEMES[name]
    if form == "bf16":
        return rounded(x, "bf16")
    rows, cols = x.shape
    height, width = height or rows, width or cols
    padded = np.pad(x, ((0, -rows % height), (0, -cols % width)))
    blocks = padded.reshape(len(padded) // height, height, -1, width)
    scales = np.abs(blocks).max(axis=(1, 3), keepdims=True) / LARGEST[form]
    if scale_format == "e8m0":
        fraction, exponent = np.frexp(scales)
        scales = 2.0 ** (exponent - (fraction == 0.5))
    elif scale_format == "e4m3":
        tensor_scale = scales.max() / LARGEST["e4m3"]
        scales = nearest(scales / tensor_scale, "e4m3") * tensor_scale
    scales = np.where(scales > 0, scales, 1)
    return (nearest(blocks / scales, form) * scales).reshape(padded.shape)[:rows, :cols]


def relative_error(copy, x, over="worst row"):
    errors = np.linalg.norm(copy - x, axis=1) / np.linalg.norm(x, axis=1)
    matrix = np.linalg.norm(copy - x) / np.linalg.norm(x)
    return {"worst row": errors.max(), "mean": errors.mean(), "matrix": matrix}[over]


@returns("scheme")
def choose(x, most_error, most_bytes, *, over="worst row", by_error=False):
    """The smallest scheme within both budgets. over: what the error is taken over."""
    fitting = []
    for name in SCHEMES:
        error, size = relative_error(round_trip(x, name), x, over), stored_bytes(name, *x.shape)
        if error <= most_error and size <= most_bytes:
            fitting.append((error, name) if by_error else (size, error, name))
    return min(fitting)[-1] if fitting else "none"


def random_matrix(rng, rows, cols, kind):
    """A matrix of one kind; Gaussian numbers where nothing else is said."""
    x = rng.normal(0, 1, (rows, cols))
    if kind == "E2M1":  # numbers of E2M1, the largest in each block
        x = with_signs(rng, rng.choice(E2M1[1:], (rows, cols)))
        x[:, ::32] = 6
    elif kind == "outlier":
        x[rng.integers(rows), rng.integers(cols)] = 1e5
    elif kind == "rows apart":
        x *= np.exp2(rng.permutation(rows) * -24 / rows)[:, None]
    elif kind == "small row":  # lost where all rows share a scale, and hardly seen in a mean over the rows
        x[rng.integers(rows)] *= 2.0**-24
    elif kind == "small end":
        x[128:] *= 2.0**-24
    elif kind == "large columns":  # as in the activations of language models
        x[:, rng.choice(cols, 3, replace=False)] *= 60
    return x


def budget(kind, rows, cols, name, spare=0):
    """A matrix and budgets that `name` meets and no smaller scheme does; if `spare` is negative, none does."""

    def make(rng):
        sizes = {key: stored_bytes(key, rows, cols) for key in SCHEMES}
        smaller = [key for key in SCHEMES if sizes[key] < sizes[name]]
        for _ in range(200):
            x = tensor(random_matrix(rng, rows, cols, kind)).values
            copies = {key: round_trip(x, key) for key in [*smaller, name]}
            others = [relative_error(copies[key], x) for key in smaller]
            if kind == "Gaussian":  # no row stands out, so the error of the matrix has to say the same
                others += [relative_error(copies[key], x, "matrix") for key in smaller]
            error, least = relative_error(copies[name], x), min(others, default=9.0)
            if least > 1.05 * error:
                most = least / 1.05 if kind == "small row" else min(1.05 * error, np.sqrt(least * error))
                return {"x": tensor(x), "most_error": float(f"{most:.4g}"), "most_bytes": int(sizes[name] + spare)}
        raise ValueError(f"{name} is not the smallest scheme of its error here")

    return make


def one_after_another(rng):
    """Two matrices of one shape with the same budgets; in the first one a small row needs a scale of its own."""
    kind = "Gaussian" if rng.turn % 2 else "small row"
    return {"x": tensor(random_matrix(rng, 16, 144, kind)), "most_error": 0.05, "most_bytes": 5000}


def ragged_sizes(name):
    """A scheme, and sizes that no block divides."""

    def make(rng):
        rows, cols = (int(n) for n in rng.sizes.integers(2, 30, 2))
        return {"name": name, "rows": 64 * rows + 37, "cols": 128 * cols + 46}

    return make


CHOOSE = Task(
    id="09.5",
    title="Choose a format for an error and a size",
    points=4,
    functions={"stored_bytes": stored_bytes, "choose": choose},
    cases=(
        *(Case(f"stored_bytes, {name}", ragged_sizes(name), "stored_bytes") for name in SCHEMES),
        *(
            Case(f"choose, {words}", budget(kind, rows, cols, name, spare), "choose", same=True)
            for words, kind, rows, cols, name, spare in (
                ("Gaussian numbers, a loose error", "Gaussian", 16, 144, "mxfp4", 500),
                ("Gaussian numbers, a stricter error", "Gaussian", 16, 144, "nvfp4", 500),
                ("Gaussian numbers, stricter still, not a byte to spare", "Gaussian", 20, 140, "fp8_tensor", 0),
                ("Gaussian numbers, the strictest error", "Gaussian", 16, 144, "bf16", 500),
                ("rows of very different size", "rows apart", 16, 64, "mxfp8", 100),
                ("one row far smaller than the others", "small row", 16, 144, "fp8_row", 100),
                ("two rows beyond 128, far smaller", "small end", 130, 16, "fp8_128x128", 900),
                ("numbers that E2M1 has, an error of 0", "E2M1", 16, 96, "mxfp4", 90),
                ("a few large columns", "large columns", 24, 136, "nvfp4", 900),
                ("one byte too few", "Gaussian", 16, 144, "fp8_tensor", -1),
                ("one outlier", "outlier", 16, 144, "fp8_row", 0),
            )
        ),
        Case(
            "choose, one matrix after another", one_after_another, "choose", "They differ: compute anew in every call."
        ),
    ),
    mistakes=(
        Mistake("ragged blocks at the end of a row were left out", "Round rows and columns up.", whole_blocks=True),
        Mistake(
            "the chosen scheme has a row whose error is above most_error",
            "A lost small row hardly shows in the error of the whole matrix: take the row with the largest error.",
            *({"over": over} for over in ("matrix", "mean")),
        ),
        Mistake("the chosen scheme is not the smallest within both budgets", "Take the fewest bytes.", by_error=True),
    ),
    hints={
        "form": "stored_bytes returns an int (divide with //), choose a string, 'none' where no scheme fits.",
        "values": "Add codes, all scales and NVFP4's fp32 number. Print the bytes and the error of every scheme.",
    },
)

TASKS = (HAND, ENCODE, QUANTIZE, MULTIPLY, CHOOSE)
