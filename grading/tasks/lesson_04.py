"""Exercise 04: Llama 3 8B's layer counted, a chain fused, bias + GELU in tiles, SwiGLU both ways, and decisions."""

from functools import partial

import numpy as np

from grading.tasks import Case, Mistake, RandomTensor, Speed, Task, ceil, returns, rounded, tensor
from grading.tasks.properties import MANY, row_cases

EXERCISE = "04_fusion"


def whole(rng, low, high) -> int:
    """A whole number from low to high."""
    return int(rng.integers(low, high + 1))


# ---------------------------------------------------------------- 04.1 Llama 3 8B's layer


@returns("bytes")
def norm_bytes(tokens, hidden, *, width=4, casts=True, per_row=6, weights=1):
    """The eight operations of a norm. width: bytes per element between the two casts."""
    square, mean, scaled, weighted = 2 * width, width, 2 * width, 2 + 2
    per_element = 2 * (2 + width) * casts + square + mean + scaled + weighted
    return tokens * (hidden * per_element + 4 * per_row) + weights * 2 * hidden


@returns("bytes")
def layer_bytes(tokens, hidden, inter):
    """Two norms, two residual additions, silu and the multiplication by up."""
    return 2 * norm_bytes(tokens, hidden) + 2 * 6 * tokens * hidden + (4 + 6) * tokens * inter


@returns("bytes")
def fused_bytes(tokens, hidden, inter, *, tensors=4, weights=1):
    """Each addition fused with its norm, and SwiGLU. tensors: those that such a pair reads or writes."""
    return 2 * (tensors * 2 * tokens * hidden + weights * 2 * hidden) + 3 * 2 * tokens * inter


@returns("microseconds")
def saved_microseconds(tokens, hidden, inter, layers, bandwidth):
    """The time that fusion saves in all layers."""
    saved = layers * (layer_bytes(tokens, hidden, inter) - fused_bytes(tokens, hidden, inter))
    return saved / (bandwidth * 1e12) * 1e6


#: {case: sizes of the model, GPU}; an empty one is drawn at random.
MODELS = {
    "Llama 3 8B, a prompt of 4,096 tokens": (4096, 4096, 14336, 32, 4.8),
    "Llama-2-7B, 4 x 2,048 tokens": (4 * 2048, 4096, 11008, 32, 3.35),
    "another model": (),
}


def model(count, name, rng):
    """The first arguments of a model and a GPU."""
    limits = {"tokens": (1, 9_000), "hidden": (1_000, 9_000), "inter": (1_000, 30_000), "layers": (2, 100)}
    drawn = {name: whole(rng, *ends) for name, ends in limits.items()}
    drawn["bandwidth"] = round(float(rng.uniform(0.3, 8)), 2)
    return dict(list((drawn | dict(zip(drawn, MODELS[name]))).items())[:count])


ARGUMENTS = {norm_bytes: 2, layer_bytes: 3, fused_bytes: 3, saved_microseconds: 5}
COUNT = Task(
    id="04.1",
    title="Llama 3 8B's layer, counted",
    points=4,
    functions={function.__name__: function for function in ARGUMENTS},
    cases=tuple(
        Case(f"{function.__name__}, {name}", partial(model, count, name), function.__name__)
        for function, count in ARGUMENTS.items()
        for name in MODELS
    ),
    mistakes=(
        Mistake(
            "the norm was not counted with its casts and the fp32 tensors between them",
            "Each cast is an operation of its own, and between the two every element has 4 bytes.",
            *({"width": 2, "casts": casts, "per_row": rows} for casts in (True, False) for rows in (6, 3, 0)),
            {"casts": False},
        ),
        Mistake(
            "a small tensor was left out",
            "Every norm reads its weight once, and the eight separate operations also move six fp32 numbers per row.",
            *({"per_row": 0}, {"weights": 0}, {"per_row": 0, "weights": 0}),
        ),
        Mistake(
            "the fused addition and norm was not counted as two reads and two writes",
            "It reads x and the residual, and writes the new residual and y. The norm takes the sum from registers.",
            *({"tensors": tensors} for tensors in (3, 5)),
        ),
    ),
    hints={
        "values": "One line per operation: bytes per element, per row, and the weight. Then divide by the bandwidth.",
        "form": "Bytes are an int, microseconds a float.",
    },
)

# ---------------------------------------------------------------- 04.2 fuse a chain


@returns(y="x")
def fused_chain(x, scale, shift, limit, *, dtypes=None, rounding=(), limited="last", relu=True, power=2, columns=...):
    """relu(scale x + shift)^2, at most `limit`. rounding: what is rounded to the dtype of x."""

    def cast(name, values):
        return rounded(values, dtypes["x"]) if name in rounding else values

    scale, shift = cast("scale", scale[columns]), cast("shift", shift[columns])
    z = cast("sum", cast("product", scale * x) + shift)
    z = np.maximum(z, 0) if relu else z
    z = np.minimum(z, limit) if limited == "early" else z
    square = cast("square", z**power)
    return np.minimum(square, limit) if limited == "last" else square


def chain_arguments(x, scale, shift, limit, dtype, row_stride=None):
    return {"x": tensor(x, dtype, row_stride), "scale": tensor(scale), "shift": tensor(shift), "limit": limit}


def chained(rows, cols, dtype, row_stride=None, std=1.0, limit=1.5):
    """x, scale and shift. In short rows scale * x and shift never cancel: fp32's rounding would be all that remains."""

    def make(rng):
        x, scale, shift = rng.normal(0, std, (rows, cols)), *rng.paired.normal([[1], [0]], [[0.3], [0.5]], (2, cols))
        if cols < 64:
            x = np.sign(x) * rng.uniform(1, 2, x.shape)
            scale, shift = np.clip(scale, 0.5, 1.5), np.clip(shift, -0.25, 0.25)
        return chain_arguments(x, scale, shift, limit, dtype, row_stride)

    return make


def summing(between, rng):
    """scale * x and shift nearly cancel; or their sum lies just below the middle between two bf16 numbers, where
    rounding before the square loses most."""
    scale, x = rounded(rng.normal(1, 0.3, 640), "fp32"), rounded(rng.normal(0 if between else 3, 1, 640), "bf16")
    total = 1 + (rng.integers(0, 16, 640) + 0.45) * 2.0**-7 if between else 0.05
    return chain_arguments(np.tile(x, (3, 1)), scale, total - scale * x, 4.0, "bf16")


def chain_bytes(x, scale, shift, limit):
    rows = x.shape[0]
    return {"x": x.nbytes, "scale": rows * scale.nbytes, "shift": rows * shift.nbytes, "returned 0": x.nbytes}


def timed(rows, **others):
    """Timed inputs: x, [rows, 8192] bf16, fp32 vectors of 8192 (name=(mean, std)), and plain numbers."""
    return lambda: {
        "x": RandomTensor((rows, 8192), "bf16"),
        **{n: RandomTensor((8192,), "fp32", *v) if isinstance(v, tuple) else v for n, v in others.items()},
    }


STEPS = ("scale", "shift", "product", "sum", "square")
CHAIN = Task(
    id="04.2",
    title="Fuse a chain",
    points=4,
    functions={"fused_chain": fused_chain},
    kernel=True,
    cases=(
        *row_cases(chained, one_more_than_a_power_of_two="fp16", padded_rows="fp16"),
        Case("2 x 300 fp16, squares beyond fp16's range before the limit", chained(2, 300, "fp16", None, 400.0, 240.0)),
        Case("3 x 640 bf16, scale * x and shift nearly cancel", partial(summing, False), same=True),
        Case("3 x 640 bf16, sums between two bf16 numbers", partial(summing, True), same=True),
    ),
    mistakes=(
        Mistake(
            "scale, shift or an intermediate result was rounded to 16 bits",
            "Convert x with `.to(tl.float32)` right after the load and round once, at the store.",
            *({"rounding": steps} for steps in (*((step,) for step in STEPS[:4]), STEPS[:2], STEPS[2:], STEPS)),
        ),
        Mistake(
            "the limit was not applied to the square", "Apply it last.", {"limited": "never"}, {"limited": "early"}
        ),
        Mistake("the square is missing", "Multiply the rectified value by itself.", power=1),
        Mistake("negative values were squared", "relu comes before the square: set them to 0 first.", relu=False),
        Mistake(
            "scale and shift of column 0 were used for every column", "Load them at the column numbers of x.", columns=0
        ),
    ),
    minimum_bytes=chain_bytes,
    hints={
        "traffic": "Use one kernel: load x once, store y once, and load scale and shift at most once per row.",
        "out_of_bounds": "Check the mask, `columns < cols`, and that tl.program_id follows the order of the grid.",
    },
    speed=Speed(1, 0.8, 8192 * 8192 * 4, "8192 x 8192 bf16", timed(8192, scale=(1, 0.3), shift=(0, 0.5), limit=4.0)),
)

# ---------------------------------------------------------------- 04.3 bias + GELU in tiles

TILE_ROWS = 16
ROOT = 0.7978845608028654  # sqrt(2 / pi)


@returns(y="x")
def bias_gelu(x, bias, *, dtypes=None, round_bias=False, round_sum=False, by_row=False, root=ROOT, doubled=True):
    """gelu(x + bias). doubled: 0.5 (1 + tanh(u)) is sigmoid(2u), not sigmoid(u)."""
    if by_row:
        bias = bias[np.arange(len(x)) % len(bias)][:, None]
    bias = rounded(bias, dtypes["x"]) if round_bias else bias
    z = rounded(x + bias, dtypes["x"]) if round_sum else x + bias
    u = root * (z + 0.044715 * z**3)
    return 0.5 * z * (1 + np.tanh(u if doubled else u / 2))


def biased(rows, cols, dtype, row_stride=None, std=1.0, mean=0.0, bias_std=0.5, bias_mean=0.0):
    """x and a bias. A single column is positive: GELU's negative tail is steep in relative terms."""

    def make(rng):
        x, bias = rng.normal(mean, std, (rows, cols)), rng.paired.normal(bias_mean, bias_std, cols)
        return {"x": tensor(np.abs(x) if cols == 1 else x, dtype, row_stride), "bias": tensor(bias, "fp32")}

    return make


def bias_bytes(x, bias):
    return {"x": x.nbytes, "bias": ceil(x.shape[0], TILE_ROWS) * bias.nbytes, "returned 0": x.nbytes}


OVERFLOW = "An exponential of a large number is infinite, and inf / inf is NaN: use tl.sigmoid, or 1 / (1 + exp(-z))."
BIAS_GELU = Task(
    id="04.3",
    title="Bias + GELU at minimum traffic",
    points=4,
    functions={"bias_gelu": bias_gelu},
    kernel=True,
    cases=(
        *row_cases(biased, one_more_than_a_power_of_two="fp16", padded_rows="bf16"),
        Case("19 x 129 fp16, ragged rows and columns", biased(19, 129, "fp16")),
        Case(f"{MANY * TILE_ROWS} x 48 fp32, more tiles of rows than SMs", biased(MANY * TILE_ROWS, 48, "fp32")),
        Case("16 x 300 fp32, large values", biased(16, 300, "fp32", None, 40.0), hint=OVERFLOW),
        Case("16 x 128 bf16, values near -4, where GELU is steep", biased(16, 128, "bf16", None, 0.1, -4, 0.1)),
        Case("16 x 160 bf16, x and bias nearly cancel", biased(16, 160, "bf16", None, 1.0, -64, 1.0, 64)),
        Case("64 x 520 bf16, several tiles each way", biased(64, 520, "bf16")),
    ),
    mistakes=(
        Mistake(
            "the bias or the sum x + bias was rounded to 16 bits",
            "Convert x to fp32 right after the load, add the fp32 bias, and round once, at the store.",
            {"round_bias": True},
            {"round_sum": True},
        ),
        Mistake("the bias was indexed by the row", "Load it at the tile's column numbers.", by_row=True),
        Mistake("sigmoid(u) was used instead of sigmoid(2u)", "(1 + tanh(u)) / 2 is sigmoid(2u).", doubled=False),
        Mistake("sqrt(2/pi) has too few digits", f"Write {ROOT}.", *({"root": round(ROOT, n)} for n in range(2, 6))),
    ),
    minimum_bytes=bias_bytes,
    hints={
        "traffic": f"Load x once, and the bias once per tile of {TILE_ROWS} rows or more, not once per row.",
        "out_of_bounds": "x and y need a mask for both rows and columns, the bias for columns; then check the index.",
    },
    speed=Speed(1, 0.8, 16384 * 8192 * 4 + 8192 * 4, "16384 x 8192 bf16", timed(16384, bias=(0, 0.5))),
)

# ---------------------------------------------------------------- 04.4 SwiGLU, forward and backward

ALPHA = 1.702


def split(gate_up, layout="pairs"):
    """Gate and up from rows of pairs."""
    if layout == "halves":
        return np.split(gate_up, 2, axis=1)
    gate, up = gate_up[:, 0::2], gate_up[:, 1::2]
    return (up, gate) if layout == "exchanged" else (gate, up)


def join(gate, up, layout="pairs"):
    """Rows of pairs from gate and up."""
    if layout == "halves":
        return np.hstack((gate, up))
    return np.stack((up, gate) if layout == "exchanged" else (gate, up), axis=2).reshape(len(gate), -1)


def sigmoid(gate):
    """The sigmoid of ALPHA times gate."""
    return 1 / (1 + np.exp(-ALPHA * gate))


@returns(y="gate_up")
def swiglu(gate_up, *, reads="pairs", one=1):
    """gate * sigmoid(1.702 gate) * (up + 1)."""
    gate, up = split(gate_up, reads)
    return gate * sigmoid(gate) * (up + one)


@returns(dgate_up="gate_up")
def swiglu_backward(dy, gate_up, *, reads="pairs", writes="pairs", one=1, slope="both terms"):
    """The gradient of swiglu, interleaved like gate_up. slope: the derivative of gate * sigmoid(1.702 gate)."""
    gate, up = split(gate_up, reads)
    first, second = sigmoid(gate), ALPHA * gate * sigmoid(gate) * (1 - sigmoid(gate))
    slopes = {"both terms": first + second, "first": first, "second": second, "no alpha": first + second / ALPHA}
    return join(dy * (up + one) * slopes[slope], dy * gate * sigmoid(gate), writes)


def gated(rows, inter, dtype, row_stride=None, std=1.0, backward=False):
    """gate_up, and dy for the backward. A single pair is positive, or a sum that cancels would be the whole row."""

    def make(rng):
        values, dy = rng.normal(0, std, (rows, 2 * inter)), rng.normal(0, 1, (rows, inter))
        gate_up = tensor(np.abs(values) if inter == 1 else values, dtype)
        return {"dy": tensor(dy, dtype), "gate_up": gate_up} if backward else {"gate_up": gate_up}

    return make


def sigmoid_between(rng):
    """Gates whose sigmoid lies near the middle between two bf16 numbers, where rounding it loses most."""
    gate = rounded(rng.normal(0, 2, 200_000), "bf16")
    fraction, _ = np.frexp(sigmoid(gate))  # 0.5 to 1: bf16 numbers are 2^-8 apart there
    steps = fraction * 2**8
    gate = gate[(np.abs(steps - np.floor(steps) - 0.5) < 0.15) & (fraction < 0.6)][:900].reshape(3, 300)
    return {"gate_up": tensor(join(gate, rng.choice([-3.0, 1.0, 3.0], gate.shape)), "bf16")}


def steady_gates(rng):
    """Gates near -0.75, where the gradient of the gate is a small difference: a rounded sigmoid spoils it."""
    gate = -0.7511 + rng.uniform(-0.02, 0.02, (3, 300))
    return {
        "dy": tensor(rng.normal(0, 1, gate.shape), "bf16"),
        "gate_up": tensor(join(gate, rng.normal(200, 20, gate.shape)), "bf16"),
    }


def gated_bytes(gate_up, dy=None):
    if dy is None:
        return {"gate_up": gate_up.nbytes, "returned 0": gate_up.nbytes // 2}
    return {"dy": dy.nbytes, "gate_up": gate_up.nbytes, "returned 0": gate_up.nbytes}


ROUNDED_SIGMOID = "A sigmoid rounded to 16 bits loses most here: keep it in fp32, and round once, at the store."
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
                Case(f"{name}, {MANY} x 1025 fp16, more tiles than SMs", make(MANY, 1025, "fp16"), name),
                Case(f"{name}, 2 x 300 fp32, large values", make(2, 300, "fp32", std=40.0), name, OVERFLOW),
            )
        ),
        Case("swiglu, 3 x 300 bf16, sigmoids between two bf16 numbers", sigmoid_between, "swiglu", ROUNDED_SIGMOID),
        Case("swiglu_backward, 3 x 300 bf16, gates near -0.75", steady_gates, "swiglu_backward", ROUNDED_SIGMOID),
    ),
    mistakes=(
        Mistake(
            "gate and up, or their gradients, are not where the task has them",
            "Column 2c is gate c and column 2c + 1 is up c, in gate_up and in dgate_up.",
            *({flag: layout} for flag in ("reads", "writes") for layout in ("halves", "exchanged")),
            *({"reads": layout, "writes": layout} for layout in ("halves", "exchanged")),
        ),
        Mistake("the factor was up instead of up + 1", "This variant of SwiGLU multiplies by (up + 1).", one=0),
        Mistake(
            "the gradient of the gate is incomplete",
            "Use the product rule for gate * sigmoid(alpha * gate). The derivative of the sigmoid has a factor alpha.",
            *({"slope": slope} for slope in ("first", "second", "no alpha")),
        ),
    ),
    minimum_bytes=gated_bytes,
    hints={
        "traffic": "Forward: read gate_up, write y. Backward: read dy and gate_up, write dgate_up. Each once.",
        "out_of_bounds": "gate_up has twice as many elements as y: mask each index by the size of its own tensor.",
    },
    speed=Speed(1, 0.7, 8192 * 8192 * 6, "8192 x 8192 bf16", lambda: {"gate_up": RandomTensor((8192, 16384), "bf16")}),
)

# ---------------------------------------------------------------- 04.5 fuse or not


def seconds(gpu, kernels, more=0, writer="first", launches="longer", busy="longer"):
    """The time of a list of kernels, of which the first writes `more` bytes in addition."""
    total = 0
    for place, kernel in enumerate(kernels):
        writes = {"first": place == 0, "last": place == len(kernels) - 1, "every": True}.get(writer, False)
        memory = (kernel["bytes"] + more * writes) / gpu["bandwidth"]
        compute = kernel["flops"] / gpu[kernel["unit"]] / (1 if busy == "full peak" else kernel["efficiency"])
        time = {"memory": memory, "sum": memory + compute}.get(busy, max(memory, compute))
        total += max(time, gpu["launch"] if launches == "per kernel" else 0)
    launch = len(kernels) * gpu["launch"]
    return {"ignored": total, "sum": total + launch}.get(launches, max(total, launch))


@returns("decision", "saved")
def decide(
    unfused, fused, needed_by_backward, gpu, *, threshold=0.05, writer="first", launches="longer", busy="longer"
):
    """Whether to fuse, and the seconds that it saves."""
    before = seconds(gpu, unfused, 0, writer, launches, busy)
    saved = before - seconds(gpu, fused, needed_by_backward, writer, launches, busy)
    return "fuse" if saved >= threshold * before else "leave", saved


H200 = {"bandwidth": 4.8e12, "vector": 66.9e12, "matrix": 989.4e12, "launch": 5e-6}
FULL, TOKEN = (10**8, 3 * 10**8), (4_000, 8_000)  # elements of a large tensor and of one token's, from and to
LARGE, LONG = (8_000, 16_000), (12_000, 16_000)  # sides of a matmul


def kernel(nbytes, flops=0, unit="vector", efficiency=1.0):
    return {"bytes": int(nbytes), "flops": int(flops), "unit": unit, "efficiency": efficiency}


def matmul(m, n, k, efficiency=0.7, more=0):
    return kernel(2 * (m * k + k * n + m * n) + more, 2 * m * n * k, "matrix", efficiency)


def lists(unfused, fused, needed=0):
    return {"unfused": unfused, "fused": fused, "needed_by_backward": int(needed), "gpu": H200}


def pointwise(rng, size, ops, needed=False):
    """Pointwise ops (from and to so many) whose intermediate results the backward may need."""
    full, n = 2 * whole(rng, *size), whole(rng, *ops)
    return lists([kernel(2 * full, full) for _ in range(n)], [kernel(2 * full, n * full)], needed * (n - 1) * full)


def close_call(share, rng):
    """Two pointwise ops, and one kernel that takes so many percent less."""
    full = 2 * whole(rng, *FULL)
    return lists([kernel(full, full), kernel(full, full)], [kernel((2 - share / 50) * full, 2 * full)])


def epilogue(rng, size, depth, efficiency):
    """Bias + GELU fused into a matmul, which then computes at another efficiency."""
    m, n, k = whole(rng, *size), whole(rng, *size), whole(rng, *depth)
    return lists([matmul(m, n, k), kernel(4 * m * n, 8 * m * n)], [matmul(m, n, k, efficiency)])


def recomputed(rng):
    """A norm fused into the matmul that follows: every column block of programs repeats it."""
    m, n, k = whole(rng, 8_000, 16_000), whole(rng, 10_000, 14_000), whole(rng, 4_000, 8_000)
    return lists([kernel(4 * m * k, 4 * m * k), matmul(m, n, k)], [matmul(m, n, k, more=(n // 128 - 1) * 2 * m * k)])


def hidden_write(rng):
    """A compute-bound matmul that hides what it writes for the backward, and compute-bound pointwise ops after it."""
    m, n, k = whole(rng, 8_000, 12_000), whole(rng, 8_000, 12_000), whole(rng, 4_000, 6_000)
    pointwise_ops = [kernel(4 * m * n, 20 * m * n) for _ in range(3)]
    return lists([matmul(m, n, k), *pointwise_ops], [matmul(m, n, k), kernel(4 * m * n, 60 * m * n)], 2 * m * n)


def short_and_long(rng):
    """Kernels shorter than a launch beside longer ones: the host is ahead, and a short one costs its own time."""
    full, small = 2 * whole(rng, 10**8, 2 * 10**8), 2 * whole(rng, 10**6, 2 * 10**6)
    short, long = kernel(2 * small, 4 * small), kernel(2 * full, full)
    return lists([long, short, long, short], [kernel(2 * full, 2 * full), short], small)


DECIDE = Task(
    id="04.5",
    title="Fuse or not",
    points=4,
    functions={"decide": decide},
    cases=(
        Case("six pointwise ops, a large tensor", lambda rng: pointwise(rng, FULL, (6, 6))),
        Case("pointwise ops, one token", lambda rng: pointwise(rng, TOKEN, (4, 7))),
        Case("a norm fused into the matmul that follows", recomputed),
        Case("bias + GELU fused into a matmul with a short K", lambda rng: epilogue(rng, LARGE, (500, 1_000), 0.65)),
        Case("an epilogue that slows a matmul with a long K", lambda rng: epilogue(rng, TOKEN, LONG, 0.6)),
        Case("an intermediate result that the backward needs", lambda rng: pointwise(rng, FULL, (2, 2), True)),
        Case("kernels shorter and longer than a launch", short_and_long),
        Case("a matmul that hides what it writes for the backward", hidden_write),
        Case("one token, and the backward needs the intermediates", lambda rng: pointwise(rng, TOKEN, (4, 7), True)),
        *(Case(f"fusing saves {share}%", partial(close_call, share)) for share in (0.3, 4, 4.9, 5.1, 6)),
    ),
    mistakes=(  # the decision first: where the time is right, other mistakes would explain the word by chance
        Mistake(
            "the decision does not follow the threshold of 5%, though the time saved is right",
            "Decide 'fuse' if at least 5% of the unfused time is saved, and 'leave' otherwise.",
            *({"threshold": share} for share in (0, 0.03, 0.1)),
        ),
        Mistake(
            "needed_by_backward was not added to the bytes of the first fused kernel alone",
            "Add it to that kernel's bytes before you compare memory and compute time.",
            *({"writer": writer} for writer in ("none", "last", "every")),
        ),
        Mistake(
            "launches were not compared once with the whole list",
            "Take the longer of the sum of the kernels' times and the number of launches times gpu['launch'].",
            *({"launches": way} for way in ("per kernel", "ignored", "sum")),
        ),
        Mistake(
            "the time of a kernel was not the longer of its memory time and its compute time",
            "A kernel takes the longer of bytes / bandwidth and flops / (efficiency * peak).",
            *({"busy": way} for way in ("memory", "sum", "full peak")),
        ),
    ),
    hints={
        "values": "Compute the time of each kernel of this case, then of each list, then their difference in seconds.",
        "form": "Return ('fuse' or 'leave', seconds saved as a float).",
        "passed": "every decision, each with the time it saves or costs",
    },
)

TASKS = (COUNT, CHAIN, BIAS_GELU, SWIGLU, DECIDE)
