"""Exercise 07: an epilogue's bytes, packed weights, a squared ReLU in an epilogue, SwiGLU with two accumulators."""

import numpy as np

from grading.tasks import TILE, Case, Mistake, RandomTensor, Speed, Task, ceil, one_of, returns, rounded, tensor
from grading.tasks.properties import PROGRAMS

EXERCISE = "07_epilogues"

# ---------------------------------------------------------------- 07.1 count


@returns("bytes")
def unfused_bytes(m, n, k, itemsize, bias, activation, residual, *, writes_only=False, bias_read=True):
    """The matmul, then one op each for bias, activation and residual, which reads and writes whole tensors."""
    y, passes = m * n, 0 if writes_only else 1
    after = bias * (passes + 1) * y + activation * (passes + 1) * y + residual * (2 * passes + 1) * y
    return (m * k + n * k + y + after + bias * bias_read * n) * itemsize


@returns("bytes")
def fused_bytes(m, n, k, itemsize, bias, activation, residual, *, free_residual=False, bias_read=True):
    """Each input read once, y written once."""
    return (m * k + n * k + m * n * (1 + (residual and not free_residual)) + bias * bias_read * n) * itemsize


@returns("bytes")
def swiglu_bytes(m, inter, k, itemsize, *, whole=False):
    """x, the weight of gate and up, and silu(gate) * up, [m, inter]; whole: gate and up are stored instead."""
    return (m * k + 2 * inter * k + m * inter * (1 + whole)) * itemsize


def drawn(*parts):
    """Sizes that all differ; parts: whether there are bias, activation and residual."""

    def make(rng):
        sizes = {"m": one_of(rng, 77, 512, 4096), "n": one_of(rng, 300, 1024, 6144), "k": one_of(rng, 90, 640, 2048)}
        sizes["itemsize"] = one_of(rng, 2, 4)
        return sizes | dict(zip(("bias", "activation", "residual"), parts))

    return make


def gated(rng):
    return {"m": one_of(rng, 33, 700), "inter": one_of(rng, 500, 1408), "k": one_of(rng, 96, 800), "itemsize": 2}


COUNT = Task(
    id="07.1",
    title="Count an epilogue's bytes",
    points=3,
    functions={of.__name__: of for of in (unfused_bytes, fused_bytes, swiglu_bytes)},
    cases=(
        *(
            Case(f"{of.__name__}, {words}", drawn(*parts), of.__name__)
            for of in (unfused_bytes, fused_bytes)
            for words, parts in {
                "bias, activation and residual": (True, True, True),
                "bias and activation": (True, True, False),
                "residual alone": (False, False, True),
                "nothing": (False, False, False),
            }.items()
        ),
        Case("swiglu_bytes, some sizes", gated, "swiglu_bytes"),
        Case("swiglu_bytes, other sizes", gated, "swiglu_bytes"),
    ),
    mistakes=(
        Mistake("only writes were counted", "An op reads its inputs, and then it writes.", writes_only=True),
        Mistake(
            "the residual was taken to be free", "The epilogue has to read it, m * n elements.", free_residual=True
        ),
        Mistake("the bias was not read", "A bias has n elements, and they are read once.", bias_read=False),
        Mistake("gate and up were stored", "The epilogue stores silu(gate) * up: inter columns, not 2.", whole=True),
    ),
    hints={
        "form": "Bytes are an int: booleans count as 0 and 1.",
        "values": "Write one line per op: which tensors it reads, and which one it writes.",
    },
)

# ---------------------------------------------------------------- 07.2 pack


@returns("q_end", "k_end", "rows")
def qkv_ends(heads, kv_heads, head_dim, *, mha=False, one_kv=False):
    """Where queries, keys and values end among the rows of the packed weight."""
    group = heads if mha else kv_heads
    q, kv = heads * head_dim, group * head_dim
    return q, q + kv, q + kv * (1 if one_kv else 2)


@returns(weight="gate")
def interleave(gate, up, *, order="pairs"):
    """Rows of gate and up in turns."""
    if order == "halves":
        return np.concatenate((gate, up))
    first, second = (up, gate) if order == "up first" else (gate, up)
    if order == "columns":
        return np.stack((first, second), 2).reshape(2 * len(gate), -1)
    return np.stack((first, second), 1).reshape(2 * len(gate), -1)


def heads_of(heads, kv_heads, head_dim):
    return lambda rng: {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}


def two_weights(rows, columns, dtype, row_stride=None):
    def make(rng):
        gate, up = rng.normal(0, 1, (2, rows, columns))
        return {"gate": tensor(gate, dtype, row_stride), "up": tensor(up, dtype)}

    return make


PACK = Task(
    id="07.2",
    title="Pack queries, keys and values; interleave gate and up",
    points=3,
    functions={"qkv_ends": qkv_ends, "interleave": interleave},
    cases=(
        Case("Llama 3 8B", heads_of(32, 8, 128), "qkv_ends"),
        Case("Llama 3 70B", heads_of(64, 8, 128), "qkv_ends"),
        Case("one KV head", heads_of(12, 1, 64), "qkv_ends"),
        Case("as many KV heads as heads", heads_of(16, 16, 80), "qkv_ends"),
        Case("3 x 4 fp32", two_weights(3, 4, "fp32"), "interleave"),
        Case("64 x 48 bf16", two_weights(64, 48, "bf16"), "interleave"),
        Case("1 x 7 fp16", two_weights(1, 7, "fp16"), "interleave"),
        Case("5 x 9 fp32, padded rows of gate", two_weights(5, 9, "fp32", 12), "interleave"),
    ),
    mistakes=(
        Mistake("keys got as many heads as queries", "Keys and values have kv_heads heads.", mha=True),
        Mistake("only keys or only values were packed", "Keys and values take kv_heads heads each.", one_kv=True),
        Mistake("the weights were concatenated", "Row 0 is gate's, row 1 is up's, row 2 is gate's.", order="halves"),
        Mistake("up comes first", "Even rows are gate's, odd rows are up's.", order="up first"),
        Mistake("columns were interleaved", "Outputs of a layer are rows of its weight.", order="columns"),
    ),
    hints={
        "form": "qkv_ends returns three ints, interleave a tensor [2 * N, K] of gate's dtype.",
        "values": "Write down the packed rows for 4 heads, 2 KV heads and head_dim 2.",
    },
)

# ---------------------------------------------------------------- 07.3 an epilogue


@returns(y="fp16")
def squared_relu_linear(x, weight, bias, scale, *, order="right", rounds=False, tile=0, power=2, relu=True):
    """scale * relu(x @ weight.T + bias)^2; rounds: the accumulator is rounded to fp16 first."""
    end = x.shape[1] // tile * tile if tile else x.shape[1]
    z = x[:, :end] @ weight[:, :end].T
    z = rounded(z, "fp16") if rounds else z
    if order == "bias last":
        return scale * np.maximum(z, 0) ** power + bias
    if order == "relu first":
        return scale * (np.maximum(z, 0) + bias) ** power
    if order == "scale first":
        return np.maximum(scale * z + bias, 0) ** power
    return scale * (np.maximum(z + bias, 0) if relu else z + bias) ** power


def layer(m, n, k, row_stride=None, cancel=False, signed=False):
    """Operands of one sign, so that results are no small differences; cancel: the bias takes nearly all of it away;
    signed: every second row of the weight is negative, and so are its biases, with some exceptions."""

    def make(rng):
        x, weight = rng.integers(1, 9, (m, k)) / 8, rng.integers(1, 9, (n, k)) / 8
        bias = rng.uniform(0.25, 1, n)
        if signed:
            sign = np.where(np.arange(n) % 2, -1, 1)
            weight, bias = weight * sign[:, None], bias * sign * np.where(np.arange(n) % 3, 1, -1)
        if cancel:
            base = np.full(k, 0.5)
            x = base + rng.integers(0, 5, (m, k)) / 64
            bias = -(weight @ base)
        return {
            "x": tensor(x, "fp16", row_stride),
            "weight": tensor(weight, "fp16"),
            "bias": tensor(bias, "fp32"),
            "scale": 0.25,
        }

    return make


def layer_requests(x, weight, bias, scale):
    """x once per 32 columns of y, the weight and the bias once per 32 rows, y once."""
    (m, k), n = x.shape, weight.shape[0]
    down = ceil(m, 32)
    return {"x": 2 * m * k * ceil(n, 32), "weight": 2 * n * k * down, "bias": 4 * n * down, "returned 0": 2 * m * n}


DECODED = (64, 14336, 4096)  # tokens, outputs, inputs: Llama 3 8B's up projection in a step of decoding
LATE = "Add the bias to the fp32 accumulator. Convert to fp16 once, at the store."
EPILOGUE = Task(
    id="07.3",
    title="Squared ReLU in the epilogue",
    points=4,
    functions={"squared_relu_linear": squared_relu_linear},
    kernel=True,
    cases=(
        Case("64 x 64 x 64", layer(64, 64, 64)),
        Case("128 x 96 x 32", layer(128, 96, 32)),
        Case("50 x 70 x 90", layer(50, 70, 90), hint="Mask rows by M, columns by N and steps by K."),
        Case("1 x 1 x 1", layer(1, 1, 1)),
        Case("33 x 40 x 65, padded rows of x", layer(33, 40, 65, 71), hint="Use x.stride(0)."),
        Case("40 x 48 x 128, the bias cancels", layer(40, 48, 128, cancel=True), hint=LATE),
        Case("32 x 64 x 32, sums of either sign", layer(32, 64, 32, signed=True)),
        Case(f"{64 * PROGRAMS} x 3 x 2", layer(64 * PROGRAMS, 3, 2)),
    ),
    mistakes=(
        Mistake(
            "the bias was added after the relu",
            "First the bias, then relu, then the square.",
            {"order": "bias last"},
            {"order": "relu first"},
        ),
        Mistake(
            "relu was left out or not squared",
            "The activation is relu(z) * relu(z): 0 where z = acc + bias is negative.",
            {"relu": False},
            {"power": 1},
        ),
        Mistake("the scale came before the activation", "Scale the square, not the sum.", order="scale first"),
        Mistake("the last, ragged step of K was left out", "Round the steps of K up and mask them.", tile=TILE),
        Mistake("the accumulator was rounded before the epilogue", LATE, rounds=True),
    ),
    minimum_bytes=layer_requests,
    max_tile=(64, 64),
    hints={
        "traffic": "One launch: y is stored once and never read, x and weight once per tile of up to 64 x 64. What a "
        "mask leaves out is not requested; an index that % M wraps around is requested again.",
        "values": "z = acc + bias, then relu, square, scale, all in fp32.",
        "unwritten": "Round rows and columns up to whole tiles.",
        "slow": "At 64 tokens the weight's bytes take the time: one tile of 64 rows, so that each is read once, wide "
        "steps of K, and num_stages=4, so that loads of later steps are in flight.",
    },
    speed=Speed(
        points=1,
        share=0.6,
        bytes=2 * (DECODED[1] * DECODED[2] + DECODED[0] * (DECODED[1] + DECODED[2])) + 4 * DECODED[1],
        shape=f"{DECODED[0]} x {DECODED[1]:,} x {DECODED[2]:,} fp16",
        make=lambda: {
            "x": RandomTensor((DECODED[0], DECODED[2]), "fp16"),
            "weight": RandomTensor(DECODED[1:], "fp16", std=1 / 64, whole=True),
            "bias": RandomTensor((DECODED[1],), "fp32", std=0.5),
            "scale": 0.25,
        },
    ),
)

# ---------------------------------------------------------------- 07.4 two accumulators


@returns(y="fp16")
def swiglu_linear(x, gate, up, *, swapped=False, both=False, tile=0, sigmoid=False):
    """silu(x @ gate.T) * (x @ up.T)."""
    end = x.shape[1] // tile * tile if tile else x.shape[1]
    g, u = (x[:, :end] @ w[:, :end].T for w in ((up, gate) if swapped else (gate, up)))
    weight = 1 / (1 + np.exp(-g))
    u = u / (1 + np.exp(-u)) if both else u
    return (weight if sigmoid else g * weight) * u


def mlp(m, n, k, row_stride=None, large=False):
    """Small gates and sums of one sign; large: gates of about 100, of either sign."""

    def make(rng):
        small = max(k, 8)
        x = rng.uniform(0.25, 1, (m, k))
        gate, up = rng.uniform(0.25, 1, (2, n, k)) * [[[4 / small]], [[-8 / small]]]
        if large:
            gate = gate * np.where(np.arange(n) % 2, -80, 80)[:, None]
        return {"x": tensor(x, "fp16", row_stride), "gate": tensor(gate, "fp16"), "up": tensor(up, "fp16")}

    return make


def mlp_requests(x, gate, up):
    """x once per 32 columns for both matmuls, each weight once per 32 rows, y once."""
    (m, k), n = x.shape, gate.shape[0]
    weight = 2 * n * k * ceil(m, 32)
    return {"x": 2 * m * k * ceil(n, 32), "gate": weight, "up": weight, "returned 0": 2 * m * n}


SWIGLU = Task(
    id="07.4",
    title="SwiGLU with two accumulators",
    points=5,
    functions={"swiglu_linear": swiglu_linear},
    kernel=True,
    cases=(
        Case("32 x 32 x 32", mlp(32, 32, 32)),
        Case("64 x 96 x 64", mlp(64, 96, 64)),
        Case("50 x 70 x 90", mlp(50, 70, 90), hint="Mask rows by M, columns by N and steps by K."),
        Case("1 x 1 x 1", mlp(1, 1, 1)),
        Case("33 x 40 x 65, padded rows of x", mlp(33, 40, 65, 71), hint="Use x.stride(0)."),
        Case(
            "48 x 40 x 32, large gates",
            mlp(48, 40, 32, large=True),
            hint="In fp32 exp(89) is inf, and inf / inf is NaN: call exp so that silu tends to z or to 0.",
        ),
        Case(f"{32 * PROGRAMS} x 3 x 2", mlp(32 * PROGRAMS, 3, 2)),
    ),
    mistakes=(
        Mistake("gate and up were swapped", "silu belongs to x @ gate^T.", swapped=True),
        Mistake("up was activated as well", "up enters as it is.", both=True),
        Mistake("the gate is a sigmoid", "silu(z) is z * sigmoid(z).", sigmoid=True),
        Mistake("the last, ragged step of K was left out", "Round the steps of K up and mask them.", tile=TILE),
    ),
    minimum_bytes=mlp_requests,
    max_tile=(64, 64),
    hints={
        "traffic": "Load each tile of x once per step and use it for both tl.dot: one launch, two accumulators.",
        "values": "silu(g) * u in fp32, on both accumulators, behind the K loop.",
        "unwritten": "Round rows and columns up to whole tiles.",
    },
)

TASKS = (COUNT, PACK, EPILOGUE, SWIGLU)
