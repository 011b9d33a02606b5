"""Exercise 13: a training step counted, a weight's gradient in parts, LayerNorm's too, a wrong gradient, an op."""

import numpy as np

from grading.tasks import TILE, Case, DType, Mistake, RandomTensor, Speed, Task, ceil, one_of, returns, spread, tensor
from grading.tasks.properties import PROGRAMS

EXERCISE = "13_backward"

# ---------------------------------------------------------------- 13.1 count


@returns("FLOPs")
def step_flops(parameters, tokens, checkpointing, *, backward=4, again=2):
    """Of the matmuls with weights; full checkpointing runs the forward twice."""
    return (2 + backward + again * (checkpointing == "full")) * parameters * tokens


@returns("FLOPs")
def attention_flops(batch, heads, sequence, head_dim, checkpointing, *, backward=5, again=2):
    """Two matmuls forward, five backward, two more where the block's forward runs again."""
    matmuls = 2 + backward + again * (checkpointing == "full")
    return 2 * matmuls * batch * heads * sequence * sequence * head_dim


@returns("bytes")
def kept_bytes(tokens, width, kv_width, heads, itemsize, checkpointing, *, lse=4, cheap=True):
    """Of a block with a GELU MLP of four times the width."""
    norm, hidden = tokens * width, 4 * tokens * width
    matmuls = 3 * norm + tokens * (width + 2 * kv_width) + hidden  # both norms' inputs, attention, q, k, v, up
    again = 2 * norm + hidden if checkpointing == "none" or not cheap else 0
    if checkpointing == "full":
        return norm * itemsize
    return (matmuls + again) * itemsize + lse * tokens * heads


@returns("bytes")
def backward_bytes(tokens, rows, columns, itemsize, accumulated, *, shared=False, total_read=True):
    """Of dx = dy weight and dweight = dy^T x; accumulated: dweight is added to an fp32 total."""
    dy, x, weight = tokens * rows, tokens * columns, rows * columns
    total = 4 * weight * (1 + total_read) if accumulated else itemsize * weight
    return ((1 if shared else 2) * dy + 2 * x + weight) * itemsize + total


def sizes(*names, **given):
    every = {
        "parameters": (10**6 + 1, 8_030_261_248),
        "tokens": (1000, 3001, 8192),
        "batch": (3, 4),
        "heads": (6, 20),
        "sequence": (1000, 4096),
        "head_dim": (48, 128),
        "width": (1536, 4096),
        "kv_width": (256, 1024),
        "rows": (1000, 14336),
        "columns": (700, 4096),
        "itemsize": (2, 4),
    }
    return lambda rng: {name: one_of(rng, *every[name]) for name in names} | given


FLOPS = (("step_flops", ("parameters", "tokens")), ("attention_flops", ("batch", "heads", "sequence", "head_dim")))
COUNT = Task(
    id="13.1",
    title="Count a training step",
    points=3,
    functions={of.__name__: of for of in (step_flops, attention_flops, kept_bytes, backward_bytes)},
    cases=(
        *(
            Case(f"{name}, {way} checkpointing".replace("none", "no"), sizes(*names, checkpointing=way), name)
            for name, names in (*FLOPS, ("kept_bytes", ("tokens", "width", "kv_width", "heads", "itemsize")))
            for way in ("none", "selective", "full")
        ),
        *(
            Case(
                f"backward_bytes, {'added to a total' if added else 'a new dweight'}",
                sizes("tokens", "rows", "columns", "itemsize", accumulated=added),
                "backward_bytes",
            )
            for added in (False, True)
        ),
    ),
    mistakes=(
        Mistake(
            "a matmul is missing from the backward",
            "A linear layer's backward has two matmuls, for x and for the weight; FlashAttention's has five.",
            {"backward": 2},
            {"backward": 4},
        ),
        Mistake("checkpointing computed nothing again", "Full checkpointing runs each block's forward twice.", again=0),
        Mistake("dy was read once for both matmuls", "dx and dweight are two launches: each reads dy.", shared=True),
        Mistake("the fp32 total was not read", "To add to a total is to read it and to write it.", total_read=False),
        Mistake(
            "not what a block keeps",
            "Selective checkpointing drops the results of both norms and of GELU; lse is fp32, one per token and head.",
            {"cheap": False},
            {"lse": 0},
            {"lse": 2},
        ),
    ),
    hints={"form": "All four return ints.", "values": "Write one line per tensor, and one per matmul."},
)

# ---------------------------------------------------------------- 13.2 a weight's gradient, split over tokens


@returns(partial="fp32", total="fp32", in_place=("total",))
def weight_gradient(dy, x, total, length, *, over=0, under=0, accumulate=True, added="all"):
    """partial [parts, rows, columns] of dy^T x over `length` tokens each, and total plus their sum.

    over, under: parts rounded up or down to whole tiles of this width.
    """
    parts = []
    for first in range(0, len(dy), length):
        last = min(first + length, len(dy))
        last = min(first + ceil(last - first, over) * over, len(dy)) if over else last
        last = first + (last - first) // under * under if under else last
        parts.append(dy[first:last].T @ x[first:last])
    partial = np.array(parts)
    return partial, accumulate * total + partial[: len(parts) - (added == "no last")].sum(axis=0)


def of_tokens(tokens, rows, columns, length, row_stride=None):
    """Operands of one sign where a row has a single element, so that no sum is a small difference."""

    def make(rng):
        low = 0.25 if columns < 16 else -1
        return {
            "dy": tensor(rng.uniform(low, 1, (tokens, rows)), "fp16", row_stride),
            "x": tensor(rng.uniform(low, 1, (tokens, columns)), "fp16"),
            "total": tensor(rng.uniform(4 * low, 4, (rows, columns)), "fp32"),
            "length": length,
        }

    return make


def part_bytes(dy, x, total, length):
    """dy once per 64 columns, x once per 64 rows; parts written and read, the total read and written."""
    parts = ceil(dy.shape[0], length) * total.nbytes
    dy_bytes = 2 * dy.shape[0] * dy.shape[1] * ceil(x.shape[1], 64)
    return {
        "dy": dy_bytes, "x": x.nbytes * ceil(dy.shape[1], 64), "returned 0": 2 * parts, "total": 2 * total.nbytes,
    }  # fmt: skip


END = "A part ends `length` tokens after its start, or at the last token: mask the loads of dy and x by that."
SPLIT = Task(
    id="13.2",
    title="A weight's gradient, split over tokens",
    points=5,
    functions={"weight_gradient": weight_gradient},
    kernel=True,
    cases=(
        Case("256 tokens, 64 x 64, parts of 64", of_tokens(256, 64, 64, 64)),
        Case("201 tokens, 50 x 70, parts of 80", of_tokens(201, 50, 70, 80), hint=END),
        Case("90 tokens, 17 x 33, parts of 37", of_tokens(90, 17, 33, 37), hint=END),
        Case("75 tokens, 30 x 20, one part", of_tokens(75, 30, 20, 100), hint=END),
        Case("3 tokens, 1 x 1, parts of 1", of_tokens(3, 1, 1, 1)),
        Case("130 tokens, 33 x 48, padded rows of dy", of_tokens(130, 33, 48, 65, 41), hint="Use dy.stride(0)."),
        Case(f"{PROGRAMS} tokens, 2 x 16, parts of 1", of_tokens(PROGRAMS, 2, 16, 1)),
    ),
    mistakes=(
        Mistake("parts go on to the end of a whole tile of tokens", END, over=TILE),
        Mistake("the last, ragged tile of a part was left out", "Round the steps of a part up.", under=TILE),
        Mistake("the total was overwritten", "Earlier micro-batches are in total: load it and add.", accumulate=False),
        Mistake("the total lacks the last part", "Add all parts, ragged or not.", added="no last", results=("total",)),
    ),
    minimum_bytes=part_bytes,
    hints={
        "unwritten": "The grid covers all tiles of all ceil(tokens / length) parts: store every one of them.",
        "out_of_bounds": END + " Mask rows and columns too.",
        "traffic": "A program takes up to 64 x 64 of one part; the second launch reads each part once.",
        "values": "dy lies by tokens: load its tile as [tokens, rows] and multiply by its transpose. " + END,
    },
)

# ---------------------------------------------------------------- 13.3 LayerNorm's gradients in two stages


@returns(dweight="fp32", dbias="fp32")
def norm_parts(dy, x, stats, length, *, centered=True, scaled=True, over=0, weighted=True):
    """Sums over blocks of `length` rows of dy * (x - mean) * scale, and of dy. over: blocks end at whole tiles."""
    mean, scale = stats[:, :1] * centered, stats[:, 1:] if scaled else 1
    weight, bias = dy * (x - mean) * scale, dy if weighted else dy * scale
    ends = [first + (ceil(length, over) * over if over else length) for first in range(0, len(dy), length)]
    return tuple(
        np.array([of[first:end].sum(axis=0) for first, end in zip(range(0, len(dy), length), ends)])
        for of in (weight, bias)
    )


@returns(total="dtype")
def add_parts(parts, dtype, *, added="all"):
    return parts[: len(parts) - (added == "no last")].sum(axis=0)


def of_norm(rows, cols, dtype, length, row_stride=None):
    """Values of one sign, and means of the other one: no sum is a small difference."""

    def make(rng):
        stats = np.stack([rng.uniform(-2, -1, rows), rng.uniform(0.5, 2, rows)], axis=1)
        return {
            "dy": tensor(rng.uniform(0.25, 1, (rows, cols)), dtype),
            "x": tensor(rng.uniform(0.25, 1, (rows, cols)), dtype, row_stride),
            "stats": tensor(stats),
            "length": length,
        }

    return make


def of_parts(parts, cols, dtype):
    return lambda rng: {"parts": tensor(rng.uniform(0.25, 1, (parts, cols))), "dtype": DType(dtype)}


def norm_bytes(**arguments):
    """dy and x once, stats once per 64 columns; or the parts once."""
    if "parts" in arguments:
        parts = arguments["parts"]
        return {"parts": parts.nbytes, "returned 0": parts.shape[1] * (4 if arguments["dtype"].name == "fp32" else 2)}
    x, stats = arguments["x"], arguments["stats"]
    sums = 4 * ceil(x.shape[0], arguments["length"]) * x.shape[1]
    read = {"x": x.nbytes, "dy": x.nbytes, "stats": stats.nbytes * ceil(x.shape[1], 64)}
    return read | {"returned 0": sums, "returned 1": sums}


TIMED = (16384, 4096, 64)  # rows, columns, rows of a block
BLOCK_END = "A block ends after `length` rows, or at the last row, and not with a tile: mask the rows by that."
NORM = Task(
    id="13.3",
    title="LayerNorm's weight and bias, in two stages",
    points=4,
    functions={"norm_parts": norm_parts, "add_parts": add_parts},
    kernel=True,
    cases=(
        Case("128 x 256 fp32, blocks of 32", of_norm(128, 256, "fp32", 32)),
        Case("100 x 70 bf16, blocks of 32", of_norm(100, 70, "bf16", 32), hint=BLOCK_END),
        Case("50 x 33 fp16, blocks of 19", of_norm(50, 33, "fp16", 19), hint=BLOCK_END),
        Case("7 x 1 fp32, one block", of_norm(7, 1, "fp32", 64), hint=BLOCK_END),
        Case("40 x 300 fp32, padded rows of x", of_norm(40, 300, "fp32", 16, 333), hint="Use x.stride(0)."),
        Case("3 x 5,000 bf16, blocks of 1", of_norm(3, 5000, "bf16", 1)),
        Case(f"{PROGRAMS} x 16 fp32, blocks of 1", of_norm(PROGRAMS, 16, "fp32", 1)),
        Case("4 x 256 to fp32", of_parts(4, 256, "fp32"), "add_parts"),
        Case("19 x 1,000 to bf16", of_parts(19, 1000, "bf16"), "add_parts"),
        Case(f"{PROGRAMS} x 33 to fp16", of_parts(PROGRAMS, 33, "fp16"), "add_parts"),
        Case("1 x 1 to fp32", of_parts(1, 1, "fp32"), "add_parts"),
        Case(f"2 x {40 * PROGRAMS} to bf16", of_parts(2, 40 * PROGRAMS, "bf16"), "add_parts"),
    ),
    mistakes=(
        Mistake("x was not centered", "dweight sums dy * (x - mean) * scale.", centered=False, results=("dweight",)),
        Mistake("the scale of the row is missing", "Multiply by stats[row, 1].", scaled=False, results=("dweight",)),
        Mistake("dbias was multiplied by the scale", "dbias is the sum of dy alone.", weighted=False),
        Mistake("blocks go on to the end of a whole tile of rows", BLOCK_END, over=TILE),
        Mistake("the last part was left out", "Loop up to the number of parts, rounded up to a tile.", added="no last"),
    ),
    minimum_bytes=norm_bytes,
    hints={
        "unwritten": "One program per block of rows and tile of columns; round both up.",
        "traffic": "Load each tile of dy and x once for both sums, and take at least 64 columns per program.",
        "values": "Mask rows outside the block with other=0.0, and accumulate in fp32.",
        "out_of_bounds": BLOCK_END + " stats has two columns: mean at 2 * row, scale at 2 * row + 1.",
        "slow": "Take 64 to 128 columns and 16 or 32 rows at a time; add the tiles up and reduce once, at the end.",
    },
    speed=Speed(
        points=1,
        share=0.5,
        bytes=TIMED[0] * TIMED[1] * 4 + TIMED[0] * 8 + TIMED[0] // TIMED[2] * TIMED[1] * 8,
        shape="16,384 x 4,096 bf16, blocks of 64",
        make=lambda: {
            "dy": RandomTensor(TIMED[:2], "bf16"),
            "x": RandomTensor(TIMED[:2], "bf16"),
            "stats": RandomTensor((TIMED[0], 2), "fp32"),
            "length": TIMED[2],
        },
        block=TIMED[2],
    ),
)

# ---------------------------------------------------------------- 13.4 a wrong gradient


def normalize(x):
    """Each row divided by its largest magnitude."""
    return x / np.abs(x).max(axis=1, keepdims=True)


@returns(differences="fp32")
def differences(x, dy, h, *, sided="central", over=2):
    """Central differences of sum(dy * normalize(x)), element by element."""
    result = np.empty_like(x)
    for column in range(x.shape[1]):
        step = h * (np.arange(x.shape[1]) == column)
        ahead, behind = normalize(x + step), normalize(x - step if sided == "central" else x)
        result[:, column] = ((ahead - behind) * dy).sum(axis=1) / (h * (over if sided == "central" else 1))
    return result


@returns(wrong="bool")
def wrong_elements(x, dy, *, by=np.abs):
    """Where dy / max(abs(x)) is not the gradient: at the largest magnitude."""
    return by(x) == by(x).max(axis=1, keepdims=True)


@returns(dx="fp64")
def gradient(x, dy, *, missing="", share=1):
    rows, column = np.arange(len(x)), np.abs(x).argmax(axis=1)
    top = np.abs(x).max(axis=1)
    dx = dy / top[:, None]
    sign = 1 if missing == "sign" else np.sign(x[rows, column])
    dx[rows, column] -= (missing != "term") * sign * (dy * x).sum(axis=1) / top ** (1 if missing == "square" else 2)
    dx[rows, column] *= missing != "all"
    return dx


def rows_of(rows, cols, sign=0, h=0.0):
    """The largest magnitude is apart from the others; it is the largest value in some rows, the smallest in others. The
    sum of dy * x is never small, has both signs, and in some rows another one than its term at the largest magnitude.
    """

    def make(rng):
        x = rng.uniform(0.2, 1, (rows, cols)) * rng.choice((-1, 1), (rows, cols))
        row, at = np.arange(rows), rng.integers(cols, size=rows)
        x[row, at] = (sign or np.where(row % 2, 1, -1)) * rng.uniform(1.5, 3, rows)
        dy = rng.uniform(0.5, 1.5, (rows, cols)) * np.sign(x)
        dy[::3] *= -1
        dy[row[2::4], at[2::4]] *= -0.1 if cols > 2 else 1
        return {"x": tensor(x, "fp64"), "dy": tensor(dy, "fp64")} | ({"h": h} if h else {})

    return make


NEGATIVE = "The largest magnitude may belong to a negative element: d|x| / dx is the sign of x."
WRONG = Task(
    id="13.4",
    title="Find the wrong gradient, and mend it",
    points=4,
    functions={"differences": differences, "wrong_elements": wrong_elements, "gradient": gradient},
    cases=(
        Case("4 x 10, h = 1e-5", rows_of(4, 10, h=1e-5), "differences"),
        Case("3 x 7, h = 0.01", rows_of(3, 7, h=1e-2), "differences"),
        Case("5 x 2, h = 1e-6", rows_of(5, 2, h=1e-6), "differences"),
        Case("6 x 12", rows_of(6, 12), "wrong_elements", hint=NEGATIVE),
        Case("4 x 9, positive", rows_of(4, 9, 1), "wrong_elements"),
        Case("4 x 9, negative", rows_of(4, 9, -1), "wrong_elements", hint=NEGATIVE),
        Case("6 x 12", rows_of(6, 12), "gradient", hint=NEGATIVE),
        Case("3 x 100, positive", rows_of(3, 100, 1), "gradient"),
        Case("5 x 2, negative", rows_of(5, 2, -1), "gradient", hint=NEGATIVE),
    ),
    mistakes=(
        Mistake(
            "the difference is one-sided or divided by h", "Step both ways: by 2 * h.", {"sided": "one"}, {"over": 1}
        ),
        Mistake("the largest value was taken", NEGATIVE, by=np.positive),
        Mistake("dx is what the wrong backward gives", "The divisor depends on x as well.", missing="term"),
        Mistake("dx is 0 at the largest magnitude", "y is 1 or -1 there, but its x scales the others.", missing="all"),
        Mistake(
            "the term at the largest magnitude lacks a factor",
            "The derivative of 1 / m is -1 / m ** 2, and that of m is the sign of x.",
            {"missing": "sign"},
            {"missing": "square"},
        ),
    ),
    hints={
        "form": "differences returns fp32, wrong_elements bool, gradient fp64.",
        "values": {
            "differences": "Step one element of a row at a time by h, in fp64, and run the forward on both sides.",
            "wrong_elements": "Compare the differences with the given backward: less than 0.01 apart is rounding.",
            "gradient": "Compare with your differences. The largest magnitude scales its whole row, itself included.",
        },
    },
)

# ---------------------------------------------------------------- 13.5 a broken op


@returns("forward", "backward")
def faults(gate_up, dtypes, _transposed, *, strides=True, dtype=True):
    """What the broken op promises and its kernels do not deliver."""
    return "strides" * (_transposed and strides), "dtype" * (dtypes["gate_up"] != "fp32" and dtype)


@returns("opcheck", y="gate_up", dx="gate_up")
def compiled_gradient(gate_up, dy, *, dy_used=True):
    """Of y = 2 * reglu(3 * gate_up)."""
    gate, up = np.split(3 * gate_up, 2, axis=1)
    dy = 2 * dy if dy_used else np.ones_like(dy)
    dx = np.concatenate([dy * up * (gate > 0), dy * np.maximum(gate, 0)], axis=1)
    return True, 2 * np.maximum(gate, 0) * up, dx * 3


def pairs_of(rows, cols, dtype="fp32", transposed=False, padding=0):
    """Small whole numbers, so that fp16 rounds nothing. padding: elements after each row."""

    def make(rng):
        values = rng.integers(-8, 9, (rows, 2 * cols))
        gate_up = spread(values, dtype, *((1, rows) if transposed else (2 * cols + padding, 1)))
        return {"gate_up": gate_up, "dy": tensor(rng.integers(1, 4, (rows, cols)), dtype), "_transposed": transposed}

    return make


KINDS = {
    "9 x 300": (9, 150),
    "3 x 8, padded rows": (3, 4, "fp32", False, 5),
    "4 x 6, fp16": (4, 3, "fp16"),
    "5 x 8, transposed": (5, 4, "fp32", True),
    "6 x 4, transposed, fp16": (6, 2, "fp16", True),
}
OP = Task(
    id="13.5",
    title="Find the faults of an op, and mend it",
    points=4,
    functions={"faults": faults, "compiled_gradient": compiled_gradient},
    cases=tuple(
        Case(name, pairs_of(*shape), function)
        for function in ("faults", "compiled_gradient")
        for name, shape in KINDS.items()
    ),
    mistakes=(
        Mistake("strides were not compared", "A fake promises strides, too: compare .stride().", strides=False),
        Mistake("dtypes were not compared", "torch.empty alone makes fp32, whatever gate_up is.", dtype=False),
        Mistake("dy was left out", "Pass dy on to the op of the backward: it is the gradient of y.", dy_used=False),
    ),
    hints={
        "exception": "make_op registers two ops with a fake function each, reglu with a gradient and a setup_context. "
        "Results have the dtype of gate_up. The gradient is traced: it calls the second op, not what launches.",
        "values": {
            "faults": "Call each fake function and the function that it stands for on the same inputs, and compare.",
            "compiled_gradient": "Give the second op dy and the saved gate_up as they are, and return its result.",
        },
    },
)

TASKS = (COUNT, SPLIT, NORM, WRONG, OP)
