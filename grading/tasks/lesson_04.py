"""Exercise 04: Llama-2-7B's layer counted, a chain fused, bias + GELU in tiles, SwiGLU both ways, and decisions."""

from functools import partial
from math import erf  # noqa: F401 (a slip edits it in)

import numpy as np

from grading.tasks import Case, RandomTensor, Slip, Speed, Task, gives, rounded, tensor
from grading.tasks.properties import MANY, row_cases

EXERCISE = "04_fusion"


def between(rng, low, high) -> int:
    """A whole number from low to high."""
    return int(rng.integers(low, high + 1))


# ---------------------------------------------------------------- 04.1 Llama-2-7B's layer


@gives("bytes")
def norm_bytes(tokens, hidden):
    """The norm's eight operations. Per row: mean written; + eps; rsqrt; the scale read."""
    casts, square, others = 2 + 4 + 4 + 2, 4 + 4, 4 + (4 + 4) + (2 + 2)  # mean, scaled, weighted
    weight = 2 * hidden
    return tokens * hidden * (casts + square + others) + tokens * 6 * 4 + weight


@gives("bytes")
def layer_bytes(tokens, hidden, inter):
    """Two norms, two additions, silu and the product."""
    norm, add = norm_bytes(tokens, hidden), 6 * tokens * hidden
    silu, product = 4 * tokens * inter, 6 * tokens * inter
    return 2 * norm + 2 * add + silu + product


@gives("bytes")
def fused_bytes(tokens, hidden, inter):
    """Addition with norm, twice, and SwiGLU."""
    weight = 2 * hidden
    pair, swiglu = 8 * tokens * hidden + weight, 3 * 2 * tokens * inter
    return 2 * pair + swiglu


@gives("microseconds")
def saved_microseconds(tokens, hidden, inter, layers, bandwidth):
    """What all layers save."""
    saved = layers * (layer_bytes(tokens, hidden, inter) - fused_bytes(tokens, hidden, inter))
    return saved / (bandwidth * 1e12) * 1e6


def norms(*per_element, rows=("0", "3 * 4", "6 * 4"), weights=("0", "2 * hidden")) -> tuple:
    """Edits that count a norm with these bytes per element, per row, and of the weight."""
    return tuple(
        (f"casts + square + others -> {n}", f"6 * 4 -> {row}", f"weight = 2 * hidden -> weight = {weight}")
        for n in per_element
        for row in rows
        for weight in weights
    )


def sizes(**more):
    """Tokens and columns of any model; more: other whole numbers, from and to."""
    ranges = {"tokens": (1, 9_000), "hidden": (100, 9_000), **more}
    return lambda rng: {name: between(rng, *ends) for name, ends in ranges.items()}


LLAMA, WIDE = {"tokens": 4 * 2048, "hidden": 4096}, {"tokens": 4 * 2048, "hidden": 4096, "inter": 11008}
COUNT = Task(
    id="04.1",
    title="Llama-2-7B's layer, counted",
    points=4,
    functions={
        "norm_bytes": norm_bytes,
        "layer_bytes": layer_bytes,
        "fused_bytes": fused_bytes,
        "saved_microseconds": saved_microseconds,
    },
    cases=(
        Case("norm_bytes, Llama-2-7B, 4 x 2,048 tokens", lambda rng: dict(LLAMA), "norm_bytes"),
        Case("norm_bytes, other sizes", sizes(), "norm_bytes"),
        *(
            Case(f"{function}, {name}", make, function)
            for function in ("layer_bytes", "fused_bytes")
            for name, make in (
                ("Llama-2-7B, 4 x 2,048 tokens", lambda rng: dict(WIDE)),
                ("other sizes", sizes(inter=(100, 30_000))),
            )
        ),
        Case(
            "saved_microseconds, Llama-2-7B",
            lambda rng: {**WIDE, "layers": 32, "bandwidth": 3.35},
            "saved_microseconds",
        ),
        Case(
            "saved_microseconds, another model and GPU",
            lambda rng: {
                **sizes(hidden=(1_000, 9_000), inter=(1_000, 30_000), layers=(2, 100))(rng),
                "bandwidth": round(float(rng.uniform(0.3, 8)), 2),
            },
            "saved_microseconds",
        ),
    ),
    slips=(
        Slip(
            "the norm was counted in bf16 throughout, seven passes as in the lesson",
            "This one converts to fp32 and back: it has eight operations, and between the casts an element has 4 "
            "bytes.",
            *norms(14),
        ),
        Slip(
            "every step of the norm was counted in bf16",
            "Between the two casts the tensors are fp32: 4 bytes per element, read and written.",
            *norms(18, 22, weights=("2 * hidden",)),
        ),
        Slip(
            "the casts were left out",
            "`.float()` and `.bfloat16()` are kernels too: one reads 2 bytes and writes 4, the other the reverse.",
            "(casts + square -> (square",
        ),
        Slip(
            "only the writes were counted",
            "Each operation also reads its inputs.",
            *norms(16, rows=("3 * 4",), weights=("0",)),
        ),
        Slip("the square was counted as reading x twice", "`h * h` reads h once.", "4 + 4, 4 + (4 -> 8 + 4, 4 + (4"),
        Slip(
            "the numbers per row were left out",
            "mean, + eps, rsqrt and the scaling each touch one fp32 number per row: six in all.",
            " + tokens * 6 * 4 -> ",
        ),
        Slip(
            "the weight was left out",
            "The weight is read too, `hidden` elements of 2 bytes, once per norm.",
            "weight = 2 * hidden -> weight = 0",
        ),
        Slip(
            "the weight was counted once per row",
            "All rows share one weight: DRAM delivers it once.",
            "weight = 2 * hidden -> weight = 2 * hidden * tokens",
        ),
        Slip(
            "only one norm and one addition were counted",
            "A layer has two of each: around attention and around the MLP.",
            "2 * norm + 2 * add -> norm + add",
            "2 * pair -> pair",
        ),
        Slip(
            "only one norm was counted, and both additions",
            "A layer has two norms: before attention and before the MLP.",
            "2 * norm -> norm",
        ),
        Slip(
            "only one addition was counted, and both norms",
            "A layer has two residual additions: after attention and after the MLP.",
            "2 * add -> add",
        ),
        Slip(
            "the addition was counted with one input",
            "An addition reads two tensors and writes one.",
            "6 * tokens * hidden -> 4 * tokens * hidden",
        ),
        Slip(
            "silu(gate) * up was counted as one kernel",
            "Unfused it is two: silu reads and writes, then the product reads two tensors and writes one.",
            "silu + product -> product",
        ),
        Slip(
            "the multiplication by up was left out",
            "SwiGLU reads gate and up: after silu comes a product of two tensors.",
            "silu + product -> silu",
            "3 * 2 * tokens * inter -> 2 * 2 * tokens * inter",
        ),
        Slip(
            "the SwiGLU was counted on `hidden` columns",
            "gate and up have `inter` columns.",
            "tokens * inter -> tokens * hidden",
        ),
        Slip(
            "the new residual was not written",
            "Add + norm reads x and the residual and writes two tensors: the sum, which the next addition needs, and "
            "the normed sum.",
            "8 * tokens -> 6 * tokens",
        ),
        Slip(
            "the addition and the norm were counted apart",
            "Fused, the sum goes from the addition to the norm in registers: it is written and not read back.",
            "8 * tokens -> 10 * tokens",
        ),
        Slip(
            "one layer was counted, or the layers were left out",
            "Multiply by the number of layers.",
            "layers * (layer_bytes -> (layer_bytes",
        ),
        Slip("seconds came back, not microseconds", "A second has 10^6 µs.", " * 1e6 -> "),
        Slip("milliseconds came back, not microseconds", "A millisecond has 1,000 µs.", "1e6 -> 1e3"),
        Slip("the bandwidth was taken for GB/s", "`bandwidth` is in TB/s: 10^12 bytes per second.", "1e12 -> 1e9"),
        Slip(
            "the fused time came back, not what is saved",
            "Subtract: unfused bytes minus fused bytes, over the bandwidth.",
            "layer_bytes(tokens, hidden, inter) - -> ",
        ),
        Slip(
            "the bytes were divided by 2^20 or 2^40", "A TB is 10^12 bytes.", "1e12 -> 2**40", "* 1e6 -> * 1e12 / 2**20"
        ),
    ),
    hints={
        "wrong": "One line per operation: bytes per element read and written, then the fp32 numbers per row, then "
        "the weight. Add up.",
        "type": "Bytes are whole numbers: return an int. Microseconds are a float.",
    },
)

# ---------------------------------------------------------------- 04.2 fuse a chain


@gives(y="x")
def chain(x, scale, shift, limit):
    """relu(scale x + shift)^2, at most `limit`."""
    z = np.maximum(scale * x + shift, 0)
    return np.minimum(z * z, limit)


def chained(rows, cols, dtype, row_stride=None, std=1.0, limit=1.5):
    """x, scale and shift; in short rows the two never cancel, or fp32's own rounding is all that is left of one."""

    def make(rng):
        x, scale, shift = rng.normal(0, std, (rows, cols)), rng.normal(1, 0.3, cols), rng.normal(0, 0.5, cols)
        if cols < 64:
            x = np.sign(x) * rng.uniform(1, 2, x.shape)
            scale, shift = np.clip(scale, 0.5, 1.5), np.clip(shift, -0.25, 0.25)
        return {
            "x": tensor(x, dtype, row_stride),
            "scale": tensor(scale, "fp32"),
            "shift": tensor(shift, "fp32"),
            "limit": limit,
        }

    return make


def summing(total, mean):
    """x, and a shift that makes each sum what total(rng) gives."""

    def make(rng):
        scale, x = rounded(rng.normal(1, 0.3, 640), "fp32"), rounded(rng.normal(mean, 1, 640), "bf16")
        return {
            "x": tensor(np.tile(x, (3, 1)), "bf16"),
            "scale": tensor(scale, "fp32"),
            "shift": tensor(total(rng) - scale * x, "fp32"),
            "limit": 4.0,
        }

    return make


def between_two(rng):
    """Just below the middle between two bf16 numbers: rounded before the square, it loses most."""
    return 1 + (rng.integers(0, 16, 640) + 0.45) * 2.0**-7


SUM, T = "scale * x + shift", "dtype('x')"
ROUNDED = f"rounded(rounded(scale, {T}) * x, {T}) + rounded(shift, {T})"
CHAIN = Task(
    id="04.2",
    title="Fuse a chain",
    points=4,
    functions={"fused_chain": chain},
    kernel=True,
    prepared=("scale", "shift"),
    cases=(
        *row_cases(chained, one_more_than_a_power_of_two="fp16", padded_rows="fp16"),
        Case("2 x 300 fp16, squares beyond fp16's range before the limit", chained(2, 300, "fp16", None, 400.0, 240.0)),
        Case("3 x 640 bf16, scale * x and shift nearly cancel", summing(lambda rng: 0.05, 3), same=True),
        Case("3 x 640 bf16, sums between two bf16 numbers", summing(between_two, 0), same=True),
    ),
    slips=(
        Slip(
            "the square is missing",
            "y = min(relu(scale * x + shift)^2, limit): multiply the rectified value by itself.",
            "z * z -> z",
            answer="z * z -> z",
        ),
        Slip(
            "the square came before relu, which then has nothing to do",
            "Set negative values to 0 first, then square.",
            f"np.maximum({SUM}, 0) -> {SUM}",
            answer=f"tl.maximum({SUM}, 0.0) -> {SUM}",
        ),
        Slip(
            "the limit was not applied",
            "The last op is min(..., limit).",
            "np.minimum(z * z, limit) -> z * z",
            answer="tl.minimum(z * z, limit) -> z * z",
        ),
        Slip(
            "the limit was applied before the square",
            "The limit is on the square.",
            "np.minimum(z * z, limit) -> np.minimum(z, limit)**2",
            answer="y = tl.minimum(z * z, limit) -> z = tl.minimum(z, limit)\n    y = z * z",
        ),
        Slip("shift was not added", "scale * x + shift.", f"{SUM} -> scale * x", answer=f"{SUM} -> scale * x"),
        Slip(
            "shift was added before the scaling",
            "Scale first: scale * x + shift.",
            f"{SUM} -> scale * (x + shift)",
            answer=f"{SUM} -> scale * (x + shift)",
        ),
        Slip(
            "scale and shift of column 0 were used everywhere",
            "Load the scale and the shift of each column, `scale_ptr + columns`.",
            f"{SUM} -> scale[0] * x + shift[0]",
            answer=("scale_ptr + columns, mask=inside -> scale_ptr", "shift_ptr + columns, mask=inside -> shift_ptr"),
        ),
        Slip(
            "scale and shift were cast to 16 bits",
            "They are fp32 and stay so: x is converted to fp32, not the parameters to the dtype of x.",
            f"{SUM} -> rounded(scale, {T}) * x + rounded(shift, {T})",
            f"{SUM} -> rounded(scale, {T}) * x + shift",
            f"{SUM} -> scale * x + rounded(shift, {T})",
            answer=tuple(
                f"{name}_ptr + columns, mask=inside) -> {name}_ptr + columns, mask=inside).to(x_ptr.dtype.element_ty)"
                for name in ("scale", "shift")
            ),
        ),
        Slip(
            "an intermediate was rounded to 16 bits",
            "A fused chain rounds once, at the store: convert x with `.to(tl.float32)` and cast nothing back before.",
            (f"{SUM} -> rounded(rounded(scale * x, {T}) + shift, {T})", f"z * z -> rounded(z * z, {T})"),
            (f"{SUM} -> rounded({ROUNDED}, {T})", f"z * z -> rounded(z * z, {T})"),
            f"{SUM} -> rounded(scale * x, {T}) + shift",
            f"{SUM} -> rounded({SUM}, {T})",
            answer="scale * x + -> (scale * x).to(x_ptr.dtype.element_ty).to(tl.float32) +",
        ),
    ),
    minimum_bytes=lambda x, scale, shift, limit: {
        "x": x.nbytes,
        "scale": x.shape[0] * scale.nbytes,
        "shift": x.shape[0] * shift.nbytes,
        "returned 0": x.nbytes,
    },
    hints={
        "bytes": "One kernel: x is loaded once, y stored once, scale and shift at most once per row; nothing lies "
        "between.",
        "unwritten": "Launch enough programs for all columns of every row.",
        "dtype": "y has the dtype of x.",
        "overflow": "Only a square that the limit has not cut leaves fp16's range: form it in fp32, and take "
        "tl.minimum(z * z, limit) last.",
        "out_of_bounds": "Either a load or store lacks its mask, `columns < cols`; or the axes of the grid are "
        "exchanged, and a program takes a block's number for its row: compare the order of the grid "
        "with tl.program_id(0) and tl.program_id(1). A mask does not mend that, another index does.",
        "strides": "y is a tensor of its own: allocate it with torch.empty((rows, cols), ...) and store there, not "
        "over x.",
        "not_read": "Read all of x, and store to a tensor of your own, allocated with torch.empty, not over x.",
        "input_changed": "y is a tensor of its own: allocate it with torch.empty and store there, not over x.",
    },
    speed=Speed(
        points=1,
        share=0.8,
        bytes=8192 * 8192 * 4,
        shape="8192 x 8192 bf16",
        make=lambda: {
            "x": RandomTensor((8192, 8192), "bf16"),
            "scale": RandomTensor((8192,), "fp32", 1, 0.3),
            "shift": RandomTensor((8192,), "fp32", 0, 0.5),
            "limit": 4.0,
        },
    ),
)

# ---------------------------------------------------------------- 04.3 bias + GELU in tiles

TILE_ROWS = 16


@gives(y="x")
def gelu(x, bias):
    """gelu(x + bias), tanh form."""
    z = x + bias
    u = 0.7978845608028654 * (z + 0.044715 * z**3)
    return 0.5 * z * (1 + np.tanh(u))


def biased(rows, cols, dtype, row_stride=None, std=1.0, mean=0.0, bias_std=0.5, bias_mean=0.0):
    """x and a bias; what a column alone holds is positive, for the end of GELU is steep in relative terms."""

    def make(rng):
        x, bias = rng.normal(mean, std, (rows, cols)), rng.normal(bias_mean, bias_std, cols)
        return {"x": tensor(np.abs(x) if cols == 1 else x, dtype, row_stride), "bias": tensor(bias, "fp32")}

    return make


ROOT, TANH = "0.7978845608028654", "0.5 * z * (1 + np.tanh(u))"
SHORT = [str(round(factor * float(ROOT), digits) / factor) for factor in (1, 2) for digits in range(1, 7 - factor)]
BIAS_GELU = Task(
    id="04.3",
    title="Bias + GELU at minimum traffic",
    points=4,
    functions={"bias_gelu": gelu},
    kernel=True,
    like="bias_gelu",
    prepared=("bias",),
    cases=(
        Case("32 x 256 fp32", biased(32, 256, "fp32")),
        Case("19 x 129 fp16, ragged rows and columns", biased(19, 129, "fp16")),
        Case("33 x 65 fp32, one row and one column over", biased(33, 65, "fp32")),
        *row_cases(
            biased,
            leave_out=("one tile", "ragged", "more rows than a GPU has multiprocessors"),
            one_more_than_a_power_of_two="fp16",
            padded_rows="bf16",
        ),
        Case("1 x 1 fp32, one element", biased(1, 1, "fp32")),
        Case(
            f"{MANY * TILE_ROWS} x 48 fp32, more tiles of rows than a GPU has multiprocessors",
            biased(MANY * TILE_ROWS, 48, "fp32"),
        ),
        Case("16 x 300 fp32, large values", biased(16, 300, "fp32", None, 40.0)),
        Case(
            "16 x 128 bf16, values around -4, where GELU is steep in relative terms",
            biased(16, 128, "bf16", None, 0.1, -4, 0.1),
        ),  # so near that no element outweighs its row
        *(
            Case(
                f"16 x 160 {dtype}, x and bias nearly cancel",
                biased(16, 160, dtype, None, 1.0, -64, 1.0, 64),
                hint="The bias is fp32: rounded to 16 bits, it differs by more than what is left of the sum here.",
            )
            for dtype in ("bf16", "fp16")
        ),
        Case("64 x 520 bf16, several tiles each way", biased(64, 520, "bf16")),
    ),
    slips=(
        Slip(
            "the bias was not added",
            "z = x + bias.",
            "x + bias -> x",
            answer=".to(tl.float32) + bias -> .to(tl.float32) + 0 * bias",
        ),
        Slip(
            "the bias was added after GELU",
            "Add the bias first: GELU takes x + bias.",
            ("x + bias -> x", f"{TANH} -> {TANH} + bias"),
            answer=(".to(tl.float32) + bias -> .to(tl.float32)", "tl.sigmoid(two_u) -> tl.sigmoid(two_u) + bias"),
        ),
        Slip(
            "the bias was indexed by the row",
            "There is one bias per column: load it at the numbers of the tile's columns, with a mask that keeps them "
            "below cols and other=0.0, and add it to every row of the tile with [None, :].",
            "x + bias -> x + bias[np.arange(len(x)) % len(bias)][:, None]",
        ),
        Slip(
            "the constant sqrt(2/pi) was left out",
            "u = sqrt(2/pi) (z + 0.044715 z^3), with sqrt(2/pi) = 0.7978845608.",
            f"{ROOT} -> 1.0",
            answer="1.5957691216057308 -> 2.0",
        ),
        Slip(
            "the cubic term was left out",
            "u = sqrt(2/pi) (z + 0.044715 z^3).",
            "0.044715 -> 0",
            answer="0.044715 * z * z * z -> 0.0",
        ),
        Slip(
            "sigmoid(u) stands where sigmoid(2u) belongs",
            "0.5 (1 + tanh u) = sigmoid(2u): mind the 2.",
            "np.tanh(u) -> np.tanh(u / 2)",
            answer=f"1.5957691216057308 -> {ROOT}",
        ),
        Slip(
            "the factor 0.5 was left out",
            "0.5 z (1 + tanh u): half of it.",
            "0.5 * z -> z",
            answer="y = z -> y = 2 * z",
        ),
        Slip(
            "the sigmoid form z * sigmoid(1.702 z) was used",
            "That is another approximation of GELU; the task asks for the tanh form.",
            f"{TANH} -> z / (1 + np.exp(-1.702 * z))",
            answer="tl.sigmoid(two_u) -> tl.sigmoid(1.702 * z)",
        ),
        Slip(
            "the exact GELU, with erf, was computed",
            "The task asks for the tanh form, which differs from it by up to 5e-4.",
            "np.tanh(u) -> np.vectorize(erf)(z / np.sqrt(2))",
            answer="z * tl.sigmoid(two_u) -> z * 0.5 * (1 + tl.erf(z * 0.7071067811865476))",
        ),
        Slip(
            "a constant has too few digits",
            f"sqrt(2/pi) is {ROOT}, twice that 1.5957691216057308, and the cubic term's factor 0.044715: write them "
            "in full.",
            *(
                (f"{ROOT} -> {root}", f"0.044715 -> {cubic}")
                for cubic in (0.044715, 0.0447, 0.045)
                for root in (ROOT, *SHORT)
                if (cubic, root) != (0.044715, ROOT)
            ),
            answer="1.5957691216057308 -> 2 * 0.79788",
        ),
        Slip(
            "the bias was rounded to 16 bits",
            "It is fp32 and stays so: x is converted to fp32, not the bias to the dtype of x.",
            *(f"x + bias -> x + rounded(bias, {dtype})" for dtype in (T, "'bf16'", "'fp16'")),
            answer="+ bias -> + bias.to(x_ptr.dtype.element_ty).to(tl.float32)",
        ),
        Slip(
            "x + bias was rounded to 16 bits",
            "Convert x to fp32 before the addition and stay there until the store.",
            f"x + bias -> rounded(x + bias, {T})",
            answer="+ bias -> + bias\n    z = z.to(x_ptr.dtype.element_ty).to(tl.float32)",
        ),
    ),
    minimum_bytes=lambda x, bias: {
        "x": x.nbytes,
        "bias": -(-x.shape[0] // TILE_ROWS) * bias.nbytes,
        "returned 0": x.nbytes,
    },
    hints={
        "row_scale": "A factor near 1 means that something was rounded to 16 bits on the way: keep x + bias and all "
        "that follows in fp32 until the store. A factor of 2 is the 0.5 in GELU.",
        "wrong": "Where the error is small, x + bias or what follows was rounded to 16 bits: keep it in fp32 until the "
        "store. Where it is large, compare with the formula step by step, and each constant digit by digit.",
        "bytes": f"Load the bias once for a tile of {TILE_ROWS} rows or more, [None, :], not once for every row.",
        "out_of_bounds": "The last tile reaches past the last row and the last column: x and y need a mask of two "
        "parts, row numbers [:, None] below rows & column numbers [None, :] below cols. The load of "
        "the bias needs one too: column numbers below cols.",
        "dtype": "y has the dtype of x.",
        "nan": "For |z| beyond about 10 an exponential overflows. tanh written as (e - 1) / (e + 1) then becomes inf / "
        "inf; z / (1 + exp(-2u)), or z * tl.sigmoid(2u), does not. Or memory was read that nothing wrote.",
    },
    speed=Speed(
        points=1,
        share=0.8,
        bytes=16384 * 8192 * 4 + 8192 * 4,
        shape="16384 x 8192 bf16",
        make=lambda: {"x": RandomTensor((16384, 8192), "bf16"), "bias": RandomTensor((8192,), "fp32", 0, 0.5)},
    ),
)

# ---------------------------------------------------------------- 04.4 SwiGLU, forward and backward


def woven(gate, up):
    """One row of pairs from a row of gates and a row of ups."""
    return np.stack([gate, up], axis=2).reshape(len(gate), -1)


@gives(y="gate_up")
def swiglu(gate_up):
    """gate sigmoid(1.702 gate) (up + 1)."""
    gate, up = gate_up[:, 0::2], gate_up[:, 1::2]
    s = 1 / (1 + np.exp(-1.702 * gate))
    return gate * s * (up + 1)


@gives(dgate_up="gate_up")
def swiglu_backward(dy, gate_up):
    """The gradient, woven like gate_up."""
    gate, up = gate_up[:, 0::2], gate_up[:, 1::2]
    s = 1 / (1 + np.exp(-1.702 * gate))
    slope = s + 1.702 * gate * s * (1 - s)
    dgate, dup = dy * (up + 1) * slope, dy * gate * s
    return woven(dgate, dup)


def gated(rows, inter, dtype, row_stride=None, std=1.0, backward=False):
    """gate_up, and dy for the backward; a sum that cancels weighs too much where it is the whole row."""

    def make(rng):
        values, dy = rng.normal(0, std, (rows, 2 * inter)), rng.normal(0, 1, (rows, inter))
        given = {"gate_up": tensor(np.abs(values) if inter == 1 else values, dtype)}
        return {"dy": tensor(dy, dtype), **given} if backward else given

    return make


def sigmoid_between(rng):
    """Gates whose sigmoid lies near the middle between two bf16 numbers: rounded, it loses most."""
    gate = rounded(rng.normal(0, 2, 200_000), "bf16")
    fraction, _ = np.frexp(1 / (1 + np.exp(-1.702 * gate)))  # 0.5 to 1: bf16 numbers are 2^-8 apart there
    steps = fraction * 2**8
    gate = gate[(np.abs(steps - np.floor(steps) - 0.5) < 0.15) & (fraction < 0.6)][:900].reshape(3, 300)
    return {"gate_up": tensor(woven(gate, rng.choice([-3.0, 1.0, 3.0], gate.shape)), "bf16")}


def steady_gates(rng):
    """Gates near -0.75, where the gate's gradient is a small difference: a rounded sigmoid spoils it."""
    gate = -0.7511 + rng.uniform(-0.02, 0.02, (3, 300))
    return {
        "dy": tensor(rng.normal(0, 1, gate.shape), "bf16"),
        "gate_up": tensor(woven(gate, rng.normal(200, 20, gate.shape)), "bf16"),
    }


def gated_bytes(gate_up, dy=None):
    if dy is None:
        return {"gate_up": gate_up.nbytes, "returned 0": gate_up.nbytes // 2}
    return {"dy": dy.nbytes, "gate_up": gate_up.nbytes, "returned 0": gate_up.nbytes}


FP32_ALONE = (
    "If it expected fp32: tl.sigmoid and tl.exp take fp32 only, so convert with .to(tl.float32) right after the load."
)
PAIRS = "gate_up[:, 0::2], gate_up[:, 1::2]"
HALVES, AS_HALVES = f"{PAIRS} -> np.split(gate_up, 2, axis=1)", "woven(dgate, dup) -> np.hstack((dgate, dup))"
READ, WRITTEN = f"{PAIRS} -> gate_up[:, 1::2], gate_up[:, 0::2]", "woven(dgate, dup) -> woven(dup, dgate)"
SWIGLU = Task(
    id="04.4",
    title="SwiGLU, forward and backward",
    points=5,
    kernel=True,
    functions={"swiglu": swiglu, "swiglu_backward": swiglu_backward},
    cases=(
        *(
            case
            for name, make in (("swiglu", gated), ("swiglu_backward", partial(gated, backward=True)))
            for case in (
                *row_cases(make, name, leave_out=("one less than a power of two", "padded rows", "a wide row")),
                Case(
                    f"{name}, {MANY} x 1025 fp16, more tiles than a GPU has multiprocessors",
                    make(MANY, 1025, "fp16"),
                    name,
                ),
                Case(f"{name}, 2 x 300 fp32, large values", make(2, 300, "fp32", std=40.0), name),
            )
        ),
        Case(
            "swiglu, 3 x 300 bf16, sigmoids between two bf16 numbers",
            sigmoid_between,
            "swiglu",
            hint="A sigmoid rounded to 16 bits loses most here: keep it in fp32, and round what is stored, once.",
        ),
        Case(
            "swiglu_backward, 3 x 300 bf16, gates near -0.75, where their gradient changes its sign",
            steady_gates,
            "swiglu_backward",
        ),
    ),
    slips=(
        Slip(
            "gate and up were taken as the two halves of a row, and they alternate",
            "Columns 0, 2, 4, ... are the gate, columns 1, 3, 5, ... are up: 2 * columns and 2 * columns + 1.",
            HALVES,
            AS_HALVES,
            (HALVES, AS_HALVES),
        ),
        Slip(
            "gate and up are exchanged",
            "Even columns are the gate and its gradient, odd columns are up and its gradient.",
            READ,
            WRITTEN,
            (READ, WRITTEN),
            answer="gate, up = tl.split -> up, gate = tl.split",
        ),
        Slip(
            "up stands where up + 1 belongs",
            "This variant multiplies by (up + 1).",
            "(up + 1) -> up",
            answer="(up + 1) -> up",
        ),
        Slip(
            "alpha was left out of the sigmoid",
            "sigmoid(1.702 * gate).",
            "1.702 * gate -> gate",
            answer="1.702 * gate -> gate",
        ),
        Slip(
            "the derivative of the sigmoid lacks its factor alpha",
            "The chain rule: the derivative of sigmoid(alpha g) is alpha s (1 - s).",
            "1.702 * gate * s -> gate * s",
            answer="sigmoid + 1.702 * -> sigmoid +",
        ),
        Slip(
            "the gate's gradient lacks the product rule's second term",
            "gate stands twice in gate * sigmoid(alpha * gate): both factors have a derivative.",
            " + 1.702 * gate * s * (1 - s) -> ",
            "slope = s + -> slope =",
            answer="(sigmoid + 1.702 * gate * sigmoid * (1 - sigmoid)) -> sigmoid",
        ),
        Slip(
            "the sigmoid was rounded to 16 bits",
            "It is an intermediate result: keep it in fp32, and round what is stored, once.",
            "1 / (1 + np.exp(-1.702 * gate)) -> rounded(1 / (1 + np.exp(-1.702 * gate)), dtype('gate_up'))",
            answer="y = gate * tl.sigmoid(1.702 * gate) -> "
            "y = gate * tl.sigmoid(1.702 * gate).to(y_ptr.dtype.element_ty).to(tl.float32)",
        ),
        Slip(
            "the incoming gradient was left out",
            "Multiply both gradients by dy.",
            ("dy * (up -> (up", "dy * gate -> gate"),
            answer=("dgate = dy * -> dgate =", "dup = dy * -> dup = 0 * dy +"),
        ),
    ),
    minimum_bytes=gated_bytes,
    hints={
        "bytes": "Forward: gate_up read once, y written. Backward: dy and gate_up read once, dgate_up written; the "
        "sigmoid is computed again, not stored.",
        "nan": "exp(-alpha * gate) may overflow to infinity, and 1 / (1 + inf) is 0, which is right; inf / inf is not. "
        "Write the sigmoid as 1 / (1 + exp(-z)), or use tl.sigmoid.",
        "dtype": "Results have the dtype of gate_up.",
        "out_of_bounds": "The last program's elements reach past the end: with i = program * BLOCK + arange and `size` "
        "elements in y, mask what belongs to y or dy with `i < size`, and a load of neighbouring "
        "pairs with `pair < 2 * size`.",
        "exception": FP32_ALONE,
        "compile": FP32_ALONE,
    },
    speed=Speed(
        points=1,
        share=0.7,
        bytes=8192 * 8192 * 6,
        shape="8192 x 8192 bf16",
        make=lambda: {"gate_up": RandomTensor((8192, 2 * 8192), "bf16")},
    ),
)

# ---------------------------------------------------------------- 04.5 fuse or not


def seconds(gpu, kernels, more=0):
    """Of kernels one after the other; the first writes so many bytes more."""
    busy = 0
    for place, kernel in enumerate(kernels):
        memory = (kernel["bytes"] + more * (place == 0)) / gpu["bandwidth"]
        compute = kernel["flops"] / (kernel["efficiency"] * gpu[kernel["unit"]])
        busy += max(memory, compute)
    return max(busy, len(kernels) * gpu["launch"])


@gives("decision", "saved", uses=(seconds,))
def decide(unfused, fused, needed_by_backward, gpu):
    """Whether to fuse, and the seconds that it saves."""
    before, after = seconds(gpu, unfused), seconds(gpu, fused, needed_by_backward)
    saved = before - after
    worth = saved >= 0.05 * before
    return "fuse" if worth else "leave", saved


H200 = {"bandwidth": 4.8e12, "vector": 66.9e12, "matrix": 989.4e12, "launch": 5e-6}
FULL = (10**8, 3 * 10**8)  # elements of a large tensor, from and to


def kernel(nbytes, flops=0, unit="vector", efficiency=1.0):
    return {"bytes": int(nbytes), "flops": int(flops), "unit": unit, "efficiency": efficiency}


def product(m, n, k, efficiency=0.7, more=0):
    return kernel(2 * (m * k + k * n + m * n) + more, 2 * m * n * k, "matrix", efficiency)


def lists(unfused, fused, needed=0):
    return {"unfused": unfused, "fused": fused, "needed_by_backward": int(needed), "gpu": H200}


def pointwise(size, most, kept=False):
    """Pointwise ops, up to `most` (2, 6, or a few), whose intermediates the backward may need."""

    def make(rng):
        full, n = 2 * between(rng, *size), between(rng, *most)
        return lists([kernel(2 * full, full) for _ in range(n)], [kernel(2 * full, n * full)], kept * (n - 1) * full)

    return make


def two_ops(first, second, fused):
    """Two pointwise ops that move these multiples of a tensor, and the same in one kernel."""

    def make(rng):
        full = 2 * between(rng, *FULL)
        return lists([kernel(first * full, full), kernel(second * full, full)], [kernel(fused * full, 2 * full)])

    return make


def epilogue(size, depth, efficiency):
    """Bias + GELU into a product, which then computes at another efficiency."""

    def make(rng):
        m, n, k = between(rng, *size), between(rng, *size), between(rng, *depth)
        return lists([product(m, n, k), kernel(4 * m * n, 8 * m * n)], [product(m, n, k, efficiency)])

    return make


def recomputed(rng):
    """A norm drawn into the product behind it: every column block of programs does it again."""
    m, n, k = between(rng, 8_000, 16_000), between(rng, 10_000, 14_000), between(rng, 4_000, 8_000)
    return lists([kernel(4 * m * k, 4 * m * k), product(m, n, k)], [product(m, n, k, more=(n // 128 - 1) * 2 * m * k)])


def hidden_write(rng):
    """A product that computes for long enough to hide what it writes for the backward; busy pointwise ops behind it."""
    m, n, k = between(rng, 8_000, 12_000), between(rng, 8_000, 12_000), between(rng, 4_000, 6_000)
    return lists(
        [product(m, n, k), *(kernel(4 * m * n, 20 * m * n) for _ in range(3))],
        [product(m, n, k), kernel(4 * m * n, 60 * m * n)],
        2 * m * n,
    )


def short_and_long(rng):
    """Kernels shorter than a launch beside longer ones: the host is ahead, and a short one costs its own time."""
    full, small = 2 * between(rng, 10**8, 2 * 10**8), 2 * between(rng, 10**6, 2 * 10**6)
    short, long = (2 * small, 4 * small), (2 * full, full)
    return lists(
        [kernel(*one) for one in (long, short, long, short)], [kernel(2 * full, 2 * full), kernel(*short)], small
    )


def another(saved, fault, hint):
    """A slip of the number: with the word that is right, and with the word that this number leads to."""
    return Slip(fault, hint, f'"leave", saved -> "leave", {saved}', f"worth = -> saved = {saved}\n    worth =")


FROM_FUSED = "seconds(gpu, fused, needed_by_backward)"
LATE, LAUNCHES = 'needed_by_backward / gpu["bandwidth"]', 'max(busy, len(kernels) * gpu["launch"])'
DECIDE = Task(
    id="04.5",
    title="Fuse or not",
    points=4,
    functions={"decide": decide},
    cases=(
        Case("six pointwise ops, a large tensor", pointwise(FULL, (6, 6))),
        Case("pointwise ops, one token", pointwise((4_000, 8_000), (4, 7))),
        Case("a norm drawn into the product behind it", recomputed),
        Case("bias and GELU into a product with a short K", epilogue((8_000, 16_000), (500, 1_000), 0.65)),
        Case("an epilogue that slows a product with a long K", epilogue((4_000, 8_000), (12_000, 16_000), 0.6)),
        Case("an intermediate that the backward needs", pointwise(FULL, (2, 2), kept=True)),
        Case("an intermediate that is little beside the rest", two_ops(2.02, 4.02, 6)),
        Case("kernels shorter and longer than a launch", short_and_long),
        Case("a product that hides what it writes for the backward", hidden_write),
        Case("one token, and the backward needs the intermediates", pointwise((4_000, 8_000), (4, 7), kept=True)),
        *(Case(f"fusing saves {share}%", two_ops(1, 1, 2 - share / 50)) for share in (4, 4.9, 5.1, 6)),
    ),
    slips=(  # first those with the right time and another word, which every other guess would explain too
        Slip(
            "the word follows another threshold, though the time saved is right",
            "The time saved is compared with 5% of the unfused time.",
            "0.05 * before -> 0.03 * before",
            "0.05 * before -> 0.1 * before",
            "0.05 * before -> 0.05 * after",
        ),
        Slip(
            "any gain was taken for worth it, however small",
            "Less than 5% of the unfused time is not worth a kernel of one's own here.",
            "saved >= 0.05 * before -> saved > 0",
        ),
        Slip(
            "the decision is turned over, though the time saved is right",
            "'fuse' where at least 5% of the unfused time is saved, 'leave' otherwise, also where fusing costs time.",
            "if worth -> if not worth",
            answer='"fuse" if saved -> "leave" if not saved',
        ),
        Slip(
            "what the backward needs was left out",
            "The first fused kernel writes needed_by_backward too: add it to its bytes.",
            f"{FROM_FUSED} -> seconds(gpu, fused)",
        ),
        Slip(
            "what the backward needs was added to the last fused kernel",
            "The first fused kernel writes it.",
            "place == 0 -> place == len(kernels) - 1",
        ),
        Slip(
            "what the backward needs was added to every fused kernel",
            "The first fused kernel writes it, and no other.",
            "more * (place == 0) -> more",
        ),
        Slip(
            "the time of what the backward needs was added to a finished time",
            "Add the bytes to the first kernel's, before the longer of memory and compute is taken: a kernel writes "
            "while it computes.",
            (" + more * (place == 0) -> ", 'busy = 0 -> busy = more / gpu["bandwidth"]'),
            f"{FROM_FUSED} -> seconds(gpu, fused) + {LATE}",
        ),
        Slip(
            "each kernel was given at least the time of a launch",
            "The host launches ahead: compare all launches of a list with the sum of its kernels, once, and not "
            "kernel by kernel.",
            'max(memory, compute) -> max(memory, compute, gpu["launch"])',
        ),
        Slip(
            "launches were left out",
            "The host needs gpu['launch'] per kernel: where that takes longer than all the kernels, it is the time.",
            f"{LAUNCHES} -> busy",
        ),
        Slip(
            "launches were added to the kernels' time",
            "The host launches ahead while the GPU works: the longer of the two counts, not their sum.",
            f'{LAUNCHES} -> busy + len(kernels) * gpu["launch"]',
        ),
        Slip(
            "only bytes were compared",
            "A matrix product takes the longer of bytes / bandwidth and FLOPs / (efficiency * peak).",
            "max(memory, compute) -> memory",
        ),
        Slip(
            "efficiency was left out",
            "A kernel computes at efficiency * gpu[unit], and a spilling epilogue lowers it.",
            'kernel["efficiency"] * gpu -> gpu',
        ),
        Slip(
            "bytes and FLOPs of a kernel were added as times",
            "A kernel loads while it computes: the longer of the two times counts.",
            "max(memory, compute) -> memory + compute",
        ),
        another("saved * 1e6", "microseconds came back", "The time saved is in seconds."),
        another(
            "saved / before",
            "the share of the time came back, not the time",
            "Return seconds; the share only decides the word.",
        ),
        another(
            "-saved", "the time saved has the wrong sign", "Unfused minus fused: positive where fusing saves time."
        ),
        another(
            "max(saved, 0.0)",
            "a loss came back as 0",
            "Where fusing costs time, the time saved is negative: do not cut it off.",
        ),
        Slip(
            "the time after fusion came back, not the time saved",
            "Return the unfused time minus the fused time; it is negative where fusing costs time.",
            'else "leave", saved -> else "leave", after',
        ),
    ),
    hints={
        "wrong": "Take the case apart: the time of each kernel alone, then of each list, then their difference. "
        "Which of the two can hide behind the other, and whose bytes grow by needed_by_backward?",
        "type": "Return ('fuse' or 'leave', seconds saved as a float).",
    },
    success="every decision, each with the time it saves or costs",
)

TASKS = (COUNT, CHAIN, BIAS_GELU, SWIGLU, DECIDE)
