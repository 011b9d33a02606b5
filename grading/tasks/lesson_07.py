"""Exercise 07: a norm fused in three ways, weights packed for several GPUs, a squared ReLU in an epilogue, RMSNorm and
SwiGLU in one kernel."""

import numpy as np

from grading.tasks import TILE, Case, Mistake, RandomTensor, Speed, Task, ceil, one_of, returns, rounded, tensor
from grading.tasks.properties import PROGRAMS

EXERCISE = "07_epilogues"

# ---------------------------------------------------------------- 07.1 predict


@returns("unfused", "deferred", "in loop", "best")
def norm_us(
    m, n, k, block, launch, bandwidth, flops, squares,
    *, columns=ceil, beside=False, stored=2, scale=4, paid=2, longer=max, whole=False,
):  # fmt: skip
    """Microseconds of RMSNorm and a projection with a norm's kernel, with one for its scales, and with its squares in
    the K loop; and the fastest.

    columns: of tiles. beside: the squares beside the matmul. stored: passes of the norm's kernel over x. scale: bytes
    of a row's. paid: launches of two kernels. longer: of two times. whole: for all kernels together.
    """
    x, others, matmul = 2 * m * k, 2 * n * (m + k), 2 * m * n * k / flops
    sums = columns(n, block) * m * k / squares

    def us(*kernels):
        begun = launch * min(len(kernels), paid)
        kernels = [tuple(map(sum, zip(*kernels)))] if whole else kernels
        return begun + sum(longer((nbytes / bandwidth, work)) for nbytes, work in kernels)

    times = {
        "unfused": us((stored * x, 0), (x + others, matmul)),
        "deferred": us((x + scale * m, 0), (x + scale * m + others, matmul)),
        "in loop": us((x + others, max(matmul, sums) if beside else matmul + sums)),
    }
    return *times.values(), min(times, key=times.get)


def layer_of(m, n, launch=(2, 5)):
    """m, n, launch: from, to; of m and n in tiles of `block` columns."""

    def make(rng):
        block = one_of(rng, 64, 128)
        return {
            "m": int(rng.integers(*m)),
            "n": int(block * rng.uniform(*n)),
            "k": one_of(rng, 2048, 4096, 5120),
            "block": block,
            "launch": round(rng.uniform(*launch), 2),
            "bandwidth": 1e5 * int(rng.integers(30, 50)),
            "flops": 1e7 * int(rng.integers(50, 80)),
            "squares": 1e6 * int(rng.integers(20, 30)),
        }

    return make


PREDICT = Task(
    id="07.1",
    title="Predict which fusion of a norm pays",
    points=4,
    functions={"norm_us": norm_us},
    cases=(
        Case("few tokens", layer_of((1, 65), (30, 90))),
        Case("many tokens", layer_of((4096, 9000), (40, 90))),
        Case("many tokens, other sizes", layer_of((4096, 9000), (40, 90))),
        Case("many tokens, one column of tiles", layer_of((4096, 9000), (0.3, 1))),
        Case("slow launches", layer_of((1500, 2500), (10, 40), (50, 90))),
    ),
    mistakes=(
        Mistake(
            "the squares were not counted once per column of tiles",
            "Each column of tiles sums all m * k squares, and ceil(n / block) of them cover the n columns of y.",
            {"columns": lambda n, block: 1},
            {"columns": lambda n, block: n / block},
            {"columns": lambda n, block: n // block},
        ),
        Mistake(
            "the squares were computed beside the matmul",
            "Here the tensor cores wait: add the time of the squares to that of the FLOPs.",
            beside=True,
        ),
        Mistake(
            "a pass over x or the scales is missing",
            "The norm's kernel reads x and writes it. A scale of 4 bytes per row is written by one kernel and read by "
            "the other.",
            {"stored": 1},
            {"scale": 0},
        ),
        Mistake(
            "the longer time was not taken kernel by kernel",
            "A kernel takes the time of its bytes or of its arithmetic, the longer one. Then add the kernels.",
            {"longer": sum},
            {"whole": True},
        ),
        Mistake("two kernels pay for one launch", "Unfused and deferred, each of two kernels pays.", paid=1),
    ),
    hints={
        "form": "Return three floats and the name of the fastest way: 'unfused', 'deferred' or 'in loop'.",
        "values": "Write one line per kernel: its bytes, its arithmetic, squares included, and the longer of their "
        "times. An element has 2 bytes, a scale 4.",
    },
)

# ---------------------------------------------------------------- 07.2 pack


@returns(packed="q", contiguous=True)
def pack_qkv(q, k, v, head_dim, ranks, *, sliced=False, q_turns=False, kv_turns=False, swapped=False):
    """The packed weight of each rank, [ranks, rows, K]: its heads' queries, then their keys, then their values.

    sliced: the packed weight of all heads is cut into slices. q_turns, kv_turns: head h goes to rank h % ranks, or,
    with fewer heads than ranks, rank r takes head r % heads.
    """
    if sliced:
        rows = (len(q) + len(k) + len(v)) // ranks
        return np.concatenate((q, k, v))[: rows * ranks].reshape(ranks, rows, -1)

    def heads_of(weight, rank, turns):
        parts = weight.reshape(-1, head_dim, weight.shape[1])
        each = max(len(parts) // ranks, 1)
        first = rank * len(parts) // ranks
        own = parts[rank % len(parts) :: ranks] if turns else parts[first : first + each]
        return own.reshape(-1, weight.shape[1])

    weights = ((q, q_turns), (v, kv_turns), (k, kv_turns)) if swapped else ((q, q_turns), (k, kv_turns), (v, kv_turns))
    return np.stack([np.concatenate([heads_of(w, rank, turns) for w, turns in weights]) for rank in range(ranks)])


def three_weights(heads, kv_heads, head_dim, ranks, k, dtype, row_stride=None):
    def make(rng):
        q, keys, values = (rng.normal(0, 1, (n * head_dim, k)) for n in (heads, kv_heads, kv_heads))
        return {
            "q": tensor(q, dtype, row_stride),
            "k": tensor(keys, dtype),
            "v": tensor(values, dtype),
            "head_dim": head_dim,
            "ranks": ranks,
        }

    return make


PACK = Task(
    id="07.2",
    title="Pack queries, keys and values for several GPUs",
    points=3,
    functions={"pack_qkv": pack_qkv},
    cases=(
        Case("4 heads, 2 KV heads, 2 ranks, fp32", three_weights(4, 2, 3, 2, 5, "fp32")),
        Case("32 heads, 8 KV heads, 4 ranks, bf16", three_weights(32, 8, 4, 4, 16, "bf16")),
        Case(
            "16 heads, 2 KV heads, 8 ranks, fp16",
            three_weights(16, 2, 4, 8, 9, "fp16"),
            hint="There are more ranks than KV heads: neighboring ranks hold copies of the same KV head.",
        ),
        Case("12 heads, 1 KV head, 3 ranks, bf16", three_weights(12, 1, 2, 3, 7, "bf16")),
        Case("6 heads, as many KV heads, 3 ranks, fp16", three_weights(6, 6, 5, 3, 8, "fp16")),
        Case("8 heads, 2 KV heads, one rank, fp32", three_weights(8, 2, 4, 1, 6, "fp32")),
        Case("4 heads, 2 KV heads, 2 ranks, fp32, padded rows of q", three_weights(4, 2, 3, 2, 5, "fp32", 8)),
    ),
    mistakes=(
        Mistake(
            "one packed weight was cut into slices",
            "Then rank 0 has only queries. Cut q, k and v first, by heads, and pack the pieces of each rank.",
            sliced=True,
        ),
        Mistake(
            "query heads went to the ranks in turns",
            "Rank r has neighboring query heads, from r * heads / ranks on.",
            {"q_turns": True},
            {"q_turns": True, "kv_turns": True},
        ),
        Mistake(
            "KV heads went to the ranks in turns",
            "Query head h uses KV head h // (heads / kv_heads), so ranks that share a KV head are neighbors.",
            kv_turns=True,
        ),
        Mistake("values come before keys", "The order is queries, keys, values.", swapped=True),
    ),
    hints={
        "form": "Return one contiguous tensor [ranks, rows, K] of q's dtype. A rank has heads / ranks query heads, and "
        "each KV head that they use once, in k and in v.",
        "values": "Write down the heads of each rank for 4 heads and 2 KV heads, first on 2 ranks, then on 4.",
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
            bias = rng.uniform(0, 1 / 16, n) - weight @ base  # which fp16 would round
        x, weight, bias = tensor(x, "fp16", row_stride), tensor(weight, "fp16"), tensor(bias)
        return {"x": x, "weight": weight, "bias": bias, "scale": 0.25}

    return make


def layer_requests(x, weight, bias, scale):
    """x once per 32 columns of y, the weight and the bias once per 32 rows, y once."""
    (m, k), n = x.shape, weight.shape[0]
    down = ceil(m, 32)
    return {"x": 2 * m * k * ceil(n, 32), "weight": 2 * n * k * down, "bias": 4 * n * down, "returned 0": 2 * m * n}


DECODED = (64, 14336, 4096)  # tokens, outputs, inputs: Llama 3 8B's up projection in a step of decoding
LATE = "Add the fp32 bias to the fp32 accumulator. Convert to fp16 once, at the store."
EPILOGUE = Task(
    id="07.3",
    title="Squared ReLU in the epilogue",
    points=3,
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
        "traffic": "One launch: y is stored once and never read, x and weight once per tile, whose sides are 32 or 64. "
        "What a mask leaves out is not requested; an index that % M wraps around is requested again.",
        "values": "z = acc + bias, then relu, square, scale, all in fp32: round once, at the store.",
        "unwritten": "Round rows and columns up to whole tiles, and store all of y, zeros too.",
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

# ---------------------------------------------------------------- 07.4 a norm and two accumulators


@returns(y="fp16")
def norm_swiglu(x, gate, up, eps, *, role="right", tile=0, late=False, scaled="both", divisor="K", root="inside"):
    """silu(n @ gate.T) * (n @ up.T), where n is x with every row divided by its root mean square.

    role: what silu is applied to. tile: steps of K that a ragged last one is left out of. late: the scale comes after
    silu. scaled: the accumulators that are scaled. divisor: of the sum of squares. root: where eps is added.
    """
    cols = x.shape[1]
    end = cols // tile * tile if tile else cols
    g, u = (x[:, :end] @ w[:, :end].T for w in ((up, gate) if role == "swapped" else (gate, up)))
    mean = (x[:, :end] ** 2).sum(axis=1, keepdims=True) / {"K": cols, "none": 1}[divisor]
    r = {"inside": np.sqrt(mean + eps), "outside": np.sqrt(mean) + eps, "square": mean + eps}[root]
    g, u = (g if late or scaled == "up" else g / r), (u if late or scaled == "gate" else u / r)
    weight = 1 / (1 + np.exp(-g))
    u = u / (1 + np.exp(-u)) if role == "both" else u
    return (weight if role == "sigmoid" else g * weight) * u / (r * r if late else 1)


def mlp(m, n, k, row_stride=None, large=False, rows="alike", eps=1e-5, tiny=False):
    """Normalized gates of about 1 and sums of one sign; large: gates of about 100, of either sign; rows: "apart": of
    very different size, "small": as small as the root of eps, "wide": whose squares are beyond fp16; tiny: columns in
    which gate's or up's sums are among fp16's smallest numbers, which have few digits, and the other's large."""

    def make(rng):
        small = max(k, 8)
        x = rng.uniform(0.25, 1, (m, k))
        size = {"alike": 1.0, "apart": 2.0 ** rng.integers(-5, 6, m), "small": 1 / 64, "wide": 512.0}[rows]
        gate, up = rng.uniform(0.25, 1, (2, n, k)) * [[[4 / small]], [[-8 / small]]]
        if large:
            gate = gate * np.where(np.arange(n) % 2, -60, 60)[:, None]
        if tiny:
            scale = np.where(np.arange(n) % 2, 2.0**4, 2.0**-20)[:, None]
            gate, up = gate * scale, up * 2.0**-16 / scale
        tensors = {"x": tensor(x * np.full(m, size)[:, None], "fp16", row_stride)}
        return tensors | {"gate": tensor(gate, "fp16"), "up": tensor(up, "fp16"), "eps": eps}

    return make


def mlp_requests(x, gate, up, eps):
    """x once per 32 columns for both matmuls and the squares, each weight once per 32 rows, y once."""
    (m, k), n = x.shape, gate.shape[0]
    weight = 2 * n * k * ceil(m, 32)
    return {"x": 2 * m * k * ceil(n, 32), "gate": weight, "up": weight, "returned 0": 2 * m * n}


ONCE = "Keep g, silu(g) and u in fp32; round their product once, at the store."
SWIGLU = Task(
    id="07.4",
    title="RMSNorm, two matmuls and SwiGLU in one kernel",
    points=5,
    functions={"norm_swiglu": norm_swiglu},
    kernel=True,
    cases=(
        Case("32 x 32 x 32", mlp(32, 32, 32)),
        Case("64 x 96 x 64, rows of very different size", mlp(64, 96, 64, rows="apart")),
        Case("50 x 70 x 90", mlp(50, 70, 90), hint="Mask rows by M, columns by N and steps by K."),
        Case("1 x 1 x 1", mlp(1, 1, 1)),
        Case("33 x 40 x 65, padded rows of x", mlp(33, 40, 65, 71), hint="Use x.stride(0)."),
        Case(
            "40 x 48 x 64, squares beyond fp16",
            mlp(40, 48, 64, rows="wide"),
            hint="Convert x to fp32 before you square it.",
        ),
        Case("40 x 32 x 32, tiny sums beside large ones", mlp(40, 32, 32, tiny=True), hint=ONCE),
        Case("40 x 48 x 64, small rows, eps 0.001", mlp(40, 48, 64, rows="small", eps=1e-3)),
        Case(
            "48 x 40 x 32, large gates",
            mlp(48, 40, 32, large=True),
            hint="In fp32 exp(89) is inf, and inf / inf is NaN: call exp so that silu tends to z or to 0.",
        ),
        Case(f"{32 * PROGRAMS} x 3 x 2", mlp(32 * PROGRAMS, 3, 2)),
    ),
    mistakes=(
        Mistake(
            "silu was not applied to gate alone",
            "silu(z) is z * sigmoid(z); it belongs to the matmul with gate, and up enters as it is.",
            {"role": "swapped"},
            {"role": "both"},
            {"role": "sigmoid"},
        ),
        Mistake(
            "the scale of the row came after silu, or on one accumulator only",
            "silu(a * z) is not a * silu(z): scale both accumulators first.",
            {"late": True},
            {"scaled": "gate"},
            {"scaled": "up"},
        ),
        Mistake("the squares were not divided by K", "The scale is of the mean of squares.", divisor="none"),
        Mistake(
            "the root or eps stands in the wrong place",
            "Divide by sqrt(mean + eps): tl.rsqrt(mean + eps).",
            {"root": "outside"},
            {"root": "square"},
        ),
        Mistake("the last, ragged step of K was left out", "Round the steps of K up and mask them.", tile=TILE),
    ),
    minimum_bytes=mlp_requests,
    max_tile=(64, 64),
    hints={
        "traffic": "Load each tile of x once per step and use it for the squares and both tl.dot: one launch, two "
        "accumulators, tile sides of 32 or 64.",
        "values": "Sum the squares of a row, in fp32, beside the two accumulators. Behind the K loop, scale both. "
        + ONCE,
        "unwritten": "Round rows and columns up to whole tiles.",
    },
)

TASKS = (PREDICT, PACK, EPILOGUE, SWIGLU)
