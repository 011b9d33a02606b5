"""Exercise 12: a training step counted, an embedding bag, cross-entropy with z-loss, AdamW with a clipped update."""

import numpy as np

from grading.tasks import TILE, Case, Mistake, RandomTensor, Speed, Task, ceil, one_of, returns, tensor
from grading.tasks.lesson_06 import running_max
from grading.tasks.properties import PROGRAMS, row_cases

EXERCISE = "12_training_step"

# ---------------------------------------------------------------- 12.1 count


@returns("bytes")
def peak_bytes(tokens, vocabulary, width, chunk, *, whole=False, total=4):
    """Logits of the largest chunk of tokens in bf16, overwritten by their gradient, dx in bf16, and dweight, in fp32
    where it is summed over chunks."""
    rows = tokens if whole else min(chunk, tokens)
    return 2 * rows * vocabulary + 2 * tokens * width + (total if chunk < tokens else 2) * vocabulary * width


@returns("FLOPs")
def last_layer_flops(tokens, vocabulary, width, recomputed, *, forward=2, backward=4):
    """Matmuls of the last layer and its gradients; recomputed: the logits are computed twice."""
    return (forward * (2 if recomputed else 1) + backward) * tokens * vocabulary * width


@returns("bytes")
def adamw_bytes(parameters, param_itemsize, grad_itemsize, *, written=3):
    """Param, grad, m and v read; param, m and v written; m and v in fp32."""
    return parameters * (2 * param_itemsize + grad_itemsize + 2 * 4 * (2 if written == 3 else 1))


@returns("bytes")
def gathered_bytes(rows, cols, itemsize, *, up=ceil):
    """Bytes of the 32-byte sectors of a gather of rows that begin on sectors of their own."""
    return rows * up(cols * itemsize, 32) * 32


def layer(rng, *names):
    every = {
        "tokens": one_of(rng, 1000, 3001, 8192),
        "vocabulary": one_of(rng, 32000, 50257, 128256),
        "width": one_of(rng, 1024, 4096),
        "itemsize": one_of(rng, 2, 4),
        "chunk": one_of(rng, 256, 700, 999),
        "rows": one_of(rng, 100, 4097),
        "cols": one_of(rng, 3, 17, 50, 333),
        "parameters": one_of(rng, 10**6 + 1, 8_030_261_248),
        "param_itemsize": one_of(rng, 2, 4),
        "grad_itemsize": one_of(rng, 2, 4),
    }
    return {name: every[name] for name in names}


COUNT = Task(
    id="12.1",
    title="Count a training step",
    points=3,
    functions={of.__name__: of for of in (peak_bytes, last_layer_flops, adamw_bytes, gathered_bytes)},
    cases=(
        Case("peak_bytes", lambda rng: layer(rng, "tokens", "vocabulary", "width", "chunk"), "peak_bytes"),
        Case(
            "peak_bytes, a chunk above all tokens",
            lambda rng: layer(rng, "tokens", "vocabulary", "width") | {"chunk": 10_000},
            "peak_bytes",
            hint="No chunk has more rows than there are tokens, and a sum of one part needs no fp32 total.",
        ),
        *(
            Case(
                f"last_layer_flops, logits computed {'twice' * again or 'once'}",
                lambda rng, again=again: layer(rng, "tokens", "vocabulary", "width") | {"recomputed": again},
                "last_layer_flops",
            )
            for again in (False, True)
        ),
        *(
            Case(
                f"adamw_bytes, {which}",
                lambda rng: layer(rng, "parameters", "param_itemsize", "grad_itemsize"),
                "adamw_bytes",
            )
            for which in ("some sizes", "other sizes")
        ),
        Case("gathered_bytes", lambda rng: layer(rng, "rows", "cols", "itemsize"), "gathered_bytes"),
        Case(
            "gathered_bytes, whole sectors",
            lambda rng: {"rows": one_of(rng, 7, 300), "cols": 4096, "itemsize": 2},
            "gathered_bytes",
        ),
    ),
    mistakes=(
        Mistake("all logits were counted", "Only one chunk of logits is stored at a time.", whole=True),
        Mistake(
            "a matmul is missing from the backward",
            "The backward has two matmuls, for x and for the weight, each of the forward's size.",
            {"backward": 2},
            {"backward": 0},
        ),
        Mistake(
            "the moments were read but not written", "m and v change in every step: read and write them.", written=1
        ),
        Mistake(
            "the sum of the weight's gradient was counted in 2 bytes",
            "Summed over chunks in memory, the weight's gradient is fp32.",
            total=2,
        ),
        Mistake(
            "sectors were rounded down", "A row that fills half a sector still needs all of it.", up=int.__floordiv__
        ),
    ),
    hints={"form": "All four return ints: use //.", "values": "Name each tensor and count its reads and its writes."},
)

# ---------------------------------------------------------------- 12.2 an embedding bag

EMPTY = "An empty bag has no row to average: store zeros, and do not divide by zero."


@returns(y="table")
def mean_bag(table, indices, offsets, *, divisor="length", last="kept"):
    """The mean of the rows of each bag, zeros for an empty one. offsets [bags + 1]."""
    bags = []
    for first, end in zip(offsets[:-1].astype(int), offsets[1:].astype(int)):
        used = table[indices[first : end - (last == "dropped" and end > first)].astype(int)]
        length = {"length": end - first, "one": 1, "distinct": len(set(indices[first:end]))}[divisor]
        bags.append(used.sum(axis=0) / max(length, 1))
    return np.array(bags)


def bags_of(cols, lengths, dtype, rows=40):
    """Bags of these lengths over a small table, so that indices repeat; values of one sign."""

    def make(rng):
        indices = rng.integers(0, rows, sum(lengths))
        if sum(lengths) > 2:
            indices[:2] = indices[0]  # a row twice in one bag
        return {
            "table": tensor(rng.uniform(0.25, 1, (rows, cols)), dtype),
            "indices": tensor(indices, "int64"),
            "offsets": tensor(np.cumsum([0, *lengths]), "int64"),
        }

    return make


def large_rows(rng):
    """A bag of 40 fp16 rows whose sum leaves fp16's range; their mean does not."""
    return {
        "table": tensor(rng.uniform(2000, 4000, (20, 24)), "fp16"),
        "indices": tensor(rng.integers(0, 20, 43), "int64"),
        "offsets": tensor([0, 40, 43], "int64"),
    }


def cancelling_rows(rng):
    """Bags of two or three pairs of rows that nearly cancel."""
    rows = rng.uniform(1, 2, (10, 24))
    indices = np.array([(2 * pair, 2 * pair + 1) for pair in rng.integers(0, 10, 5)]).reshape(-1)
    return {
        "table": tensor(np.stack((rows, -rows * rng.uniform(0.9, 0.95)), 1).reshape(20, 24), "fp16"),
        "indices": tensor(indices, "int64"),
        "offsets": tensor([0, 6, 10], "int64"),
    }


def bag_bytes(table, indices, offsets):
    count, bags, cols = indices.shape[0], offsets.shape[0] - 1, table.shape[1]
    return {
        "table": count * cols * table.itemsize,
        "indices": 8 * count,
        "offsets": 16 * bags,
        "returned 0": bags * cols * table.itemsize,
    }


BAG = Task(
    id="12.2",
    title="An embedding bag with a mean",
    points=4,
    functions={"mean_bag": mean_bag},
    kernel=True,
    cases=(
        Case("64 columns, bags of 3, 1 and 5", bags_of(64, (3, 1, 5), "fp32")),
        Case("50 columns, ragged", bags_of(50, (4, 2), "fp16"), hint="Mask the columns by cols."),
        Case("33 columns, an empty bag in the middle", bags_of(33, (2, 0, 3), "fp32"), hint=EMPTY),
        Case("16 columns, empty bags at both ends", bags_of(16, (0, 3, 0), "bf16"), hint=EMPTY),
        Case("one column, one bag", bags_of(1, (2,), "fp32")),
        Case("300 columns, a bag of 40", bags_of(300, (40, 1), "bf16")),
        Case("24 columns, a sum beyond fp16's range", large_rows, hint="Divide the fp32 sum, then round: once."),
        Case("24 columns, fp16 rows that nearly cancel", cancelling_rows, hint="Convert each row to fp32 at its load."),
        Case(f"8 columns, {PROGRAMS} bags", bags_of(8, (3,) + (1,) * (PROGRAMS - 1), "fp16")),
    ),
    mistakes=(
        Mistake("the rows were added, not averaged", "Divide by the number of indices of the bag.", divisor="one"),
        Mistake("repeated rows were counted once", "An index that comes twice counts twice.", divisor="distinct"),
        Mistake("the last index of a bag was left out", "offsets[b + 1] is one past the last index.", last="dropped"),
    ),
    minimum_bytes=bag_bytes,
    hints={
        "unwritten": "Store all columns of every bag, also of an empty one.",
        "values": "Accumulate in fp32 and divide by offsets[b + 1] - offsets[b].",
        "out_of_bounds": "Mask the columns by cols, and loop from offsets[b] to offsets[b + 1].",
        "traffic": "One program takes all columns of a bag, and loads each index once.",
    },
)

# ---------------------------------------------------------------- 12.3 cross-entropy with z-loss

IGNORED = -100


@returns(loss="fp32", gradient="logits")
def z_loss(logits, targets, z, *, ignored="left out", factor=2, target=1, power=2, unscaled=0):
    """Per row lse - x[target] + z * lse ** power, and the gradient of that. target: the number that is subtracted
    there, or "scaled": 1 times the factor of the softmax. unscaled: the width of tiles whose old sums stay as they are.
    """
    rows = np.arange(len(logits))
    top = logits.max(axis=1)
    over = running_max(logits, unscaled) if unscaled else top[:, None]
    lse = top + np.log(np.exp(logits - over).sum(axis=1))
    t = np.where(targets == IGNORED, 0, targets).astype(int)
    gradient = np.exp(logits - lse[:, None]) * (1 + factor * z * lse)[:, None]
    gradient[rows, t] -= 1 + factor * z * lse if target == "scaled" else target
    loss = lse - logits[rows, t] + z * lse**power
    if ignored != "counted":
        left_out = targets == IGNORED if ignored == "left out" else targets <= 0
        loss, gradient = (np.where(left_out, 0, of.T).T for of in (loss, gradient))
    return loss, gradient


def logits_of(rows, cols, dtype, row_stride=None, shift=0.0, some_ignored=False):
    """One column: logits of one sign, so that no gradient is a small difference."""

    def make(rng):
        logits = rng.normal(shift, 1, (rows, cols)) if cols > 1 else rng.uniform(2, 4, (rows, 1))
        targets = rng.integers(0, cols, rows)
        if some_ignored:
            targets[::2] = IGNORED
        return {"logits": tensor(logits, dtype, row_stride), "targets": tensor(targets, "int64"), "z": 0.25}

    return make


def z_bytes(logits, targets, z):
    rows = logits.shape[0]
    size = rows * logits.shape[1] * logits.itemsize
    return {
        "logits": 2 * size + rows * logits.itemsize,
        "targets": 8 * rows,
        "returned 0": 4 * rows,
        "returned 1": size,
    }


Z = Task(
    id="12.3",
    title="Cross-entropy with z-loss",
    points=5,
    functions={"z_loss": z_loss},
    kernel=True,
    cases=(
        *row_cases(logits_of),
        Case(
            "3 x 300, logits near 300",
            logits_of(3, 300, "fp16", shift=300.0),
            hint="Subtract the row's maximum before exp, and keep the gradient in fp32 until its store.",
        ),
        Case(
            "3 x 300, logits near -300",
            logits_of(3, 300, "fp16", shift=-300.0),
            hint="Begin the running maximum at -inf: the largest logit is far below 0 here.",
        ),
        Case(
            "5 x 200, ignored rows",
            logits_of(5, 200, "fp32", some_ignored=True),
            hint="A row whose target is -100 has loss 0 and a gradient of zeros.",
        ),
    ),
    mistakes=(
        Mistake(
            "the gradient lacks z-loss or its factor 2",
            "The derivative of z * lse ** 2 is 2 * z * lse * softmax.",
            {"factor": 0},
            {"factor": 1},
        ),
        Mistake(
            "the target's 1 was left out, or multiplied by z-loss's factor",
            "At the target the gradient is 1 smaller: logits[target] has the derivative 1, whatever z is.",
            {"target": 0},
            {"target": "scaled"},
        ),
        Mistake("lse was not squared", "z-loss is z * lse ** 2.", power=1),
        Mistake(
            "the running sum was not rescaled where the maximum grows",
            "It was added up over the old maximum: multiply it by exp(m_old - m_new) before you add the tile.",
            unscaled=TILE,
        ),
        Mistake(
            "the wrong rows were ignored, or none",
            "A row whose target is -100 gives zeros. Column 0 is a target like others.",
            {"ignored": "counted"},
            {"ignored": "zero"},
        ),
    ),
    minimum_bytes=z_bytes,
    hints={
        "traffic": "Read the row twice: once for the running maximum and sum, once for the gradient.",
        "values": "Everything follows from lse. Work out lse, loss and gradient of one short row on paper.",
        "unwritten": "Store the gradient of every row, zeros for an ignored one.",
        "out_of_bounds": "The target -100 is no column: mask that load.",
    },
)

# ---------------------------------------------------------------- 12.4 AdamW, decoupled decay, a clipped update


@returns(copy="bf16", param="fp32", m="fp32", v="fp32", in_place=("param", "m", "v"))
def clipped_adamw(
    param,
    grad,
    m,
    v,
    lr,
    beta1,
    beta2,
    eps,
    decay,
    clip,
    step,
    *,
    decoupled=True,
    corrected=True,
    clipped="update",
    eps_at="root",
):
    """A step of AdamW whose update m / c1 / (sqrt(v / c2) + eps) is clipped to [-clip, clip] before lr. eps_at: "v"
    adds eps inside the root, "moment" before the correction."""
    grad = grad if decoupled else grad + decay * param
    grad = np.clip(grad, -clip, clip) if clipped == "gradient" else grad
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad**2
    c1, c2 = (1 - beta1**step, 1 - beta2**step) if corrected else (1, 1)
    root = {"root": np.sqrt(v / c2) + eps, "v": np.sqrt(v / c2 + eps), "moment": (np.sqrt(v) + eps) / np.sqrt(c2)}
    update = m / c1 / root[eps_at]
    update = np.clip(update, -clip, clip) if clipped == "update" else update
    param = param * (1 - lr * decay * decoupled) - lr * update
    return param, param, m, v


def state(size, grad_dtype="fp32", step=3, zero=False, unit=1):
    """Gradient and first moment have the same sign, so that no sum is a small difference; unit: of both."""

    def make(rng):
        sign = rng.choice([-1, 1], size) * (not zero)
        return {
            "param": tensor(rng.uniform(1, 2, size), "fp32"),
            "grad": tensor(unit * sign * rng.uniform(0.05, 1, size), grad_dtype),
            "m": tensor(unit * sign * rng.uniform(0.05, 0.6, size), "fp32"),
            "v": tensor(unit**2 * sign**2 * rng.uniform(0.01, 1, size), "fp32"),
            "lr": 0.25,
            "beta1": 0.875,
            "beta2": 0.9375,
            "eps": 1e-8,
            "decay": 0.125,
            "clip": 0.5,
            "step": step,
        }

    return make


TIMED = 1 << 25  # parameters


def timed_state(size=TIMED):
    """The state of so many parameters with a bf16 gradient, all positive, so that no sum is a small difference."""
    means = {"param": ("fp32", 1.5), "grad": ("bf16", 0.5), "m": ("fp32", 0.3), "v": ("fp32", 0.5)}
    vectors = {name: (dtype, mean, mean / 10) for name, (dtype, mean) in means.items()}
    made = {name: RandomTensor((size,), *form) for name, form in vectors.items()}
    return {**state(1)(np.random.default_rng(0)), **made}


def step_bytes(param, grad, m, v, **numbers):
    size = param.shape[0]
    return {"param": 8 * size, "grad": grad.nbytes, "m": 8 * size, "v": 8 * size, "returned 0": 2 * size}


ADAMW = Task(
    id="12.4",
    title="AdamW with decoupled decay and a clipped update",
    points=4,
    functions={"clipped_adamw": clipped_adamw},
    kernel=True,
    cases=(
        Case("1,024 elements", state(1024)),
        Case("1,000 elements, bf16 gradient", state(1000, "bf16"), hint="Convert the gradient to fp32 at its load."),
        Case("one element", state(1)),
        Case("8,193 elements, the first step", state(8193, step=1)),
        Case(
            "777 elements, all gradients and moments zero",
            state(777, zero=True),
            hint="0 / (0 + eps) is 0. The decay applies all the same.",
        ),
        Case("600 elements, gradients near eps", state(600, unit=2e-8)),
        Case(f"{PROGRAMS * 1024 + 5:,} elements", state(PROGRAMS * 1024 + 5, "fp16", step=10)),
    ),
    mistakes=(
        Mistake(
            "the decay went through the moments",
            "Decoupled: param shrinks by lr * decay * param; grad stays.",
            decoupled=False,
        ),
        Mistake("the moments' start was not corrected", "Divide by 1 - beta ** step.", corrected=False),
        Mistake(
            "eps was added in another place",
            "Add it to sqrt(v / c2): behind the root, and after the correction.",
            {"eps_at": "v"},
            {"eps_at": "moment"},
        ),
        Mistake("the gradient was clipped", "Clip the update, after the division by the root.", clipped="gradient"),
        Mistake("nothing was clipped", "The update lies between -clip and clip.", clipped="nothing"),
    ),
    minimum_bytes=step_bytes,
    hints={
        "traffic": "One launch: load param, grad, m and v once, store param, its copy, m and v once.",
        "values": "Moments first, then the correction, the clip, and last the parameter.",
        "unwritten": "Store param, its copy, m and v, of every element.",
        "slow": "Take 1,024 elements a program, next to each other, so that each thread loads and stores 16 bytes.",
    },
    speed=Speed(points=1, share=0.85, bytes=28 * TIMED, shape=f"{TIMED:,} parameters, bf16 gradient", make=timed_state),
)

TASKS = (COUNT, BAG, Z, ADAMW)
