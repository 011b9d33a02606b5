"""Exercise 12: a training step counted, an embedding bag, cross-entropy with z-loss, an embedding's gradient."""

import numpy as np

from grading.compare import limits
from grading.tasks import TILE, Case, Mistake, RandomTensor, Speed, Task, ceil, one_of, returns, tensor
from grading.tasks.lesson_06 import running_max
from grading.tasks.properties import PROGRAMS, row_cases
from kernels.shared.tolerances import row_errors

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


def sizes(*names, **given):
    every = {
        "tokens": (1000, 3001, 8192),
        "vocabulary": (32000, 50257, 128256),
        "width": (1024, 4096),
        "itemsize": (2, 4),
        "chunk": (256, 700, 999),
        "rows": (100, 4097),
        "cols": (3, 17, 50, 333),
        "parameters": (10**6 + 1, 8_030_261_248),
        "param_itemsize": (2, 4),
        "grad_itemsize": (2, 4),
    }
    return lambda rng: {name: one_of(rng, *every[name]) for name in names} | given


LOGITS = ("tokens", "vocabulary", "width")
COUNT = Task(
    id="12.1",
    title="Count a training step",
    points=3,
    functions={of.__name__: of for of in (peak_bytes, last_layer_flops, adamw_bytes, gathered_bytes)},
    cases=(
        Case("peak_bytes", sizes(*LOGITS, "chunk"), "peak_bytes"),
        Case(
            "peak_bytes, a chunk above all tokens",
            sizes(*LOGITS, chunk=10_000),
            "peak_bytes",
            hint="No chunk has more rows than there are tokens, and a sum of one part needs no fp32 total.",
        ),
        Case("last_layer_flops, logits computed once", sizes(*LOGITS, recomputed=False), "last_layer_flops"),
        Case("last_layer_flops, logits computed twice", sizes(*LOGITS, recomputed=True), "last_layer_flops"),
        *(
            Case(f"adamw_bytes, {which} sizes", sizes("parameters", "param_itemsize", "grad_itemsize"), "adamw_bytes")
            for which in ("some", "other")
        ),
        Case("gathered_bytes", sizes("rows", "cols", "itemsize"), "gathered_bytes"),
        Case("gathered_bytes, whole sectors", sizes("rows", cols=4096, itemsize=2), "gathered_bytes"),
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

EMPTY = "A bag without weights has no row to average: store zeros, and do not divide by zero."
PADDING = 7


@returns(y="table")
def mean_bag(table, indices, offsets, weights, padding, *, divisor="weights", padded=False, least=0, last=0):
    """The weighted mean of the rows of each bag, zeros for one without weights. offsets [bags + 1]. least: of the
    divisor. last: indices that are left out at a bag's end."""
    bags = []
    for first, end in zip(offsets[:-1].astype(int), offsets[1:].astype(int)):
        at = slice(first, max(first, end - last))
        used = weights[at] * (padded | (indices[at] != padding))
        total = {"weights": used.sum(), "all": weights[at].sum(), "count": end - first, "none": 1}[divisor]
        bags.append(used @ table[indices[at].astype(int)] / max(total or 1, least))
    return np.array(bags)


def bags_of(cols, lengths, dtype, rows=40, scale=1.0):
    """Bags of these lengths over a small table, so that indices repeat; values of one sign. Every third index is the
    padding. A few weights add up to less than 1. scale: of the weights, of each bag."""

    def make(rng):
        scales = np.repeat(np.broadcast_to(scale, len(lengths)), lengths)
        indices = rng.integers(PADDING + 1, rows, sum(lengths))
        indices[:2] = indices[0]  # a row twice in one bag
        indices[2::3] = PADDING
        return {
            "table": tensor(rng.uniform(0.25, 1, (rows, cols)), dtype),
            "indices": tensor(indices, "int64"),
            "offsets": tensor(np.cumsum([0, *lengths]), "int64"),
            "weights": tensor(scales * rng.uniform(0.05, 0.3, sum(lengths))),
            "padding": PADDING,
        }

    return make


def cancelling_rows(rng):
    """Bags of two or three pairs of rows that nearly cancel."""
    rows = rng.uniform(1, 2, (10, 24))
    return bags_of(24, (6, 4), "fp16", 20)(rng) | {
        "table": tensor(np.stack((rows, -rows * rng.uniform(0.9, 0.95)), 1).reshape(20, 24), "fp16"),
        "indices": tensor((2 * rng.integers(4, 10, (5, 1)) + [0, 1]).reshape(-1), "int64"),
        "weights": tensor(np.repeat(rng.uniform(0.05, 0.3, 5), 2)),
    }


def bag_bytes(table, indices, offsets, weights, padding):
    row, bags = table.shape[1] * table.itemsize, offsets.shape[0] - 1
    return {
        "table": row * int((indices.values != padding).sum()),
        "indices": indices.nbytes,
        "offsets": 16 * bags,
        "weights": weights.nbytes,
        "returned 0": bags * row,
    }


BAG = Task(
    id="12.2",
    title="An embedding bag with a weighted mean",
    points=4,
    functions={"mean_bag": mean_bag},
    kernel=True,
    cases=(
        Case("64 columns, bags of 3, 1 and 5", bags_of(64, (3, 1, 5), "fp32")),
        Case("50 columns, ragged", bags_of(50, (4, 2), "fp16"), hint="Mask the columns by cols."),
        Case("33 columns, an empty bag, one of padding alone", bags_of(33, (2, 0, 1, 3), "fp32"), hint=EMPTY),
        Case("16 columns, empty bags at both ends", bags_of(16, (0, 3, 0), "bf16"), hint=EMPTY),
        Case("one column, one bag", bags_of(1, (2,), "fp32")),
        Case("300 columns, weights near 1e4 and 1e-3", bags_of(300, (40, 5), "fp16", scale=(5e4, 0.01))),
        Case("24 columns, fp16 rows that nearly cancel", cancelling_rows, hint="Accumulate in fp32, and round once."),
        Case(f"8 columns, {PROGRAMS} bags", bags_of(8, (3,) + (2,) * (PROGRAMS - 1), "fp16")),
    ),
    mistakes=(
        Mistake("the weighted rows were added, not averaged", "Divide by the sum of the weights.", divisor="none"),
        Mistake("the sum was divided by the number of indices", "Divide by the sum of the weights.", divisor="count"),
        Mistake(
            "the divisor was at least 1", "Weights may add up to less than 1: only a sum of 0 is special.", least=1
        ),
        Mistake(
            "the padding counted",
            "An index that is `padding` adds neither its row nor its weight.",
            *({"divisor": "all"}, {"padded": True}),
        ),
        Mistake("the last index of a bag was left out", "offsets[b + 1] is one past the last index.", last=1),
    ),
    minimum_bytes=bag_bytes,
    hints={
        "unwritten": "Store all columns of every bag, also of an empty one.",
        "values": "Accumulate both sums in fp32. After the loop, divide by any sum but 0 as it is, then round once.",
        "out_of_bounds": "Mask the columns by cols, and loop from offsets[b] to offsets[b + 1].",
        "traffic": "One program takes all columns of a bag and loads each index once, and no row of the padding.",
    },
)

# ---------------------------------------------------------------- 12.3 cross-entropy with z-loss

IGNORED = -100
FAR = (
    "Subtract the row's maximum before exp. Begin the running maximum at -inf: logits and lse may be negative. Keep x "
    "and the gradient in fp32 until the store."
)


@returns(loss="fp32", gradient="logits")
def z_loss(logits, targets, z, *, ignored="left out", factor=2, target=1, power=2, unscaled=0):
    """Per row lse - x[target] + z * lse ** power, and the gradient of that; targets [rows, 1]. target: the number that
    is subtracted there, or "scaled": 1 times the factor of the softmax. unscaled: the width of tiles whose old sums
    stay as they are."""
    rows, targets = np.arange(len(logits)), targets[:, 0]
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


def logits_of(rows, cols, dtype, row_stride=None, shift=0.0, rise=0.0, some_ignored=False):
    """One column: logits of one sign, so that no gradient is a small difference. rise: along a row."""

    def make(rng):
        logits = rng.normal(shift, 1, (rows, cols)) if cols > 1 else rng.uniform(2, 4, (rows, 1))
        logits += np.linspace(0, rise, cols)
        targets = rng.integers(0, cols, rows)
        if some_ignored:
            targets[::2] = IGNORED
        return {"logits": tensor(logits, dtype, row_stride), "targets": tensor(targets[:, None], "int32"), "z": 0.25}

    return make


def z_bytes(logits, targets, z):
    rows, size = logits.shape[0], logits.shape[0] * logits.shape[1] * logits.itemsize
    stored = {"returned 0": 4 * rows, "returned 1": size}
    return {"logits": 2 * size + rows * logits.itemsize, "targets": 4 * rows} | stored


TIMED = (8192, 32768)  # rows, columns
Z = Task(
    id="12.3",
    title="Cross-entropy with z-loss",
    points=4,
    functions={"z_loss": z_loss},
    kernel=True,
    cases=(
        *row_cases(logits_of),
        Case(
            "1 x 100,000, logits near 300", logits_of(1, 100_000, "fp16", shift=300.0), hint=FAR
        ),  # fp16's small numbers
        Case("3 x 300, logits near -300", logits_of(3, 300, "fp16", shift=-300.0), hint=FAR),
        Case(
            "5 x 200, ignored rows",
            logits_of(5, 200, "fp32", some_ignored=True),
            hint="A row whose target is -100 has loss 0 and a gradient of zeros.",
        ),
        Case("2 x 16,500, rising logits", logits_of(2, 16_500, "fp32", rise=8.0)),
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
        "values": "Compute in fp32. Masked-out logits have to be -inf: exp(0) would add 1. The rest follows from lse.",
        "unwritten": "Store the gradient of every row, zeros for an ignored one.",
        "out_of_bounds": "The target -100 is no column: mask that load.",
        "slow": "Wide tiles keep many loads in flight and make few rounds of the loop, each with two reductions: try "
        "4,096 or 8,192 columns, and more warps.",
    },
    speed=Speed(
        points=1,
        share=0.6,
        bytes=3 * TIMED[0] * TIMED[1] * 2,
        shape=f"{TIMED[0]:,} x {TIMED[1]:,}, bf16",
        make=lambda: {
            "logits": RandomTensor(TIMED, "bf16"),
            "targets": RandomTensor((TIMED[0], 1), "int32"),
            "z": 0.25,
        },
    ),
)

# ---------------------------------------------------------------- 12.4 an embedding's gradient, long runs in parts


@returns(heads="fp32", sums="fp32")
def run_sums(dy, order, run, starts, length, *, ordered=True, head="run", added="all", ragged=True):
    """heads [chunks, cols], sums [runs, cols]. head: what it adds up. added: which heads reach the sums. ragged:
    whether a last chunk that is not full counts."""
    count, runs = len(run), len(starts) - 1
    run, sorted_dy = run.astype(int), dy[order.astype(int)] if ordered else dy
    heads, sums = np.zeros((ceil(count, length), dy.shape[1])), np.zeros((runs, dy.shape[1]))
    for p in range(len(heads) if ragged else count // length):
        chunk = np.arange(p * length, min(count, (p + 1) * length))
        continued = p > 0 and run[chunk[0]] == run[chunk[0] - 1]
        first = chunk if head == "chunk" else chunk[run[chunk] == run[chunk[0]]]
        if continued or head == "any":
            heads[p] = sorted_dy[first].sum(axis=0)
        for at in chunk:
            late = continued and run[at] == run[chunk[0]]
            if not late or added == "all" or (added == "next" and starts[run[at]] >= (p - 1) * length):
                sums[run[at]] += sorted_dy[at]
    return heads, sums


RUN_MISTAKES = (
    ({"ordered": False}, "dy was read in the order of the batch: position i is row order[i] of dy"),
    ({"head": "any"}, "a head is of a run that goes on from the chunk before: zeros where a run begins with the chunk"),
    ({"head": "chunk"}, "a head is of one run: it ends where run changes, not with the chunk"),
    ({"added": "none"}, "heads were left out: add those of all chunks after the one in which the run begins"),
    ({"added": "next"}, "only the head of the next chunk was added: a run may go on through many chunks"),
    ({"ragged": False}, "the last chunk, which is not full, was left out"),
)


def launch_fault(metered, cols):
    """What is wrong with who stored the heads, by how many launches; '' if nothing, or if no kernel was played."""
    if metered is None:
        return ""
    if added := [t.name for t in metered.tensors if t.atomics]:
        return f"{added[0]} is changed by atomics, whose order is open. Let one program store each element"
    for program, _, _, first, last in metered.stored_by("returned 0"):
        if {first // cols, last // cols} != {program}:
            return f"program {program} stores other heads than its own: in the first launch program p has chunk p alone"
    if (launches := len(metered.kernels)) != 2:
        return f"the kernels' launches are {launches}, and the task asks for two: the chunks, then their heads"
    return ""


def run_fault(arguments, results):
    """What is wrong with heads or sums, or with who stored the heads; '' if nothing."""
    call = {name: arguments[name] for name in ("dy", "order", "run", "starts", "length")}
    if len(results) != 2:
        return f"{len(results)} results came back, expected two: (heads, sums)"
    for i, (values, right) in enumerate(zip(results, run_sums(**call))):
        name, fp32 = ("heads", "sums")[i], arguments["_dtypes"][i] == "fp32"
        if not isinstance(values, np.ndarray) or values.shape != right.shape or not fp32:
            return f"{name} has to be an fp32 tensor of shape {list(right.shape)}"
        if (row_errors(values, right) <= limits(right, "fp32")).all():
            continue
        for flags, fault in RUN_MISTAKES:
            wrong = run_sums(**call, **flags)[i]
            if not np.allclose(wrong, right, 1e-3) and np.allclose(values, wrong, 1e-5):
                return f"{name}: {fault}"
        row, col = np.unravel_index(np.argmax(np.nan_to_num(np.abs(values - right), nan=np.inf)), right.shape)
        at = f"{name}[{row}, {col}] is {values[row, col]:.6g}, expected {right[row, col]:.6g}"
        return at + ". Work through the card's example by hand; add in fp32, and begin anew where run changes"
    return launch_fault(arguments["_metered"], call["dy"].shape[1])


def runs_of(lengths, cols, length, dtype="fp32", size=1.0):
    """Runs of these lengths, whose tokens lie anywhere in the batch; a column has one sign."""

    def make(rng):
        run, starts = np.repeat(np.arange(len(lengths)), lengths), np.cumsum([0, *lengths])
        order = rng.permutation(len(run))
        for first, end in zip(starts[:-1], starts[1:]):
            order[first:end].sort()
        return {
            "dy": tensor(size * rng.uniform(0.25, 1, (len(run), cols)) * rng.choice([-1, 1], cols), dtype),
            "order": tensor(order, "int32"),
            "run": tensor(run, "int32"),
            "starts": tensor(starts, "int32"),
            "length": length,
        }

    return make


def run_bytes(dy, order, run, starts, length):
    count, runs, row = order.shape[0], starts.shape[0] - 1, 4 * dy.shape[1]
    return {
        "dy": dy.nbytes,
        "order": 4 * count,
        "run": 2 * 4 * count,
        "starts": 4 * 4 * runs,
        "returned 0": 2 * row * ceil(count, length),
        "returned 1": 3 * row * runs,
    }


RUNS = Task(
    id="12.4",
    title="An embedding's gradient, long runs in parts",
    points=5,
    functions={"run_sums": run_sums},
    kernel=True,
    cases=(
        Case("runs of 1, 3 and 2, chunks of 2", runs_of((1, 3, 2), 16, 2)),
        Case("one run of 60, 64 columns, chunks of 8, fp16", runs_of((60,), 64, 8, "fp16")),
        Case(
            "runs that begin and end with a chunk, chunks of 4",
            runs_of((4, 8, 1, 3, 12, 4), 24, 4),
            hint="A run that begins at a chunk's first position was not continued: its head is zero.",
        ),
        Case("runs of 5, 1, 23, 2, 2 and 9, 50 columns, chunks of 8", runs_of((5, 1, 23, 2, 2, 9), 50, 8, "fp16")),
        Case("20 runs of one token, chunks of 4", runs_of((1,) * 20, 8, 4)),
        Case("one column, 2 tokens of one run, chunks of 1", runs_of((2,), 1, 1)),
        Case("7 tokens, chunks of 16", runs_of((2, 5), 33, 16), hint="The only chunk is not full: mask what follows."),
        Case("300 columns, runs of 1 and 30, chunks of 16, bf16", runs_of((1, 30, 2), 300, 16, "bf16")),
        Case(
            "runs of 40 and 3, sums beyond fp16's range",
            runs_of((40, 3), 24, 8, "fp16", size=4000.0),
            hint="Convert each row to fp32 at its load.",
        ),
        Case(f"{PROGRAMS} chunks of 2", runs_of((3, 1) * (PROGRAMS // 2), 8, 2)),
    ),
    verdict=run_fault,
    minimum_bytes=run_bytes,
    hints={
        "traffic": "Each row of dy belongs to one chunk, and its program alone loads it. The second launch reads heads "
        "and sums, never dy.",
        "unwritten": "Every chunk has a head, zeros if no run goes on into it, and every run has a sum.",
        "race": "In the first launch, only the program of the chunk in which a run begins may store its sum. The heads "
        "are added in a second launch: it begins when the first has ended.",
        "out_of_bounds": "The last chunk may be short, and the position after the last one has no run: mask the loads.",
    },
)

TASKS = (COUNT, BAG, Z, RUNS)
