"""Exercise 04: Llama-2-7B's layer counted, a chain fused, bias + GELU in tiles, SwiGLU both ways, and decisions."""

from math import erf

import numpy as np

from grading.checks import Case, Expected, RandomTensor, Speed, Suspect, Task, rounded, tensor

EXERCISE = "04_fusion"


def between(rng, low, high) -> int:
    """A whole number from low to high."""
    return int(rng.integers(low, high + 1))


# ---------------------------------------------------------------- 04.1 Llama-2-7B's layer

STATISTICS = 24  # bytes per row: fp32 mean written; + eps; rsqrt; the scale read
#: Bytes per element of each of the norm's full-size steps: to fp32, square, mean, times scale, to bf16, times weight.
STEPS = {"to fp32": 6, "square": 8, "mean": 4, "scaled": 8, "to bf16": 6, "weighted": 4}


def _norm(tokens, hidden, per_element=sum(STEPS.values()), per_row=STATISTICS, weight=2):
    return tokens * hidden * per_element + tokens * per_row + weight * hidden


def _layer(tokens, hidden, inter, norm=None, add=6, swiglu=10):
    return 2 * (_norm(tokens, hidden) if norm is None else norm) + 2 * tokens * hidden * add + tokens * inter * swiglu


def _fused(tokens, hidden, inter, pair=8, weight=2, swiglu=6):
    return 2 * (tokens * hidden * pair + weight * hidden) + tokens * inter * swiglu


def _saved(tokens, hidden, inter, layers, bandwidth):
    return layers * (_layer(tokens, hidden, inter) - _fused(tokens, hidden, inter)) / (bandwidth * 1e12) * 1e6


def _number(count, name="bytes"):
    return lambda **sizes: [Expected(name, count(**sizes))]


def _guess(*counts, name="bytes"):
    return lambda **sizes: [[Expected(name, count(**sizes))] for count in counts]


LLAMA = {"tokens": 4 * 2048, "hidden": 4096}
COUNT = Task(
    id="04.1", title="Llama-2-7B's layer, counted", points=4,
    functions=("norm_bytes", "layer_bytes", "fused_bytes", "saved_microseconds"),
    oracle={"norm_bytes": _number(_norm), "layer_bytes": _number(_layer), "fused_bytes": _number(_fused),
            "saved_microseconds": _number(_saved, "microseconds")},
    cases=(
        Case("norm_bytes, Llama-2-7B, 4 x 2,048 tokens", lambda rng: dict(LLAMA), "norm_bytes"),
        Case("norm_bytes, other sizes", lambda rng: {"tokens": between(rng, 1, 9_000), "hidden": between(rng, 100, 9_000)},
             "norm_bytes"),
        *(Case(f"{function}, {name}", make, function) for function in ("layer_bytes", "fused_bytes")
          for name, make in (
              ("Llama-2-7B, 4 x 2,048 tokens", lambda rng: {**LLAMA, "inter": 11008}),
              ("other sizes", lambda rng: {"tokens": between(rng, 1, 9_000), "hidden": between(rng, 100, 9_000),
                                           "inter": between(rng, 100, 30_000)}))),
        Case("saved_microseconds, Llama-2-7B", lambda rng: {**LLAMA, "inter": 11008, "layers": 32, "bandwidth": 3.35},
             "saved_microseconds"),
        Case("saved_microseconds, another model and GPU", lambda rng: {
            "tokens": between(rng, 1, 9_000), "hidden": between(rng, 1_000, 9_000), "inter": between(rng, 1_000, 30_000),
            "layers": between(rng, 2, 100), "bandwidth": round(float(rng.uniform(0.3, 8)), 2)}, "saved_microseconds"),
    ),
    suspects=(
        Suspect("the norm was counted in bf16 throughout, seven passes as in the lesson", {
            "norm_bytes": _guess(*(lambda tokens, hidden, row=row, weight=weight: _norm(tokens, hidden, 14, row, weight)
                                   for row in (0, 12, 24) for weight in (0, 2)))},
            "This one converts to fp32 and back: it has eight operations, and between the casts an element has 4 bytes."),
        Suspect("every step of the norm was counted in bf16", {
            "norm_bytes": _guess(*(lambda tokens, hidden, full=full, row=row: _norm(tokens, hidden, full, row)
                                   for full in (18, 22) for row in (0, 12, 24)))},
            "Between the two casts the tensors are fp32: 4 bytes per element, read and written."),
        Suspect("the casts were left out", {
            "norm_bytes": _guess(lambda tokens, hidden: _norm(tokens, hidden, 36 - 12))},
            "`.float()` and `.bfloat16()` are kernels too: one reads 2 bytes and writes 4, the other the reverse."),
        Suspect("only the writes were counted", {
            "norm_bytes": _guess(lambda tokens, hidden: tokens * hidden * 16 + 12 * tokens)},
            "Each operation also reads its inputs."),
        Suspect("the square was counted as reading x twice", {
            "norm_bytes": _guess(lambda tokens, hidden: _norm(tokens, hidden, 40))},
            "`h * h` reads h once."),
        Suspect("the numbers per row were left out", {
            "norm_bytes": _guess(lambda tokens, hidden: _norm(tokens, hidden, per_row=0))},
            "mean, + eps, rsqrt and the scaling each touch one fp32 number per row: six in all."),
        Suspect("the weight was left out", {
            "norm_bytes": _guess(lambda tokens, hidden: _norm(tokens, hidden, weight=0)),
            "fused_bytes": _guess(lambda tokens, hidden, inter: _fused(tokens, hidden, inter, weight=0))},
            "The weight is read too, `hidden` elements of 2 bytes, once per norm."),
        Suspect("the weight was counted once per row", {
            "norm_bytes": _guess(lambda tokens, hidden: _norm(tokens, hidden, weight=2 * tokens)),
            "fused_bytes": _guess(lambda tokens, hidden, inter: _fused(tokens, hidden, inter, weight=2 * tokens))},
            "All rows share one weight: DRAM delivers it once."),
        Suspect("only one norm and one addition were counted", {
            "layer_bytes": _guess(lambda tokens, hidden, inter: _norm(tokens, hidden) + 6 * tokens * hidden
                                  + 10 * tokens * inter),
            "fused_bytes": _guess(lambda tokens, hidden, inter: 8 * tokens * hidden + 2 * hidden + 6 * tokens * inter)},
            "A layer has two of each: around attention and around the MLP."),
        Suspect("only one norm was counted, and both additions", {
            "layer_bytes": _guess(lambda tokens, hidden, inter: _layer(tokens, hidden, inter) - _norm(tokens, hidden))},
            "A layer has two norms: before attention and before the MLP."),
        Suspect("only one addition was counted, and both norms", {
            "layer_bytes": _guess(lambda tokens, hidden, inter: _layer(tokens, hidden, inter, add=3))},
            "A layer has two residual additions: after attention and after the MLP."),
        Suspect("the addition was counted with one input", {
            "layer_bytes": _guess(lambda tokens, hidden, inter: _layer(tokens, hidden, inter, add=4))},
            "An addition reads two tensors and writes one."),
        Suspect("silu(gate) * up was counted as one kernel", {
            "layer_bytes": _guess(lambda tokens, hidden, inter: _layer(tokens, hidden, inter, swiglu=6))},
            "Unfused it is two: silu reads and writes, then the product reads two tensors and writes one."),
        Suspect("the multiplication by up was left out", {
            "layer_bytes": _guess(lambda tokens, hidden, inter: _layer(tokens, hidden, inter, swiglu=4)),
            "fused_bytes": _guess(lambda tokens, hidden, inter: _fused(tokens, hidden, inter, swiglu=4))},
            "SwiGLU reads gate and up: after silu comes a product of two tensors."),
        Suspect("the SwiGLU was counted on `hidden` columns", {
            "layer_bytes": _guess(lambda tokens, hidden, inter: _layer(tokens, hidden, hidden)),
            "fused_bytes": _guess(lambda tokens, hidden, inter: _fused(tokens, hidden, hidden))},
            "gate and up have `inter` columns."),
        Suspect("the new residual was not written", {
            "fused_bytes": _guess(lambda tokens, hidden, inter: _fused(tokens, hidden, inter, pair=6))},
            "Add + norm reads x and the residual and writes two tensors: the sum, which the next addition needs, and the "
            "normed sum."),
        Suspect("the addition and the norm were counted apart", {
            "fused_bytes": _guess(lambda tokens, hidden, inter: _fused(tokens, hidden, inter, pair=10))},
            "Fused, the sum goes from the addition to the norm in registers: it is written and not read back."),
        Suspect("one layer was counted, or the layers were left out", {
            "saved_microseconds": _guess(lambda layers, **rest: _saved(layers=1, **rest), name="microseconds")},
            "Multiply by the number of layers."),
        Suspect("seconds came back, not microseconds", {
            "saved_microseconds": _guess(lambda **all: _saved(**all) / 1e6, name="microseconds")},
            "A second has 10^6 µs."),
        Suspect("milliseconds came back, not microseconds", {
            "saved_microseconds": _guess(lambda **all: _saved(**all) / 1e3, name="microseconds")},
            "A millisecond has 1,000 µs."),
        Suspect("the bandwidth was taken for GB/s", {
            "saved_microseconds": _guess(lambda **all: _saved(**all) * 1e3, name="microseconds")},
            "`bandwidth` is in TB/s: 10^12 bytes per second."),
        Suspect("the fused time came back, not what is saved", {
            "saved_microseconds": _guess(lambda tokens, hidden, inter, layers, bandwidth: layers * _fused(
                tokens, hidden, inter) / bandwidth / 1e6, name="microseconds")},
            "Subtract: unfused bytes minus fused bytes, over the bandwidth."),
        Suspect("the bytes were divided by 2^20 or 2^40", {
            "saved_microseconds": _guess(lambda **all: _saved(**all) * 1e12 / 2**40, lambda **all: _saved(
                **all) * 1e6 / 2**20, name="microseconds")},
            "A TB is 10^12 bytes."),
    ),
    hints={"wrong": "One line per operation: bytes per element read and written, then the fp32 numbers per row, then the "
                    "weight. Add up.",
           "type": "Bytes are whole numbers: return an int. Microseconds are a float."},
)


# ---------------------------------------------------------------- 04.2 fuse a chain


def _dtype_of(dtype):
    return {"_dtype": dtype}


def chain(x, scale, shift, limit, _dtype):
    """relu(scale x + shift)^2, at most `limit`."""
    return [Expected("y", np.minimum(np.maximum(scale * x + shift, 0)**2, limit), _dtype)]


def _chain_inputs(rows, cols, dtype, std=1.0, limit=4.0, row_stride=None):

    def make(rng):
        return {"x": tensor(rng.normal(0, std, (rows, cols)), dtype, row_stride),
                "scale": tensor(rng.normal(1, 0.3, cols), "fp32"), "shift": tensor(rng.normal(0, 0.5, cols), "fp32"),
                "limit": limit, "_dtype": dtype}

    return make


def _one_column(rng):
    """One element is a row: scale * x and shift must not cancel, or fp32's own rounding is all that is left of it."""
    x = rng.uniform(1, 2, (5, 1)) * [[1], [-1], [1], [-1], [1]]
    return {"x": tensor(x, "fp32"), "scale": tensor(rng.uniform(0.5, 1.5, 1), "fp32"),
            "shift": tensor(rng.uniform(-0.25, 0.25, 1), "fp32"), "limit": 1e6, "_dtype": "fp32"}


def _cancelling(rng):
    """scale * x and shift nearly cancel: a product rounded to bf16 loses what is left."""
    scale = rng.normal(1, 0.3, 640)
    x = rounded(np.repeat(rng.normal(3, 1, (1, 640)), 3, axis=0), "bf16")
    return {"x": tensor(x, "bf16"), "scale": tensor(scale, "fp32"),
            "shift": tensor(0.05 - rounded(scale, "fp32") * x[0], "fp32"), "limit": 4.0, "_dtype": "bf16"}


def _between(rng):
    """scale * x + shift just below the middle between two bf16 numbers: rounded before the square, it loses most."""
    scale = rng.normal(1, 0.3, 640)
    x = rounded(np.repeat(rng.normal(0, 1, (1, 640)), 3, axis=0), "bf16")
    total = 1 + (rng.integers(0, 16, 640) + 0.45) * 2.0**-7
    return {"x": tensor(x, "bf16"), "scale": tensor(scale, "fp32"),
            "shift": tensor(total - rounded(scale, "fp32") * x[0], "fp32"), "limit": 4.0, "_dtype": "bf16"}


def _chain_mistake(*results):
    return lambda x, scale, shift, limit, _dtype: [
        [Expected("y", f(x, scale, shift, limit, _dtype), _dtype)] for f in results]


def _each_step_rounded(x, scale, shift, limit, dtype):
    z = rounded(rounded(scale * x, dtype) + shift, dtype)
    return np.minimum(rounded(np.maximum(z, 0)**2, dtype), limit)


def _in_the_dtype_of_x(x, scale, shift, limit, dtype):
    return _each_step_rounded(x, rounded(scale, dtype), rounded(shift, dtype), limit, dtype)


CHAIN = Task(
    id="04.2", title="Fuse a chain", points=4, functions=("fused_chain", ), kernel=True, oracle=chain,
    cases=(
        Case("4 x 256 fp32", _chain_inputs(4, 256, "fp32")),
        Case("3 x 1000 bf16, ragged", _chain_inputs(3, 1000, "bf16")),
        Case("5 x 1 fp32, one column", _one_column),
        Case("2 x 1025 fp16, one more than a power of two", _chain_inputs(2, 1025, "fp16")),
        Case("3 x 777 fp16, rows 1,000 elements apart", _chain_inputs(3, 777, "fp16", row_stride=1000),
             hint="This x has padded rows: the next row starts x.stride(0) elements on; y has its own stride, cols."),
        Case("2 x 300 fp16, squares beyond fp16's range before the limit", _chain_inputs(2, 300, "fp16", 400.0, 240.0)),
        Case("3 x 640 bf16, scale * x and shift nearly cancel", _cancelling),
        Case("3 x 640 bf16, sums between two bf16 numbers", _between),
        Case("2 x 4099 bf16, a wide row", _chain_inputs(2, 4099, "bf16")),
    ),
    suspects=(
        Suspect("the square is missing", _chain_mistake(
            lambda x, scale, shift, limit, _: np.minimum(np.maximum(scale * x + shift, 0), limit)),
            "y = min(relu(scale * x + shift)^2, limit): multiply the rectified value by itself."),
        Suspect("the square came before relu, which then has nothing to do", _chain_mistake(
            lambda x, scale, shift, limit, _: np.minimum((scale * x + shift)**2, limit)),
            "Set negative values to 0 first, then square."),
        Suspect("the limit was not applied", _chain_mistake(
            lambda x, scale, shift, limit, _: np.maximum(scale * x + shift, 0)**2), "The last op is min(..., limit)."),
        Suspect("the limit was applied before the square", _chain_mistake(
            lambda x, scale, shift, limit, _: np.minimum(np.maximum(scale * x + shift, 0), limit)**2),
            "The limit is on the square."),
        Suspect("shift was not added", _chain_mistake(
            lambda x, scale, shift, limit, _: np.minimum(np.maximum(scale * x, 0)**2, limit)), "scale * x + shift."),
        Suspect("shift was added before the scaling", _chain_mistake(
            lambda x, scale, shift, limit, _: np.minimum(np.maximum(scale * (x + shift), 0)**2, limit)),
            "Scale first: scale * x + shift."),
        Suspect("scale and shift of column 0 were used everywhere", _chain_mistake(
            lambda x, scale, shift, limit, _: np.minimum(np.maximum(scale[0] * x + shift[0], 0)**2, limit)),
            "Load the scale and the shift of each column, `scale_ptr + columns`."),
        Suspect("scale and shift were cast to 16 bits", _chain_mistake(
            lambda x, scale, shift, limit, t: np.minimum(
                np.maximum(rounded(scale, t) * x + rounded(shift, t), 0)**2, limit),
            lambda x, scale, shift, limit, t: np.minimum(np.maximum(rounded(scale, t) * x + shift, 0)**2, limit),
            lambda x, scale, shift, limit, t: np.minimum(np.maximum(scale * x + rounded(shift, t), 0)**2, limit)),
            "They are fp32 and stay so: x is converted to fp32, not the parameters to the dtype of x."),
        Suspect("an intermediate was rounded to 16 bits", _chain_mistake(
            _each_step_rounded, _in_the_dtype_of_x,
            lambda x, scale, shift, limit, t: np.minimum(np.maximum(rounded(scale * x, t) + shift, 0)**2, limit),
            lambda x, scale, shift, limit, t: np.minimum(np.maximum(rounded(scale * x + shift, t), 0)**2, limit)),
            "A fused chain rounds once, at the store: convert x with `.to(tl.float32)` and cast nothing back before."),
    ),
    minimum_bytes=lambda x, scale, shift, limit, _dtype: {
        "x": x.nbytes, "scale": x.shape[0] * scale.nbytes, "shift": x.shape[0] * shift.nbytes, "returned 0": x.nbytes},
    hints={
        "bytes": "One kernel: x is loaded once, y stored once, scale and shift at most once per row; nothing lies between.",
        "unwritten": "Launch enough programs for all columns of every row.",
        "dtype": "y has the dtype of x.",
        "overflow": "Only a square that the limit has not cut leaves fp16's range: form it in fp32, and take "
                    "tl.minimum(z * z, limit) last.",
        "out_of_bounds": "Either a load or store lacks its mask, `columns < cols`; or the axes of the grid are exchanged, and "
                         "a program takes a block's number for its row: compare the order of the grid with "
                         "tl.program_id(0) and tl.program_id(1). A mask does not mend that, another index does.",
        "not_read": "Read all of x, and store to a tensor of your own, allocated with torch.empty, not over x.",
        "input_changed": "y is a tensor of its own: allocate it with torch.empty and store there, not over x.",
    },
    speed=Speed(points=1, share=0.8, bytes=8192 * 8192 * 4, shape="8192 x 8192 bf16",
                make=lambda: {"x": RandomTensor((8192, 8192), "bf16"), "scale": RandomTensor((8192, ), "fp32", 1, 0.3),
                              "shift": RandomTensor((8192, ), "fp32", 0, 0.5), "limit": 4.0, "_dtype": "bf16"}),
)


# ---------------------------------------------------------------- 04.3 bias + GELU in tiles

TILE_ROWS = 16
ROOT = np.sqrt(2 / np.pi)


def _gelu(z, cubic=0.044715, root=ROOT):
    return 0.5 * z * (1 + np.tanh(root * (z + cubic * z**3)))


def bias_gelu(x, bias, _dtype):
    """gelu(x + bias), tanh form."""
    return [Expected("y", _gelu(x + bias), _dtype)]


def _biased(rows, cols, dtype, std=1.0, row_stride=None, mean=0.0, bias_std=0.5):

    def make(rng):
        return {"x": tensor(rng.normal(mean, std, (rows, cols)), dtype, row_stride),
                "bias": tensor(rng.normal(0, bias_std, cols), "fp32"), "_dtype": dtype}

    return make


def _gelu_mistake(*results):
    return lambda x, bias, _dtype: [[Expected("y", f(x, bias, _dtype), _dtype)] for f in results]


def _short_constants(x, bias, _dtype):
    z = x + bias
    return [[Expected("y", _gelu(z, cubic, root), _dtype)] for cubic in (0.044715, 0.0447, 0.045)
            for root in (ROOT, *(round(ROOT, digits) for digits in range(1, 7)), *(round(2 * ROOT, digits) / 2
                                                                                   for digits in range(1, 6)))
            if (cubic, root) != (0.044715, ROOT)]


def _row_bias(x, bias, _):
    """bias indexed by the row."""
    return _gelu(x + bias[np.arange(len(x)) % len(bias)][:, None])


BIAS_GELU = Task(
    id="04.3", title="Bias + GELU at minimum traffic", points=4, functions=("bias_gelu", ), kernel=True, oracle=bias_gelu,
    cases=(
        Case("32 x 256 fp32", _biased(32, 256, "fp32")),
        Case("48 x 200 bf16, ragged columns", _biased(48, 200, "bf16")),
        Case("19 x 129 fp16, ragged rows and columns", _biased(19, 129, "fp16")),
        Case("33 x 65 fp32, one row and one column over", _biased(33, 65, "fp32")),
        Case("1 x 1 fp32, one element", _biased(1, 1, "fp32")),
        Case("16 x 100 bf16, rows 160 elements apart", _biased(16, 100, "bf16", row_stride=160),
             hint="This x has padded rows, x.stride(0) elements apart. y is contiguous: its rows are cols apart."),
        Case("16 x 300 fp32, large values", _biased(16, 300, "fp32", 40.0)),
        Case("16 x 128 bf16, values around -4, where GELU is steep in relative terms",
             _biased(16, 128, "bf16", 0.1, mean=-4, bias_std=0.1)),  # so near that no element outweighs its row
        Case("64 x 520 bf16, several tiles each way", _biased(64, 520, "bf16")),
    ),
    suspects=(
        Suspect("the bias was not added", _gelu_mistake(lambda x, bias, _: _gelu(x)), "z = x + bias."),
        Suspect("the bias was added after GELU", _gelu_mistake(lambda x, bias, _: _gelu(x) + bias),
                "Add the bias first: GELU takes x + bias."),
        Suspect("the bias was indexed by the row", _gelu_mistake(_row_bias),
                "There is one bias per column: load it at the numbers of the tile's columns, with a mask that keeps "
                "them below cols and other=0.0, and add it to every row of the tile with [None, :]."),
        Suspect("the constant sqrt(2/pi) was left out", _gelu_mistake(lambda x, bias, _: _gelu(x + bias, root=1.0)),
                "u = sqrt(2/pi) (z + 0.044715 z^3), with sqrt(2/pi) = 0.7978845608."),
        Suspect("the cubic term was left out", _gelu_mistake(lambda x, bias, _: _gelu(x + bias, cubic=0.0)),
                "u = sqrt(2/pi) (z + 0.044715 z^3)."),
        Suspect("sigmoid(u) stands where sigmoid(2u) belongs",
                _gelu_mistake(lambda x, bias, _: _gelu(x + bias, root=ROOT / 2)),
                "0.5 (1 + tanh u) = sigmoid(2u): mind the 2."),
        Suspect("the factor 0.5 was left out", _gelu_mistake(lambda x, bias, _: 2 * _gelu(x + bias)),
                "0.5 z (1 + tanh u): half of it."),
        Suspect("the sigmoid form z * sigmoid(1.702 z) was used",
                _gelu_mistake(lambda x, bias, _: (x + bias) / (1 + np.exp(-1.702 * (x + bias)))),
                "That is another approximation of GELU; the task asks for the tanh form."),
        Suspect("the exact GELU, with erf, was computed",
                _gelu_mistake(lambda x, bias, _: (x + bias) * 0.5 * (1 + np.vectorize(erf)((x + bias) / np.sqrt(2)))),
                "The task asks for the tanh form, which differs from it by up to 5e-4."),
        Suspect("a constant has too few digits", _short_constants,
                "sqrt(2/pi) is 0.7978845608028654, twice that 1.5957691216057308, and the cubic term's factor 0.044715: write "
                "them in full."),
        Suspect("x + bias was rounded to 16 bits", _gelu_mistake(lambda x, bias, t: _gelu(rounded(x + bias, t))),
                "Convert x to fp32 before the addition and stay there until the store."),
    ),
    minimum_bytes=lambda x, bias, _dtype: {"x": x.nbytes, "bias": -(-x.shape[0] // TILE_ROWS) * bias.nbytes,
                                           "returned 0": x.nbytes},
    hints={
        "row_scale": "A factor near 1 means that something was rounded to 16 bits on the way: keep x + bias and all that "
                     "follows in fp32 until the store. A factor of 2 is the 0.5 in GELU.",
        "wrong": "Where the error is small, x + bias or what follows was rounded to 16 bits: keep it in fp32 until the store. "
                 "Where it is large, compare with the formula step by step.",
        "bytes": f"Load the bias once for a tile of {TILE_ROWS} rows or more, [None, :], not once for every row.",
        "out_of_bounds": "The last tile reaches past the last row and the last column: x and y need a mask of two "
                         "parts, row numbers [:, None] below rows & column numbers [None, :] below cols. The load of "
                         "the bias needs one too: column numbers below cols.",
        "dtype": "y has the dtype of x.",
        "nan": "For |z| beyond about 10 an exponential overflows. tanh written as (e - 1) / (e + 1) then becomes inf / inf; "
               "z / (1 + exp(-2u)), or z * tl.sigmoid(2u), does not. Or memory was read that nothing wrote.",
    },
    speed=Speed(points=1, share=0.8, bytes=16384 * 8192 * 4 + 8192 * 4, shape="16384 x 8192 bf16",
                make=lambda: {"x": RandomTensor((16384, 8192), "bf16"), "bias": RandomTensor((8192, ), "fp32", 0, 0.5),
                              "_dtype": "bf16"}),
)


# ---------------------------------------------------------------- 04.4 SwiGLU, forward and backward

ALPHA = 1.702


def _sigmoid(z):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-z))


def _halves(gate_up):
    return gate_up[:, 0::2], gate_up[:, 1::2]


def _woven(gate, up):
    return np.stack([gate, up], axis=2).reshape(len(gate), -1)


def swiglu(gate_up, _dtype):
    """gate sigmoid(alpha gate) (up + 1)."""
    gate, up = _halves(gate_up)
    return [Expected("y", gate * _sigmoid(ALPHA * gate) * (up + 1), _dtype)]


def _gradients(dy, gate_up):
    gate, up = _halves(gate_up)
    s = _sigmoid(ALPHA * gate)
    return dy * (up + 1) * (s + ALPHA * gate * s * (1 - s)), dy * gate * s


def swiglu_backward(dy, gate_up, _dtype):
    """The gradient, woven like gate_up."""
    return [Expected("dgate_up", _woven(*_gradients(dy, gate_up)), _dtype)]


def _gated(rows, inter, dtype, std=1.0, backward=False):

    def make(rng):
        values = rng.normal(0, std, (rows, 2 * inter))
        values = np.abs(values) if inter == 1 else values  # a sum that cancels weighs too much where it is the whole row
        made = {"gate_up": tensor(values, dtype), "_dtype": dtype}
        return {"dy": tensor(rng.normal(0, 1, (rows, inter)), dtype), **made} if backward else made

    return make


def _forward_as(f):
    return lambda gate_up, _dtype: [[Expected("y", f(*_halves(gate_up)), _dtype)]]


def _backward_as(*results):
    def guesses(dy, gate_up, _dtype):
        gate, up = _halves(gate_up)
        return [[Expected("dgate_up", _woven(*f(dy, gate, up, _sigmoid(ALPHA * gate))), _dtype)] for f in results]

    return guesses


def _first_and_second_half(gate_up):
    inter = gate_up.shape[1] // 2
    return gate_up[:, :inter], gate_up[:, inter:]


def _contiguous_halves(gate_up, _dtype):
    gate, up = _first_and_second_half(gate_up)
    return [[Expected("y", gate * _sigmoid(ALPHA * gate) * (up + 1), _dtype)]]


def _packed_as_halves(dy, gate_up, _dtype):
    """Read woven and written as halves; read as halves and written as halves, or woven."""
    of_halves = _gradients(dy, _woven(*_first_and_second_half(gate_up)))
    return [[Expected("dgate_up", each, _dtype)] for each in (
        np.concatenate(_gradients(dy, gate_up), axis=1), np.concatenate(of_halves, axis=1), _woven(*of_halves))]


def _sigmoid_rounded(gate_up, _dtype):
    gate, up = _halves(gate_up)
    return [[Expected("y", gate * rounded(_sigmoid(ALPHA * gate), _dtype) * (up + 1), _dtype)]]


def _sigmoid_rounded_backward(dy, gate_up, _dtype):
    gate, up = _halves(gate_up)
    s = rounded(_sigmoid(ALPHA * gate), _dtype)
    return [[Expected("dgate_up", _woven(dy * (up + 1) * (s + ALPHA * gate * s * (1 - s)), dy * gate * s), _dtype)]]


def _sigmoid_between(rng):
    """Gates whose sigmoid lies near the middle between two bf16 numbers: rounded, it loses most."""
    gate = rounded(rng.normal(0, 2, 200_000), "bf16")
    fraction, _ = np.frexp(_sigmoid(ALPHA * gate))  # 0.5 to 1: bf16 numbers are 2^-8 apart there
    steps = fraction * 2**8
    gate = gate[(np.abs(steps - np.floor(steps) - 0.5) < 0.15) & (fraction < 0.6)][:900].reshape(3, 300)
    return {"gate_up": tensor(_woven(gate, rng.choice([-3.0, 1.0, 3.0], gate.shape)), "bf16"), "_dtype": "bf16"}


def _steady_gates(rng):
    """Gates near -0.75, where the gate's gradient is a small difference: a rounded sigmoid spoils it."""
    gate = -0.7511 + rng.uniform(-0.02, 0.02, (3, 300))
    return {"dy": tensor(rng.normal(0, 1, gate.shape), "bf16"),
            "gate_up": tensor(_woven(gate, rng.normal(200, 20, gate.shape)), "bf16"), "_dtype": "bf16"}


def _gated_bytes(gate_up, _dtype, dy=None):
    if dy is None:
        return {"gate_up": gate_up.nbytes, "returned 0": gate_up.nbytes // 2}
    return {"dy": dy.nbytes, "gate_up": gate_up.nbytes, "returned 0": gate_up.nbytes}


FORMS = (("4 x 256 fp32", (4, 256, "fp32")), ("3 x 500 bf16, ragged", (3, 500, "bf16")), ("5 x 1 fp32, one column",
                                                                                      (5, 1, "fp32")),
         ("2 x 513 fp16, one more than a power of two", (2, 513, "fp16")), ("2 x 300 fp32, large values",
                                                                           (2, 300, "fp32", 40.0)))
SWIGLU = Task(
    id="04.4", title="SwiGLU, forward and backward", points=5, functions=("swiglu", "swiglu_backward"), kernel=True,
    oracle={"swiglu": swiglu, "swiglu_backward": swiglu_backward},
    cases=(*(Case(f"swiglu, {name}", _gated(*form), "swiglu") for name, form in FORMS),
           *(Case(f"swiglu_backward, {name}", _gated(*form, backward=True), "swiglu_backward") for name, form in FORMS),
           Case("swiglu, 3 x 300 bf16, sigmoids between two bf16 numbers", _sigmoid_between, "swiglu",
                hint="A sigmoid rounded to 16 bits loses most here: keep it in fp32, and round what is stored, once."),
           Case("swiglu_backward, 3 x 300 bf16, gates near -0.75, where their gradient changes its sign", _steady_gates,
                "swiglu_backward")),
    suspects=(
        Suspect("gate and up were taken as the two halves of a row, and they alternate", {
            "swiglu": _contiguous_halves, "swiglu_backward": _packed_as_halves},
            "Columns 0, 2, 4, ... are the gate, columns 1, 3, 5, ... are up: 2 * columns and 2 * columns + 1."),
        Suspect("gate and up are exchanged", {
            "swiglu": _forward_as(lambda gate, up: up * _sigmoid(ALPHA * up) * (gate + 1)),
            "swiglu_backward": _backward_as(lambda dy, gate, up, s: _gradients(dy, _woven(up, gate))[::-1],
                                            lambda dy, gate, up, s: _gradients(dy, _woven(gate, up))[::-1])},
            "Even columns are the gate and its gradient, odd columns are up and its gradient."),
        Suspect("up stands where up + 1 belongs", {
            "swiglu": _forward_as(lambda gate, up: gate * _sigmoid(ALPHA * gate) * up),
            "swiglu_backward": _backward_as(lambda dy, gate, up, s: (
                dy * up * (s + ALPHA * gate * s * (1 - s)), dy * gate * s))}, "This variant multiplies by (up + 1)."),
        Suspect("alpha was left out of the sigmoid", {
            "swiglu": _forward_as(lambda gate, up: gate * _sigmoid(gate) * (up + 1)),
            "swiglu_backward": _backward_as(lambda dy, gate, up, s: (
                dy * (up + 1) * (_sigmoid(gate) + gate * _sigmoid(gate) * (1 - _sigmoid(gate))), dy * gate * _sigmoid(gate)))},
            "sigmoid(1.702 * gate)."),
        Suspect("the derivative of the sigmoid lacks its factor alpha", {
            "swiglu_backward": _backward_as(lambda dy, gate, up, s: (dy * (up + 1) * (s + gate * s * (1 - s)), dy * gate * s))},
            "The chain rule: the derivative of sigmoid(alpha g) is alpha s (1 - s)."),
        Suspect("the gate's gradient lacks the product rule's second term", {
            "swiglu_backward": _backward_as(lambda dy, gate, up, s: (dy * (up + 1) * s, dy * gate * s),
                                            lambda dy, gate, up, s: (dy * (up + 1) * ALPHA * gate * s * (1 - s),
                                                                     dy * gate * s))},
            "gate stands twice in gate * sigmoid(alpha * gate): both factors have a derivative."),
        Suspect("the sigmoid was rounded to 16 bits", {
            "swiglu": _sigmoid_rounded, "swiglu_backward": _sigmoid_rounded_backward},
            "It is an intermediate result: keep it in fp32, and round what is stored, once."),
        Suspect("the incoming gradient was left out", {
            "swiglu_backward": _backward_as(lambda dy, gate, up, s: _gradients(np.ones_like(dy), _woven(gate, up)))},
            "Multiply both gradients by dy."),
    ),
    minimum_bytes=_gated_bytes,
    hints={
        "bytes": "Forward: gate_up read once, y written. Backward: dy and gate_up read once, dgate_up written; the sigmoid "
                 "is computed again, not stored.",
        "nan": "exp(-alpha * gate) may overflow to infinity, and 1 / (1 + inf) is 0, which is right; inf / inf is not. "
               "Write the sigmoid as 1 / (1 + exp(-z)), or use tl.sigmoid.",
        "dtype": "Results have the dtype of gate_up.",
        "out_of_bounds": "The last program's elements reach past the end: with i = program * BLOCK + arange and `size` elements "
                         "in y, mask what belongs to y or dy with `i < size`, and a load of neighbouring pairs with "
                         "`pair < 2 * size`.",
        "exception": "If it expected fp32: tl.sigmoid and tl.exp take fp32 only, so convert with .to(tl.float32) right after "
                     "the load.",
        "compile": "If it expected fp32: tl.sigmoid and tl.exp take fp32 only, so convert with .to(tl.float32) right after "
                   "the load.",
    },
    speed=Speed(points=1, share=0.7, bytes=8192 * 8192 * 6, shape="8192 x 8192 bf16",
                make=lambda: {"gate_up": RandomTensor((8192, 2 * 8192), "bf16"), "_dtype": "bf16"}),
)


# ---------------------------------------------------------------- 04.5 fuse or not

H200 = {"bandwidth": 4.8e12, "vector": 66.9e12, "matrix": 989.4e12, "launch": 5e-6}
WORTH = 0.05


def _busy(kernel, gpu, longest=max):
    return longest(kernel["bytes"] / gpu["bandwidth"], kernel["flops"] / (kernel["efficiency"] * gpu[kernel["unit"]]))


def _time(kernels, gpu, host=True, longest=max):
    """Seconds of a list of kernels, one after the other."""
    return max(sum(_busy(kernel, gpu, longest) for kernel in kernels), len(kernels) * gpu["launch"] if host else 0)


def _decided(before, after):
    return [Expected("decision", "fuse" if before - after >= WORTH * before else "leave"),
            Expected("saved", float(before - after))]


def _with_saved(fused, needed):
    """The fused kernels, the first of which also writes what the backward needs."""
    return [{**fused[0], "bytes": fused[0]["bytes"] + needed}, *fused[1:]]


def decide(unfused, fused, needed_by_backward, gpu):
    """('fuse' or 'leave', seconds saved)."""
    return _decided(_time(unfused, gpu), _time(_with_saved(fused, needed_by_backward), gpu))


def _kernel(nbytes, flops=0, unit="vector", efficiency=1.0):
    return {"bytes": int(nbytes), "flops": int(flops), "unit": unit, "efficiency": efficiency}


def _case(unfused, fused, needed=0):
    return {"unfused": unfused, "fused": fused, "needed_by_backward": int(needed), "gpu": H200}


def _large_chain(rng):
    """Six pointwise ops on a large tensor."""
    full, n = 2 * between(rng, 10**8, 3 * 10**8), 6
    return _case([_kernel(2 * full, full) for _ in range(n)], [_kernel(2 * full, n * full)])


def _decode_chain(rng):
    """The same on one token: launches decide."""
    full, n = 2 * between(rng, 4_000, 8_000), between(rng, 4, 7)
    return _case([_kernel(2 * full, full) for _ in range(n)], [_kernel(2 * full, n * full)])


def _epilogue(rng):
    """Bias + GELU into a product whose K is short."""
    m, n, k = between(rng, 8_000, 16_000), between(rng, 8_000, 16_000), between(rng, 500, 1_000)
    product, full = 2 * (m * k + k * n + m * n), 2 * m * n
    return _case([_kernel(product, 2 * m * n * k, "matrix", 0.7), _kernel(2 * full, 8 * m * n)],
                 [_kernel(product, 2 * m * n * k, "matrix", 0.65)])


def _spilling(rng):
    """An epilogue that spills and slows a long product down by more than the pass it saves."""
    m, n, k = between(rng, 4_000, 8_000), between(rng, 4_000, 8_000), between(rng, 12_000, 16_000)
    product, full = 2 * (m * k + k * n + m * n), 2 * m * n
    return _case([_kernel(product, 2 * m * n * k, "matrix", 0.7), _kernel(2 * full, 8 * m * n)],
                 [_kernel(product, 2 * m * n * k, "matrix", 0.6)])


def _recomputed(rng):
    """A norm drawn into the product behind it: every column block of programs does it again."""
    m, n, k = between(rng, 8_000, 16_000), between(rng, 10_000, 14_000), between(rng, 4_000, 8_000)
    x, product = 2 * m * k, 2 * (m * k + k * n + m * n)
    blocks = n // 128
    return _case([_kernel(2 * x, 4 * m * k), _kernel(product, 2 * m * n * k, "matrix", 0.7)],
                 [_kernel(product + (blocks - 1) * x, 2 * m * n * k, "matrix", 0.7)])


def _for_backward(rng):
    """A chain of two ops whose intermediate the backward reads."""
    full = 2 * between(rng, 10**8, 3 * 10**8)
    return _case([_kernel(2 * full, full), _kernel(2 * full, full)], [_kernel(2 * full, 2 * full)], full)


def _gain(share):
    """Two pointwise ops of which fusing saves this share of the time."""
    def make(rng):
        full = 2 * between(rng, 10**8, 3 * 10**8)
        return _case([_kernel(full, full), _kernel(full, full)], [_kernel(2 * full * (1 - share), 2 * full)])

    return make


def _hidden_write(rng):
    """A product that computes for long enough to hide what it writes for the backward, and busy pointwise ops behind it."""
    m, n, k = between(rng, 8_000, 12_000), between(rng, 8_000, 12_000), between(rng, 4_000, 6_000)
    product, full = 2 * (m * k + k * n + m * n), 2 * m * n
    return _case([_kernel(product, 2 * m * n * k, "matrix", 0.7), *[_kernel(2 * full, 20 * m * n) for _ in range(3)]],
                 [_kernel(product, 2 * m * n * k, "matrix", 0.7), _kernel(2 * full, 60 * m * n)], full)


def _short_and_long(rng):
    """Kernels shorter than a launch beside one that is longer: the host is ahead, and a short one costs its own time."""
    full, small = 2 * between(rng, 10**8, 2 * 10**8), 2 * between(rng, 10**6, 2 * 10**6)
    short = _kernel(2 * small, 4 * small)
    return _case([_kernel(2 * full, full), short, _kernel(2 * full, full), short], [_kernel(2 * full, 2 * full), short],
                 small)


def _decode_for_backward(rng):
    """One token, and an intermediate that the backward reads: launches hide both."""
    full, n = 2 * between(rng, 4_000, 8_000), between(rng, 4, 7)
    return _case([_kernel(2 * full, full) for _ in range(n)], [_kernel(2 * full, n * full)], (n - 1) * full)


def _nothing_left(rng):
    """Two ops of many inputs each, where the intermediate is little beside what has to be read anyway."""
    full = 2 * between(rng, 10**8, 3 * 10**8)
    return _case([_kernel(2.02 * full, full), _kernel(4.02 * full, full)], [_kernel(6 * full, 2 * full)])


def _decision_as(*decisions):
    return lambda **given: [_decided(*decision(**given)) for decision in decisions]


def _turned(**given):
    word, saved = decide(**given)
    return [[Expected("decision", {"fuse": "leave", "leave": "fuse"}[word.values]), saved]]


def _threshold(**given):
    """Another share of the unfused time, or 5% of the fused."""
    saved = decide(**given)[1]
    before = _time(given["unfused"], given["gpu"])
    return [[Expected("decision", "fuse" if saved.values >= worth else "leave"), saved]
            for worth in (0.03 * before, 0.1 * before, WORTH * (before - saved.values))]


def _written_by(place):
    """What the backward needs, added to the last fused kernel, to every one, or behind the max of the first."""
    def decision(unfused, fused, needed_by_backward, gpu):
        if place == "behind":
            busy = sum(_busy(kernel, gpu) for kernel in fused) + needed_by_backward / gpu["bandwidth"]
            return _time(unfused, gpu), max(busy, len(fused) * gpu["launch"])
        if place == "at the end":
            return _time(unfused, gpu), _time(fused, gpu) + needed_by_backward / gpu["bandwidth"]
        more = [{**kernel, "bytes": kernel["bytes"] + needed_by_backward * (place == "every" or kernel is fused[-1])}
                for kernel in fused]
        return _time(unfused, gpu), _time(more, gpu)

    return decision


def _other_value(change):
    """The right word with another number, or the word that this number leads to."""
    def guesses(**given):
        word, saved = decide(**given)
        before = _time(given["unfused"], given["gpu"])
        other = float(change(saved.values, before))
        return [[Expected("decision", said), Expected("saved", other)]
                for said in (word.values, "fuse" if other >= WORTH * before else "leave")]

    return guesses


def _launch_each(unfused, fused, needed_by_backward, gpu):
    return tuple(sum(max(gpu["launch"], _busy(kernel, gpu)) for kernel in kernels)
                 for kernels in (unfused, _with_saved(fused, needed_by_backward)))


def _by_bytes(unfused, fused, needed_by_backward, gpu):
    return tuple(_time([{**kernel, "flops": 0} for kernel in kernels], gpu)
                 for kernels in (unfused, _with_saved(fused, needed_by_backward)))


DECIDE = Task(
    id="04.5", title="Fuse or not", points=4, functions=("decide", ), oracle=decide,
    cases=(
        Case("six pointwise ops, a large tensor", _large_chain),
        Case("pointwise ops, one token", _decode_chain),
        Case("bias and GELU into a product with a short K", _epilogue),
        Case("an epilogue that slows a product with a long K", _spilling),
        Case("a norm drawn into the product behind it", _recomputed),
        Case("an intermediate that the backward needs", _for_backward),
        Case("an intermediate that is little beside the rest", _nothing_left),
        Case("kernels shorter and longer than a launch", _short_and_long),
        Case("a product that hides what it writes for the backward", _hidden_write),
        Case("one token, and the backward needs the intermediates", _decode_for_backward),
        *(Case(f"fusing saves {100 * share:g}%", _gain(share)) for share in (0.04, 0.049, 0.051, 0.06)),
    ),
    suspects=(  # first those with the right time and another word, which every other guess would explain too
        Suspect("any gain was taken for worth it, however small", lambda **given: [
            [Expected("decision", "fuse" if decide(**given)[1].values > 0 else "leave"), decide(**given)[1]]],
            "Less than 5% of the unfused time is not worth a kernel of one's own here."),
        Suspect("the word follows another threshold, though the time saved is right", _threshold,
                "The time saved is compared with 5% of the unfused time."),
        Suspect("the decision is turned over, though the time saved is right", _turned,
                "'fuse' where at least 5% of the unfused time is saved, 'leave' otherwise, also where fusing costs time."),
        Suspect("what the backward needs was left out", _decision_as(
            lambda unfused, fused, needed_by_backward, gpu: (_time(unfused, gpu), _time(fused, gpu))),
            "The first fused kernel writes needed_by_backward too: add it to its bytes."),
        Suspect("what the backward needs was added to the last fused kernel", _decision_as(_written_by("last")),
                "The first fused kernel writes it."),
        Suspect("what the backward needs was added to every fused kernel", _decision_as(_written_by("every")),
                "The first fused kernel writes it, and no other."),
        Suspect("the time of what the backward needs was added to a finished time", _decision_as(
            _written_by("behind"), _written_by("at the end")),
            "Add the bytes to the first kernel's, before the longer of memory and compute is taken: a kernel writes while it "
            "computes."),
        Suspect("each kernel was given at least the time of a launch", _decision_as(_launch_each),
                "The host launches ahead: compare all launches of a list with the sum of its kernels, once, and not kernel by "
                "kernel."),
        Suspect("launches were left out", _decision_as(
            lambda unfused, fused, needed_by_backward, gpu: (
                _time(unfused, gpu, host=False), _time(_with_saved(fused, needed_by_backward), gpu, host=False))),
            "The host needs gpu['launch'] per kernel: where that takes longer than all the kernels, it is the time."),
        Suspect("launches were added to the kernels' time", _decision_as(
            lambda unfused, fused, needed_by_backward, gpu: tuple(
                _time(kernels, gpu, host=False) + len(kernels) * gpu["launch"]
                for kernels in (unfused, _with_saved(fused, needed_by_backward)))),
            "The host launches ahead while the GPU works: the longer of the two counts, not their sum."),
        Suspect("only bytes were compared", _decision_as(_by_bytes),
                "A matrix product takes the longer of bytes / bandwidth and FLOPs / (efficiency * peak)."),
        Suspect("efficiency was left out", _decision_as(
            lambda unfused, fused, needed_by_backward, gpu: tuple(
                _time([{**k, "efficiency": 1.0} for k in kernels], gpu)
                for kernels in (unfused, _with_saved(fused, needed_by_backward)))),
            "A kernel computes at efficiency * gpu[unit], and a spilling epilogue lowers it."),
        Suspect("bytes and FLOPs of a kernel were added as times", _decision_as(
            lambda unfused, fused, needed_by_backward, gpu: tuple(
                _time(kernels, gpu, longest=lambda memory, compute: memory + compute)
                for kernels in (unfused, _with_saved(fused, needed_by_backward)))),
            "A kernel loads while it computes: the longer of the two times counts."),
        Suspect("microseconds came back", _other_value(lambda saved, before: saved * 1e6), "The time saved is in seconds."),
        Suspect("the share of the time came back, not the time", _other_value(lambda saved, before: saved / before),
                "Return seconds; the share only decides the word."),
        Suspect("the time saved has the wrong sign", _other_value(lambda saved, before: -saved),
                "Unfused minus fused: positive where fusing saves time."),
        Suspect("a loss came back as 0", _other_value(lambda saved, before: max(saved, 0.0)),
                "Where fusing costs time, the time saved is negative: do not cut it off."),
        Suspect("the time after fusion came back, not the time saved", lambda **given: [
            [decide(**given)[0], Expected("saved", float(_time(_with_saved(
                given["fused"], given["needed_by_backward"]), given["gpu"])))]],
            "Return the unfused time minus the fused time; it is negative where fusing costs time."),
    ),
    hints={"wrong": "Take the case apart: the time of each kernel alone, then of each list, then their difference. Which of "
                    "the two can hide behind the other, and whose bytes grow by needed_by_backward?",
           "type": "Return ('fuse' or 'leave', seconds saved as a float)."},
    success="every decision, each with the time it saves or costs",
)

TASKS = (COUNT, CHAIN, BIAS_GELU, SWIGLU, DECIDE)
