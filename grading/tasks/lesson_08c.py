"""Exercise 08c: a tile's exponentials and its schedule, and a causal kernel with descriptors and two loops."""

import math

import numpy as np

from grading.tasks import TILE, Case, Mistake, RandomTensor, Speed, Task, one_of, returns, tensor
from grading.tasks.lesson_08 import softmax, values

EXERCISE = "08c_fast_attention"

# ---------------------------------------------------------------- 08c.1 count cycles


@returns("share", "cycles")
def best_share(
    queries, keys, head_dim, instructions, warps, flop, polynomial,
    *, matmuls=2, schedulers=4, saved=1, level=True, rising=True,
):  # fmt: skip
    """The share of exponentials that are polynomials with which a tile takes the fewest cycles, and these.

    saved: instructions that a polynomial saves. level, rising: whether the share ends where the SFUs need no more
    cycles than the tensor cores, and than the schedulers.
    """
    tensor, sfus = 2 * matmuls * queries * keys * head_dim / flop, queries * keys / 16
    issue, more = instructions * warps / schedulers, queries * keys / 32 * (polynomial - saved) / schedulers
    ends = [1 - tensor / sfus] * level + [(sfus - issue) / (sfus + more)] * rising
    share = max(0.0, min(ends))
    return share, max(tensor, (1 - share) * sfus, issue + share * more)


@returns("cycles one after another", "cycles in perfect overlap", "cycles that the tile took", "overlap")
def tile_overlap(tensor, sfus, issue, active, *, bound="longest", of_whole=False):
    """Cycles of a tile without overlap, with perfect overlap, and by a counter; how far the tile came from one to the
    other.

    bound: of perfect overlap, the longest resource, or always the tensor cores. of_whole: the share is one of all
    cycles without overlap.
    """
    serial, perfect = tensor + sfus + issue, max(tensor, sfus, issue) if bound == "longest" else tensor
    measured = tensor / active
    return serial, perfect, measured, (serial - measured) / (serial if of_whole else serial - perfect)


@returns("share in the first schedule", "share in the second schedule")
def tensor_busy(tiles, matmul, softmax, *, steady=False, under=1, last=1):
    """Shares of the time in which the tensor cores work for a warpgroup: each step after the one before, and the scores
    of the next tile queued ahead.

    steady: without the first softmax and the last matmul. under: how many matmuls a softmax runs under. last: how many
    matmuls count after the last softmax.
    """
    work, step = 2 * tiles * matmul, (2 - under) * matmul + max(softmax, under * matmul)
    whole = tiles * step if steady else (1 + last) * matmul + softmax + (tiles - 1) * step
    return work / (tiles * (2 * matmul + softmax)), work / whole


def of_chip(tensor, issue, sides=(64, 128), several=(8, 12)):
    """tensor, issue: from, to, cycles of the tensor cores and of the schedulers as shares of the SFUs'. several:
    warps, more than one per scheduler."""

    def make(rng):
        queries, keys, head_dim, warps = (one_of(rng, *sizes) for sizes in (sides, sides, (64, 128), several))
        return {
            "queries": queries,
            "keys": keys,
            "head_dim": head_dim,
            "instructions": round(queries * keys / 4 / warps * rng.uniform(*issue)),
            "warps": warps,
            "flop": round(64 * head_dim / rng.uniform(*tensor)),
            "polynomial": int(rng.integers(6, 13)),
        }

    return make


def of_profile(longest, least=0.05, most=0.9):
    """longest: the resource that a tile needs longest. least, most: of the overlap."""

    def make(rng):
        numbers = 32.0 * rng.choice(np.arange(5, 30), 3, replace=False)
        cycles = dict(zip(("tensor", "sfus", "issue"), numbers.tolist()))
        top = max(cycles, key=cycles.get)
        cycles[top], cycles[longest] = cycles[longest], cycles[top]
        serial = sum(cycles.values())
        measured = serial - rng.uniform(least, most) * (serial - cycles[longest])
        return {**cycles, "active": float(cycles["tensor"] / measured)}

    return make


def of_schedule(least, most, tiles):
    """least, most: of softmax, in matmuls."""

    def make(rng):
        matmul = 32.0 * int(rng.integers(4, 17))
        return {
            "tiles": int(rng.integers(*tiles)),
            "matmul": matmul,
            "softmax": round(matmul * rng.uniform(least, most)),
        }

    return make


CYCLES = Task(
    id="08c.1",
    title="Share the exponentials, and count what overlap gains",
    points=3,
    functions={"best_share": best_share, "tile_overlap": tile_overlap, "tensor_busy": tensor_busy},
    cases=(
        Case("best_share, up to the schedulers' cycles", of_chip((0.2, 0.4), (0.5, 0.7)), "best_share"),
        Case("best_share, few instructions", of_chip((0.2, 0.4), (0.61, 0.69), (32,), (8,)), "best_share"),
        Case("best_share, up to the tensor cores' cycles", of_chip((0.8, 0.95), (0.2, 0.4)), "best_share"),
        Case("best_share, tensor cores longest", of_chip((1.1, 2), (0.3, 0.9)), "best_share"),
        Case("best_share, issue slots longest", of_chip((0.3, 0.8), (1.05, 1.5)), "best_share"),
        Case("tile_overlap, tensor cores longest", of_profile("tensor"), "tile_overlap"),
        Case("tile_overlap, SFUs longest", of_profile("sfus"), "tile_overlap"),
        Case("tile_overlap, issue slots longest", of_profile("issue"), "tile_overlap"),
        Case("tile_overlap, slower than one after another", of_profile("issue", -0.5, -0.1), "tile_overlap"),
        Case("tensor_busy, softmax shorter than a matmul", of_schedule(0.3, 0.9, (2, 9)), "tensor_busy"),
        Case("tensor_busy, softmax longer than a matmul", of_schedule(1.1, 1.8, (3, 9)), "tensor_busy"),
        Case("tensor_busy, softmax longer than both matmuls", of_schedule(2.2, 4, (10, 70)), "tensor_busy"),
        Case("tensor_busy, one tile", of_schedule(0.5, 2, (1, 2)), "tensor_busy"),
    ),
    mistakes=(
        Mistake(
            "the share is larger than it has to be",
            "With more polynomials, the SFUs' cycles fall, the schedulers' rise and the tensor cores' stay. Stop as "
            "soon as the SFUs' are no longer the most.",
            {"level": False},
            {"rising": False},
        ),
        Mistake(
            "work was counted differently",
            "A tile has two matmuls with two FLOPs per multiply-add. Four schedulers share the warps. A polynomial "
            "takes the place of one instruction.",
            {"matmuls": 1},
            {"schedulers": 1},
            {"saved": 0},
        ),
        Mistake("the tensor cores were taken for the bound", "Take the resource needed longest.", bound="tensor"),
        Mistake("the overlap is a share of all cycles", "Divide by what perfect overlap would save.", of_whole=True),
        Mistake(
            "the second schedule takes another time than the card's",
            "Draw three tiles: nothing runs beside the first softmax and the last O, and a softmax waits for its "
            "own S, so the O of the tile before is all that runs beside it.",
            *({"steady": True}, {"under": 2}, {"under": 0}, {"last": 0}),
        ),
    ),
    hints={
        "values": {
            "best_share": "Write down all three for a share, as the card does for 0.25: only the SFUs' fall.",
            "tile_overlap": "Check a tile of the lesson: with 512, 256 and 548 cycles and 0.3127 active, it took 1,637 "
            "cycles, more than one after another.",
            "tensor_busy": "Draw the card's three tiles, and write the cycles of both schedules beside each step.",
        }
    },
)

# ---------------------------------------------------------------- 08c.2 two loops, with descriptors

SIDE = 64  # of a tile, by which bytes are judged
DESCRIPTORS = "load tiles of q, k and v through tensor descriptors"
DIAGONAL = "only the tile on the diagonal needs a mask, so let a loop without one run over the tiles before it"
TIMED = 64, 2048, 128  # heads, sequence, head_dim


@returns(out="q")
def causal_two_loops(
    q, k, v, scale, *, mask=lambda ahead: ahead <= 0, before=1, again=0, base=math.e, unscaled="", width=0, divided=True
):  # fmt: skip
    """Causal attention of tensors [heads, sequence, head_dim].

    mask: of the tile on the diagonal. before, again: how often tiles before it count, and its own without a mask.
    base: of the exponential. divided: by the sum.
    """
    scores = np.einsum("hqd,hkd->hqk", q, k) * scale * math.log(base)
    query, key = np.arange(q.shape[1])[:, None], np.arange(k.shape[1])
    tile, own = key // SIDE, query // SIDE
    counts = before * (tile < own) + (tile == own) * (mask(key - query) + again)
    with np.errstate(divide="ignore"):
        weights, _ = softmax(scores + np.log(counts), unscaled=unscaled, width=width)
    weights = np.where(counts.any(axis=1, keepdims=True), weights, np.nan)
    return np.einsum("hqk,hkd->hqd", weights if divided else weights / weights.max(axis=-1, keepdims=True), v)


def causal_bytes(q, k, v, scale):
    heads, sequence, _ = q.shape
    tiles = sequence // SIDE
    loaded = tiles * (tiles + 1) // 2 * SIDE * k.nbytes // sequence
    return {"q": q.nbytes, "k": loaded, "v": loaded, "returned 0": q.nbytes}


def of_heads(heads, sequence, head_dim, dtype, planted=None, score=120):
    """planted: the keys that have this score with every query."""

    def make(rng):
        shape = heads, sequence, head_dim
        q, k = rng.normal(0, 1, shape), rng.normal(0, 1, shape)
        if planted is not None:
            q[..., 0] = 8.0
            k[:, planted] = 0.0
            k[:, planted, 0] = score / 2
        return {**{n: tensor(x, dtype) for n, x in zip("qkv", (q, k, values(rng, *shape)))}, "scale": 0.25}

    return make


def timed():
    q, k, v = (RandomTensor(TIMED, "bf16", mean, std) for mean, std in ((0, 1), (0, 1), (1.25, 0.3)))
    return {"q": q, "k": k, "v": v, "scale": 128**-0.5}


MASK = "On the diagonal, query i attends to the keys j <= i: set other scores to -inf, since any may be far below -100."
TWO_LOOPS = Task(
    id="08c.2",
    title="Causal attention with descriptors and two loops",
    points=4,
    functions={"causal_two_loops": causal_two_loops},
    kernel=True,
    instruction=(90, {"no loads through pointers": DESCRIPTORS, "a loop without a mask": DIAGONAL}),
    cases=(
        Case("2 heads, 128 tokens, head_dim 64, bf16", of_heads(2, 128, 64, "bf16")),
        Case("1 head, 192 tokens, head_dim 64, fp16", of_heads(1, 192, 64, "fp16")),
        Case("1 head, 128 tokens, head_dim 128, bf16", of_heads(1, 128, 128, "bf16")),
        Case("3 heads, 64 tokens, head_dim 64, bf16: the diagonal alone", of_heads(3, 64, 64, "bf16")),
        Case("1 head, 192 tokens, fp16, large first", of_heads(1, 192, 64, "fp16", 0)),
        Case("1 head, 192 tokens, fp16, large in the second tile", of_heads(1, 192, 64, "fp16", 100)),
        Case("1 head, 64 tokens, fp16, scores of -200", of_heads(1, 64, 64, "fp16", slice(None), -200), hint=MASK),
        Case("151 heads, 64 tokens, head_dim 64, bf16", of_heads(151, 64, 64, "bf16")),
    ),
    mistakes=(
        Mistake(
            "the mask on the diagonal is missing, turned round or one off",
            MASK,
            *({"mask": mask} for mask in (lambda a: a < np.inf, lambda a: a >= 0, lambda a: a <= 1, lambda a: a < 0)),
        ),
        Mistake(
            "a tile was left out or counted twice",
            "The first loop runs over the tiles before the diagonal, all of them, the second over that on it.",
            {"before": 0},
            {"again": 1},
        ),
        Mistake("the output was not divided by the sum", "Behind both loops, divide acc by l.", divided=False),
        Mistake("the weights are powers of 2", "exp2(s) is e^s only if s was multiplied by log2(e).", base=2),
        Mistake(
            "l or the accumulator was not rescaled when the running max rose",
            "Multiply both by the correction factor, in both loops.",
            *({"unscaled": which, "width": TILE} for which in ("o", "l", "lo")),
        ),
    ),
    minimum_bytes=causal_bytes,
    max_tile=(128, 128),
    hints={
        "values": "Subtract the running max before every exponential. The rows of head h begin at h * sequence.",
        "unwritten": "One program per tile of queries of every head; the rows of head h begin at h * sequence.",
        "traffic": "Load each tile up to the diagonal once, none beyond it; take tiles of 64 queries at least.",
        "slow": "Use 64 x 64 tiles with 4 warps and 3 stages, a first loop without a mask, exp2 with the scale folded "
        "into one multiply-add, and the longest tiles first.",
    },
    speed=Speed(
        points=2,
        share=0.5,
        bytes=4 * math.prod(TIMED) * 2,
        flops=2 * math.prod(TIMED) * (TIMED[1] + 1),
        shape=f"{TIMED[0]} heads x {TIMED[1]:,} tokens x {TIMED[2]} bf16",
        make=timed,
    ),
)

TASKS = (CYCLES, TWO_LOOPS)
