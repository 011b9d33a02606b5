"""Exercise 08: attention with a sink, a soft cap, grouped heads and a window: counted, in kernels, and merged."""

import math
from functools import partial

import numpy as np

from grading.tasks import TILE, Case, Mistake, RandomTensor, Speed, Task, ceil, one_of, returns, spread, tensor
from grading.tasks.lesson_06 import finite, running_max
from grading.tasks.properties import PROGRAMS

EXERCISE = "08_flash_attention"


# ---------------------------------------------------------------- 08.1 count


@returns("bytes")
def materialised_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize, *, grouped=True):
    """The scores are written, capped (read, written), turned into weights (read, written) and read; the rest once."""
    scores = batch * heads * sequence * sequence
    rows = 2 * batch * (heads + (kv_heads if grouped else heads)) * sequence
    return (6 * scores + rows * head_dim) * itemsize


@returns("bytes")
def fused_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize, *, grouped=True, lse=4):
    """q, k, v and out once, and the log-sum-exp of each row. lse: bytes of it, or None for itemsize."""
    rows = 2 * batch * (heads + (kv_heads if grouped else heads)) * sequence
    return rows * head_dim * itemsize + (itemsize if lse is None else lse) * batch * heads * sequence


@returns("bytes")
def asked_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize, block, *, lse=4):
    """The same, where each program loads all of k and v."""
    rows = batch * heads * sequence
    keys = rows * ceil(sequence, block)
    return 2 * (rows + keys) * head_dim * itemsize + (itemsize if lse is None else lse) * rows


@returns("flops")
def causal_flops(batch, heads, sequence, head_dim, block, *, tiles="diagonal and below"):
    """Two matmuls in each tile on the diagonal and below."""
    side = sequence // block
    count = {"all": side * side, "below": side * (side - 1) // 2}.get(tiles, side * (side + 1) // 2)
    return 4 * batch * heads * count * block * block * head_dim


def layer(itemsize, block=False):
    """A layer whose sizes all differ, of a sequence that no tile divides. block: with a width of tiles."""

    def make(rng):
        sizes = {"batch": one_of(rng, 2, 3, 4), "heads": one_of(rng, 4, 6, 8), "kv_heads": one_of(rng, 2, 3, 5)}
        sizes["heads"] *= sizes["kv_heads"]
        sizes["sequence"] = 64 * one_of(rng, *range(5, 15)) + one_of(rng, *range(1, 32))
        sizes |= {"head_dim": one_of(rng, 80, 96, 128), "itemsize": itemsize}
        return sizes | {"block": one_of(rng, 32, 64)} if block else sizes

    return make


def whole_tiles(rng):
    """A sequence of several whole tiles."""
    block = one_of(rng, 32, 64, 128)
    sizes = {"batch": one_of(rng, 2, 3, 4), "heads": one_of(rng, 8, 12, 16), "sequence": block * one_of(rng, 3, 5, 8)}
    return {**sizes, "head_dim": one_of(rng, 80, 96, 112), "block": block}


HEADS_OF_Q = Mistake(
    "k and v were counted with as many heads as q",
    "Several query heads share a key head: k and v have kv_heads of them.",
    grouped=False,
)
LSE_BYTES = Mistake(
    "the log-sum-exp was left out, or counted with itemsize",
    "It is one fp32 number per query and head: 4 bytes, whatever itemsize is.",
    {"lse": 0},
    {"lse": None},
)
COUNT = Task(
    id="08.1",
    title="Count what is stored, asked for and computed",
    points=3,
    functions={of.__name__: of for of in (materialised_bytes, fused_bytes, asked_bytes, causal_flops)},
    cases=(
        *(
            Case(f"{name}, elements of {size} bytes", layer(size, name == "asked_bytes"), name)
            for name in ("materialised_bytes", "fused_bytes", "asked_bytes")
            for size in (2, 4)
        ),
        *(Case(f"causal_flops, {which} sizes", whole_tiles, "causal_flops") for which in ("some", "other")),
    ),
    mistakes=(
        HEADS_OF_Q,
        LSE_BYTES,
        Mistake(
            "the wrong tiles were counted",
            "Tiles on the diagonal are computed whole, and those above are skipped: n (n + 1) / 2 of n n tiles.",
            {"tiles": "all"},
            {"tiles": "below"},
        ),
    ),
    hints={
        "form": "Bytes and FLOPs are whole numbers: return an int, with // where you divide.",
        "values": "Write one line per operation, or per tensor, with each matrix that it reads or writes; then add up.",
    },
)

# ---------------------------------------------------------------- attention, and ways to get it wrong


def softmax(scores, sink=-np.inf, *, sink_term="rescaled", unscaled="", width=0, padding=0, lse="natural"):
    """Weights and log-sum-exp of scores [..., heads, queries, keys] and the sink of each head.

    unscaled: of the sum "l" and the accumulator "o", those that a loop over tiles of `width` does not rescale.
    padding: the width of tiles whose masked-out elements count as scores of 0.
    """
    keys = scores.shape[-1]
    scores = np.pad(scores, [(0, 0)] * (scores.ndim - 1) + [(0, -keys % padding)]) if padding else scores
    sink = np.broadcast_to(sink, scores.shape[-3])[:, None, None]
    top = finite(np.maximum(scores.max(axis=-1, keepdims=True), sink))
    e, sink_e = np.exp(scores - top), np.exp(sink - (0 if sink_term == "plain" else top))
    tile_e = np.exp(scores - np.maximum(running_max(scores, width), sink)) if unscaled else e
    l = e.sum(axis=-1, keepdims=True) + {"none": 0, "one": 1}.get(sink_term, sink_e)  # noqa: E741
    if "l" in unscaled:
        l = tile_e.sum(axis=-1, keepdims=True) + np.isfinite(sink)  # noqa: E741
    l = np.where(l == 0, 1, l)  # noqa: E741
    log_sum = {
        "natural": top + np.log(l),
        "base 2": (top + np.log(l)) / np.log(2),
        "two bases": top + np.log2(l),
        "maximum in base 2": top / np.log(2) + np.log(l),
        "sum alone": np.log(l),
    }[lse]
    return ((tile_e if "o" in unscaled else e) / l)[..., :keys], log_sum[..., 0]


RESCALE = Mistake(
    "l or the accumulator was not rescaled when the running maximum rose",
    "Both were summed over the old maximum: multiply both by exp(m_old - m_new) before you add the tile.",
    *({"unscaled": which, "width": TILE} for which in ("o", "l", "lo")),
)
LSE = Mistake(
    "lse is not m + log(l) in natural logarithms",
    "lse = m + log(l). If m and l are kept for exp2, it is (m + log2(l)) * log(2).",
    *({"lse": which} for which in ("base 2", "two bases", "maximum in base 2", "sum alone")),
    results=("lse",),
)
NO_SINK = Mistake("the sink was left out of the sum", "Add exp(sink - m) to l.", sink_term="none")
SINK_AS_IT_IS = Mistake(
    "the term of the sink was not rescaled",
    "It is exp(sink - m) for the final m: start from m = sink and l = 1, and the loop rescales it.",
    {"sink_term": "one"},
    {"sink_term": "plain"},
)

# ---------------------------------------------------------------- inputs


def values(rng, *shape):
    """Values of v: none near zero, so that no row of the result is a small difference of large numbers."""
    return rng.uniform(0.5, 2, shape)


def planted(at, score, others=0.0):
    """Key `at` has this score with every other query and half of it with the rest, and all other keys have `others`
    times as much. The dot products are exact in any order."""

    def change(q, k, scale):
        rows = q.reshape(-1, q.shape[-1])
        rows[0::2, 0], rows[1::2, 0] = 8.0, 4.0
        k[:] = 0.0
        k[..., 0] = others * score / (8.0 * scale)
        k[:, at, ..., 0] = score / (8.0 * scale)

    return change


FIRST, LAST = planted(0, 240.0), planted(-1, 240.0)
BELOW = planted(0, -240.0, others=1.5)  # all scores below -104
DWARFED = planted(0, 8.0, others=-17 / 8)  # with every other query, each other key has 2**-18 of the first one's weight


def inputs(q_shape, k_shape, dtype="fp32", scale=0.3, heads=0, sink=None, change=None, positive=False, **more):
    """q, k and v of these shapes, and plain values.

    heads: with a sink for each, `sink` (one number, or one per head) or random. change(q, k, scale) edits q and k.
    positive: so that every score is. strides: of q, k and v, None for a contiguous one.
    """
    strides = more.pop("strides", (None, None, None))

    def make(rng):
        q, k = (rng.uniform(0.5, 1.5, of) if positive else rng.normal(0, 1, of) for of in (q_shape, k_shape))
        if change:
            change(q, k, scale)
        named = zip("qkv", (q, k, values(rng, *k_shape)), strides)
        arguments = {name: spread(of, dtype, *step) if step else tensor(of, dtype) for name, of, step in named}
        if heads:
            arguments["sink"] = tensor(rng.normal(0.5, 1, heads) if sink is None else np.full(heads, sink))
        return {**arguments, "scale": scale, **more}

    return make


# ---------------------------------------------------------------- 08.2 the loop in PyTorch


@returns(out="fp32", lse="fp32")
def tile_loop(q, k, v, sink, scale, *, sink_term="rescaled", unscaled="", width=0, lse="natural"):
    """Attention of heads side by side, [heads, sequence, head_dim]."""
    scores = np.einsum("hqd,hkd->hqk", q, k) * scale
    weights, log_sum = softmax(scores, sink, sink_term=sink_term, unscaled=unscaled, width=width, lse=lse)
    return np.einsum("hqk,hkd->hqd", weights, v), log_sum


def of_heads(heads, queries, keys, head_dim, dtype="fp32", block=32, **more):
    """Heads side by side, with their sinks."""
    return inputs((heads, queries, head_dim), (heads, keys, head_dim), dtype, heads=heads, block=block, **more)


ABOVE = (6.0, 1000.0)  # sinks of two heads: above all scores, and so far above that exp(sink - score) overflows in fp64
FAR_SINK = "Here one head has a sink of 1000: it counts for the maximum too, or exp(sink - m) is infinite."
LATE = "The largest score, 120 or 240, is in the last tile: rescale everything that came before."
EARLY = "Scores of 120 or 240 are in the first tile: the running maximum must never fall, and each row has its own."
LOW = "All scores and sinks lie below -104: a running maximum that starts at 0 makes every exponential 0."
BY_HAND = "Follow m, l and the accumulator through two tiles by hand: m never falls, so no exponent is positive."

TILE_LOOP = Task(
    id="08.2",
    title="The tile loop, in PyTorch, with a sink",
    points=4,
    functions={"tile_loop": tile_loop},
    cases=(
        Case("2 heads, 16 queries, 96 keys, fp32, tiles of 32", of_heads(2, 16, 96, 16)),
        Case("3 heads, 20 queries, 90 keys, fp16, tiles of 32: ragged", of_heads(3, 20, 90, 16, "fp16")),
        Case("2 heads, 7 queries, 50 keys, bf16, one tile of 64", of_heads(2, 7, 50, 16, "bf16", 64)),
        Case("2 heads, 8 queries, 64 keys, large first", of_heads(2, 8, 64, 16, change=FIRST), hint=EARLY),
        Case("2 heads, 8 queries, 64 keys, large last", of_heads(2, 8, 64, 16, change=LAST), hint=LATE),
        Case("2 heads, 8 queries, 70 keys, sinks above all scores", of_heads(2, 8, 70, 16, sink=ABOVE), hint=FAR_SINK),
        Case(
            "2 heads, 8 queries, 70 keys, a sink of -inf",
            of_heads(2, 8, 70, 16, sink=-np.inf),
            hint="A sink of -inf adds nothing: exp(-inf - m) is 0, and -inf - (-inf) would be NaN.",
        ),
        Case(
            "2 heads, 8 queries, 70 keys, all scores below -104",
            of_heads(2, 8, 70, 16, scale=0.25, sink=(-np.inf, -300.0), change=BELOW),
            hint=LOW,
        ),
    ),
    mistakes=(NO_SINK, SINK_AS_IT_IS, RESCALE, LSE),
    max_tile=lambda q, k, block, **rest: len(q) * max(q[0].size, len(q[0]) * block, block * q.shape[2]),
    hints={
        "traffic": "Slice k and v first, then convert and multiply: no operation touches more than a tile.",
        "values": BY_HAND,
    },
)

# ---------------------------------------------------------------- 08.3 the forward kernel


@returns(out="q", lse="fp32")
def sink_attention(q, k, v, sink, scale, *, sink_term="rescaled", unscaled="", width=0, padding=0):
    """Attention of tensors [batch, sequence, heads, head_dim]."""
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * scale
    weights, lse = softmax(scores, sink, sink_term=sink_term, unscaled=unscaled, width=width, padding=padding)
    return np.einsum("bhqk,bkhd->bqhd", weights, v), lse


def of_sequences(batch, queries, keys, heads, head_dim, dtype="fp32", cap=None, **more):
    """Tensors [batch, sequence, heads, head_dim], with sinks, or with a soft cap in their place."""
    more |= {"heads": heads} if cap is None else {"cap": cap}
    return inputs((batch, queries, heads, head_dim), (batch, keys, heads, head_dim), dtype, **more)


TILE_ROWS = 32  # queries per tile, by which bytes are judged
WIDEST = 64  # side of a tile


def sink_bytes(q, k, v, sink, scale):
    batch, queries, heads, _ = q.shape
    tiles = ceil(queries, TILE_ROWS)
    loads = {"q": q.nbytes, "k": tiles * k.nbytes, "v": tiles * v.nbytes, "sink": 4 * batch * heads * tiles}
    return {**loads, "returned 0": q.nbytes, "returned 1": 4 * batch * queries * heads}


TIMED = 64, 512, 8, 64  # batch, sequence, heads, head_dim


def timed_attention():
    """The timed call of the forward kernel; values have a mean, so that no row of the result is a small difference."""
    q, k, v = (RandomTensor(TIMED, "bf16", mean, std) for mean, std in ((0, 1), (0, 1), (1.25, 0.3)))
    return {"q": q, "k": k, "v": v, "sink": RandomTensor(TIMED[2:3], "fp32"), "scale": 0.125}


STRIDES = "Use the strides of each tensor: these are views, whose strides need not be those of a contiguous one."
KERNEL_HINTS = {
    "values": BY_HAND,
    "out_of_bounds": "Mask a tile that reaches past the end: rows < queries for q and out, columns < keys for k and v. "
    "If the masks are right, check which stride belongs to which index.",
    "unwritten": "The grid has to cover every tile of queries of every head of every sequence.",
}

FORWARD = Task(
    id="08.3",
    title="The forward kernel",
    points=5,
    functions={"sink_attention": sink_attention},
    kernel=True,
    cases=(
        Case("1 x 64 queries, 96 keys, 2 heads of 16, fp32", of_sequences(1, 64, 96, 2, 16)),
        Case("1 x 33 queries, 70 keys, 1 head of 32, fp32: ragged", of_sequences(1, 33, 70, 1, 32, scale=0.2)),
        Case(
            "2 x 9 queries, 35 keys, 3 heads of 16, fp16, all strides different",
            of_sequences(2, 9, 35, 3, 16, "fp16", strides=((432, 48, 16, 1), (1680, 16, 560, 1), (2240, 64, 16, 1))),
            hint=STRIDES,
        ),
        Case("1 x 70 queries, 100 keys, 2 heads of 64, bf16", of_sequences(1, 70, 100, 2, 64, "bf16", scale=0.1)),
        Case("1 x 5 queries, 80 keys, large first", of_sequences(1, 5, 80, 1, 16, change=FIRST), hint=EARLY),
        Case("1 x 5 queries, 80 keys, large last", of_sequences(1, 5, 80, 1, 16, change=LAST), hint=LATE),
        Case("1 x 6 queries, 50 keys, large sinks", of_sequences(1, 6, 50, 2, 16, sink=ABOVE), hint=FAR_SINK),
        Case(
            "1 x 5 queries, 50 keys, all scores and sinks below -104",
            of_sequences(1, 5, 50, 2, 16, scale=0.25, sink=-300.0, change=BELOW),
            hint=LOW,
        ),
        Case(f"{PROGRAMS} x 1 query and key, fp32", of_sequences(PROGRAMS, 1, 1, 1, 16, sink=1.0, positive=True)),
    ),
    mistakes=(
        NO_SINK,
        SINK_AS_IT_IS,
        RESCALE,
        Mistake(
            "masked-out keys counted as scores of 0",
            "A masked-out key that is loaded as 0 has a score of 0: set its score to -inf before the maximum.",
            padding=TILE,
        ),
    ),
    minimum_bytes=sink_bytes,
    max_tile=(WIDEST, WIDEST),
    hints=KERNEL_HINTS
    | {
        "traffic": f"The minimum is what tiles of {TILE_ROWS} queries request: k and v once per tile, q once.",
        "slow": "Give tl.dot its operands in 16 bits, and take 64 queries and 64 keys per tile with 4 warps.",
    },
    speed=Speed(
        points=1,
        share=0.2,
        bytes=4 * math.prod(TIMED) * 2,
        flops=4 * math.prod(TIMED) * TIMED[1],
        shape=f"{TIMED[0]} sequences x {TIMED[1]} tokens x {TIMED[2]} heads x {TIMED[3]} bf16",
        make=timed_attention,
    ),
)

# ---------------------------------------------------------------- 08.4 causal, with a soft cap


@returns(out="q")
def causal_attention(q, k, v, scale, cap, *, offset=0, corner=False, unscaled="", width=0):
    """Causal attention of tensors [batch, sequence, heads, head_dim] with soft-capped scores; 0 for rows without a key.

    offset: of the diagonal. corner: the diagonal starts at the first key.
    """
    queries, keys = q.shape[1], k.shape[1]
    scores = cap * np.tanh(np.einsum("bqhd,bkhd->bhqk", q, k) * scale / cap)
    last = np.arange(queries)[:, None] + (0 if corner else keys - queries) + offset
    weights, _ = softmax(np.where(np.arange(keys) <= last, scores, -np.inf), unscaled=unscaled, width=width)
    return np.einsum("bhqk,bkhd->bqhd", weights, v)


#: A prompt behind keys - queries keys that a cache holds.
of_prompt = partial(of_sequences, cap=4.0, scale=0.4)


def causal_bytes(q, k, v, scale, cap):
    """Each program loads whole tiles of keys, up to the last key that one of its queries attends to."""
    queries, keys = q.shape[1], k.shape[1]
    lasts = [min(first + TILE_ROWS, queries) + keys - queries for first in range(0, queries, TILE_ROWS)]
    loaded = sum(min(keys, ceil(max(last, 0), TILE_ROWS) * TILE_ROWS) for last in lasts) * k.nbytes // keys
    return {"q": q.nbytes, "k": loaded, "v": loaded, "returned 0": q.nbytes}


LAST_QUERIES = "The queries are the last ones of the sequence: query i attends to the keys up to i + keys - queries."
CAUSAL = Task(
    id="08.4",
    title="Causal, without the tiles above the diagonal",
    points=5,
    functions={"causal_attention": causal_attention},
    kernel=True,
    cases=(
        Case("1 x 96 queries and keys, 2 heads of 16", of_prompt(1, 96, 96, 2, 16)),
        Case("1 x 70 queries and keys, 1 head of 32: ragged", of_prompt(1, 70, 70, 1, 32, scale=0.25)),
        Case("2 x 40 queries at the end of 70 keys, 2 heads", of_prompt(2, 40, 70, 2, 16), hint=LAST_QUERIES),
        Case("1 x 64 queries at the end of 97 keys", of_prompt(1, 64, 97, 1, 16), hint=LAST_QUERIES),
        Case(
            "1 x 50 queries, 20 keys: the first 30 attend to none",
            of_prompt(1, 50, 20, 1, 16),
            hint="Where a query attends to no key, m is -inf and l is 0: its output is 0, not NaN.",
        ),
        Case("1 x 40 queries, large first", of_prompt(1, 40, 40, 1, 16, cap=400.0, change=FIRST), hint=EARLY),
        Case(
            "1 x 40 queries and keys, all scores below -104",
            of_prompt(1, 40, 40, 1, 16, cap=400.0, scale=0.25, change=BELOW),
            hint=LOW,
        ),
        Case(f"{PROGRAMS} x 1 query and key", of_prompt(PROGRAMS, 1, 1, 1, 16)),
    ),
    mistakes=(
        Mistake("the diagonal is in the wrong place", LAST_QUERIES, {"offset": -1}, {"offset": 1}, {"corner": True}),
        RESCALE,
    ),
    minimum_bytes=causal_bytes,
    max_tile=(WIDEST, WIDEST),
    hints=KERNEL_HINTS
    | {
        "values": "Cap the scores first, then mask them with -inf: tanh(-inf) is -1. " + BY_HAND,
        "traffic": f"The minimum is what tiles of {TILE_ROWS} by {TILE_ROWS} on the diagonal and below request: end "
        "the loop at the last key that the last query of the tile attends to.",
    },
)

# ---------------------------------------------------------------- 08.5 a step of decoding


@returns(out="q", lse="fp32")
def decode_step(q, k, v, scale, *, grouping="blocks", unscaled="", width=0, lse="natural"):
    """One query [batch, heads, head_dim] for k and v [batch, keys, kv_heads, head_dim]."""
    heads, kv_heads = q.shape[1], k.shape[2]
    head = {"blocks": np.arange(heads) * kv_heads // heads, "modulo": np.arange(heads) % kv_heads}[grouping]
    scores = np.einsum("bhd,bkhd->bhk", q, k[:, :, head])[:, :, None] * scale
    weights, log_sum = softmax(scores, unscaled=unscaled, width=width, lse=lse)
    return np.einsum("bhk,bkhd->bhd", weights[:, :, 0], v[:, :, head]), log_sum[..., 0]


def of_cache(batch, keys, kv_heads, group, head_dim=16, strides=None, scale=0.25, **more):
    """A query per sequence, and a cache of keys and values."""
    shapes = (batch, kv_heads * group, head_dim), (batch, keys, kv_heads, head_dim)
    return inputs(*shapes, "fp16", scale, strides=(None, strides, strides), **more)


def cache_bytes(q, k, v, scale):
    batch, heads, _ = q.shape
    return {"q": q.nbytes, "k": k.nbytes, "v": v.nbytes, "returned 0": q.nbytes, "returned 1": 4 * batch * heads}


GROUPED = Task(
    id="08.5",
    title="A step of decoding, with grouped heads",
    points=5,
    functions={"decode_step": decode_step},
    kernel=True,
    cases=(
        Case("2 x 100 keys, 2 key heads for 4 query heads each", of_cache(2, 100, 2, 4)),
        Case("1 x 70 keys, 3 key heads for 2 query heads each, head_dim 32", of_cache(1, 70, 3, 2, 32, scale=0.2)),
        Case("2 x 33 keys, 2 key heads for 5 query heads each", of_cache(2, 33, 2, 5)),
        Case("1 x 40 keys, one key head for 16 query heads", of_cache(1, 40, 1, 16)),
        Case("1 x 40 keys, as many key heads as query heads", of_cache(1, 40, 3, 1)),
        Case(
            "2 x 35 keys of a cache that holds 48, heads outside",
            of_cache(2, 35, 2, 4, strides=(2 * 48 * 16, 16, 48 * 16, 1)),
            hint=STRIDES,
        ),
        Case("1 x 80 keys, large first", of_cache(1, 80, 1, 4, change=FIRST), hint=EARLY),
        Case("1 x 80 keys, large last", of_cache(1, 80, 1, 4, change=LAST), hint=LATE),
        Case("1 x 80 keys, all scores below -104", of_cache(1, 80, 1, 4, change=BELOW), hint=LOW),
        Case(
            "1 x 800 keys, the first far above many others",
            of_cache(1, 800, 1, 4, change=DWARFED),
            hint="799 keys together weigh 0.3% of the first one: a sum in 16 bits absorbs none of them.",
        ),
        Case(f"{PROGRAMS} x 1 key, one head", of_cache(PROGRAMS, 1, 1, 1, positive=True)),
    ),
    mistakes=(
        Mistake(
            "query head h reads key head h % kv_heads",
            "Neighboring query heads share a key head: h // group, with group = heads // kv_heads.",
            grouping="modulo",
        ),
        RESCALE,
        LSE,
    ),
    minimum_bytes=cache_bytes,
    max_tile=(WIDEST, WIDEST),
    hints={
        "values": BY_HAND,
        "traffic": "One program per sequence and key head reads k and v once, for all query heads of the group.",
        "unwritten": "A program stores all query heads of its group; the grid has one per sequence and key head.",
        "out_of_bounds": "The tile has 16 rows: mask those beyond the group in q, out and lse, and the keys after the "
        "last in k and v, which have their own strides.",
    },
)

# ---------------------------------------------------------------- 08.6 merge


@returns(out="fp32", lse="fp32")
def merge_parts(parts, lse, sink, *, sinks=1, padding=0):
    """Partial results [splits, batch, heads, head_dim] and their log-sum-exps, merged with a sink per head.

    sinks: how often the sink counts. padding: the width of tiles whose masked-out elements count as splits of lse 0.
    """
    top = np.maximum(lse.max(axis=0), sink)
    weights = np.exp(lse - top)
    total = weights.sum(axis=0) + (len(parts) if sinks == "splits" else sinks) * np.exp(sink - top)
    total = total + (-len(parts) % padding * np.exp(-top) if padding else 0)
    return (weights[..., None] * parts).sum(axis=0) / total[..., None], top + np.log(total)


def of_parts(splits, batch, heads, head_dim, around=3.0, empty=(), sink=None, gap=0.0):
    """Partial results whose log-sum-exps lie around a number. empty: (split, sequence) pairs without a key.

    gap: by how much one split of each row lies above the others and the sink. Far from 0 there has to be a gap: the
    merged log-sum-exp is then exact in fp32, and exp(lse - merged) is as good a weight as any.
    """

    def make(rng):
        parts, lse = values(rng, splits, batch, heads, head_dim), rng.normal(around, 1, (splits, batch, heads))
        lse -= gap * (np.arange(splits)[:, None, None] != rng.integers(splits, size=(batch, heads)))
        for split, sequence in empty:
            parts[split, sequence], lse[split, sequence] = 0.0, -np.inf
        sinks = rng.normal(around - 1 - gap, 1, heads) if sink is None else np.full(heads, sink)
        return {"parts": tensor(parts), "lse": tensor(lse), "sink": tensor(sinks)}

    return make


def merge_bytes(parts, lse, sink):
    splits, batch, heads, head_dim = parts.shape
    rows = 4 * batch * heads
    return {"parts": parts.nbytes, "lse": lse.nbytes, "sink": rows, "returned 0": rows * head_dim, "returned 1": rows}


MERGE = Task(
    id="08.6",
    title="Merge the parts of a split",
    points=4,
    functions={"merge_parts": merge_parts},
    kernel=True,
    cases=(
        Case("4 splits, 2 sequences, 3 heads of 32", of_parts(4, 2, 3, 32)),
        Case("1 split, 2 sequences, 2 heads of 64", of_parts(1, 2, 2, 64)),
        Case("33 splits, 1 sequence, 1 head of 16", of_parts(33, 1, 1, 16)),
        *(Case(f"3 splits, log-sum-exps near {n}", of_parts(3, 2, 2, 16, around=n, gap=30.0)) for n in (110, -110)),
        Case(
            "4 splits, some of which saw no key",
            of_parts(4, 2, 2, 16, empty=((0, 0), (3, 0), (1, 1))),
            hint="A split that saw no key has an lse of -inf and a weight of 0.",
        ),
        Case("2 splits, a sink above them", of_parts(2, 2, 2, 16, sink=9.0)),
        Case("2 splits, a sink of -120", of_parts(2, 2, 2, 16, sink=-120.0)),
        Case(
            "2 splits that saw no key, sinks of 120 and -120",
            of_parts(2, 1, 2, 16, empty=((0, 0), (1, 0)), sink=(120.0, -120.0)),
            hint="Where no split saw a key, the sink is all there is: out is 0 and lse is the sink.",
        ),
        Case(f"2 splits, {PROGRAMS} sequences, 1 head of 16", of_parts(2, PROGRAMS, 1, 16)),
    ),
    mistakes=(
        Mistake(
            "the sink was left out of the sum",
            "The sink is one more part whose output is 0 and whose log-sum-exp is its logit.",
            sinks=0,
        ),
        Mistake("the sink was added once per split", "The parts do not include the sink: add it once.", sinks="splits"),
        Mistake(
            "masked-out splits were counted",
            "A masked-out lse that is loaded as 0 has the weight exp(0 - m). Which lse has a weight of 0?",
            padding=TILE,
        ),
    ),
    minimum_bytes=merge_bytes,
    max_tile=(64, 64),
    hints={
        "values": "Weight each part by exp(lse - m), and divide by the sum of the weights and of exp(sink - m).",
        "traffic": "Load each part once, weight it, add it.",
        "out_of_bounds": "sink has one number per head. Mask the elements after the last split: tl.arange takes a "
        "power of two. From one split of parts to the next it is batch * heads * head_dim elements.",
        "unwritten": "The grid has one program per head of each sequence.",
    },
)

# ---------------------------------------------------------------- 08.7 which loop breaks

BLOCK = 16  # keys per tile of the loops
LARGEST = 300.0  # of a score
OFF_BY = 0.1
#: loop: (maximum before the first tile, the next one), as in the cell of the exercise
LOOPS = {
    "a": (-np.inf, lambda m, top: max(m, top)),
    "b": (-np.inf, lambda m, top: top),
    "c": (-np.inf, lambda m, top: top if top > m + 8 else m),
    "d": (0.0, lambda m, top: max(m, top)),
}
WRONG = {
    "b": "It subtracts the maximum of the current tile, and rescales by exp(m - m_new). When is that infinite?",
    "d": "It starts from a maximum that no score has. Which scores are too far away from it?",
}


def attend(loop, scores, values):
    """One row of attention in fp32 by one of the loops."""
    m, next_maximum = LOOPS[loop]
    m, total, out = np.float32(m), np.float32(0), np.float32(0)
    with np.errstate(all="ignore"):
        for at in range(0, len(scores), BLOCK):
            tile = scores[at : at + BLOCK].astype(np.float32)
            m_new = np.float32(next_maximum(m, tile.max()))
            factor, weights = np.exp(m - m_new), np.exp(tile - m_new)
            total = total * factor + weights.sum(dtype=np.float32)
            out = out * factor + (weights * values[at : at + BLOCK].astype(np.float32)).sum(dtype=np.float32)
            m = m_new
        return float(out / total)


def fault_of(arguments, returned):
    """What is wrong with the answer for one loop; '' where it is right."""
    loop, keys = arguments["loop"], arguments["keys"]
    if len(returned) != 1:
        return f"loop {loop!r}: {len(returned)} values were returned, expected a tensor of scores or None"
    scores = returned[0]
    if loop not in WRONG:
        return (
            f"loop {loop!r} is right for all scores up to {LARGEST:g}: expected None. A maximum that lags behind does "
            "no harm while no exponential overflows and the sum does not underflow"
        ) * (scores is not None)
    if scores is None:
        return f"loop {loop!r} is not right for all scores: expected a tensor, got None. {WRONG[loop]}"
    if not isinstance(scores, np.ndarray) or scores.shape != (keys,) or arguments["_dtypes"][0] != "fp32":
        return f"loop {loop!r}: expected an fp32 tensor of shape [{keys}], one score per key"
    if not np.isfinite(scores).all() or np.abs(scores).max() > LARGEST:
        return f"loop {loop!r}: every score has to lie between -{LARGEST:g} and {LARGEST:g}"
    weights, values = np.exp(scores - scores.max()), np.linspace(1, 2, keys)
    right = float(weights @ values / weights.sum())
    results = {name: attend(name, scores, values) for name in LOOPS}
    if abs(results[loop] / right - 1) < OFF_BY:
        return f"loop {loop!r} gives {results[loop]:.6g} on your scores, and {right:.6g} is right. {WRONG[loop]}"
    others = [name for name in LOOPS if name != loop and not abs(results[name] / right - 1) < 1e-3]
    if others:
        return f"both loop {loop!r} and loop {others[0]!r} fail on your scores: find scores where only {loop!r} fails"
    return ""


def of_loop(loop):
    return lambda rng: {"loop": loop, "keys": BLOCK * int(rng.integers(3, 9))}


HUNT = Task(
    id="08.7",
    title="Which loop breaks? Plant the scores that show it",
    points=3,
    functions={"show_wrong": None},
    verdict=fault_of,
    cases=tuple(Case(f"loop {loop}, {turn}", of_loop(loop)) for loop in LOOPS for turn in ("some keys", "other keys")),
    hints={"passed": "each wrong loop gives NaN or is off by 10% on your scores, and the others are right there"},
)

# ---------------------------------------------------------------- 08.8 a sliding window


@returns(out="q")
def window_attention(q, k, v, scale, window, *, first=0, last=0, unscaled="", width=0):
    """Causal attention of tensors [batch, sequence, heads, head_dim] to the last `window` keys.

    first, last: by how much the first and the last key of a query are off.
    """
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * scale
    query, key = np.arange(q.shape[1])[:, None], np.arange(k.shape[1])
    mask = (key > query - window + first) & (key <= query + last)
    weights, _ = softmax(np.where(mask, scores, -np.inf), unscaled=unscaled, width=width)
    return np.einsum("bhqk,bkhd->bqhd", weights, v)


def of_window(batch, sequence, heads, head_dim, window, dtype="bf16", scale=0.2, **more):
    """Self-attention with a window."""
    size = batch, sequence, heads, head_dim
    return inputs(size, size, dtype, scale=scale, window=window, **more)


def window_bytes(q, k, v, scale, window):
    """Each program loads whole tiles of keys, from the first key of its first query to the last of its last."""
    sequence = q.shape[1]
    loaded = 0
    for row in range(0, sequence, TILE_ROWS):
        first = max(row - window + 1, 0) // TILE_ROWS * TILE_ROWS
        loaded += min(ceil(min(row + TILE_ROWS, sequence), TILE_ROWS) * TILE_ROWS, sequence) - first
    return {
        "q": q.nbytes,
        "k": loaded * k.nbytes // sequence,
        "v": loaded * v.nbytes // sequence,
        "returned 0": q.nbytes,
    }


NO_KEY_YET = "In the first tile of keys, the last queries of the tile may attend to no key: -inf - (-inf) is NaN."
SLIDING = Task(
    id="08.8",
    title="A sliding window",
    points=4,
    functions={"window_attention": window_attention},
    kernel=True,
    cases=(
        Case("1 x 128 tokens, 2 heads of 16, a window of 40, fp32", of_window(1, 128, 2, 16, 40, "fp32")),
        Case("1 x 160 tokens, 1 head of 64, a window of 64, bf16", of_window(1, 160, 1, 64, 64)),
        Case("2 x 100 tokens, 2 heads of 64, a window of 33, bf16: ragged", of_window(2, 100, 2, 64, 33)),
        Case("1 x 96 tokens, a window of 1, bf16", of_window(1, 96, 1, 64, 1), hint="With a window of 1, out is v."),
        Case("1 x 70 tokens, a window of 1,000: causal, bf16", of_window(1, 70, 1, 64, 1000)),
        Case("1 x 128 tokens, a window of 20, fp16", of_window(1, 128, 1, 16, 20, "fp16"), hint=NO_KEY_YET),
        Case(
            "1 x 64 tokens, a window of 40, all scores below -104, fp32",
            of_window(1, 64, 1, 16, 40, "fp32", 0.25, change=BELOW),
            hint=LOW,
        ),
        Case(f"{PROGRAMS} x 1 token, bf16", of_window(PROGRAMS, 1, 1, 16, 4)),
    ),
    mistakes=(
        Mistake(
            "the window is one key too long or too short",
            "Query i attends to the keys j with i - window < j <= i: `window` keys, itself included.",
            {"first": 1},
            {"first": -1},
        ),
        Mistake(
            "later keys are not masked out, or the query's own key is", "The last key is i.", {"last": 1}, {"last": -1}
        ),
        RESCALE,
    ),
    minimum_bytes=window_bytes,
    max_tile=(WIDEST, WIDEST),
    hints=KERNEL_HINTS
    | {
        "values": "The loop begins at the tile with the first key of the first query. If out is NaN: other queries may "
        "attend to no key of that tile, and -inf - (-inf) is NaN.",
        "traffic": "Begin the loop at the tile that holds the first key of the tile's first query, and end it behind "
        f"the last key of its last query. The minimum is what tiles of {TILE_ROWS} by {TILE_ROWS} request.",
    },
)

TASKS = (COUNT, TILE_LOOP, FORWARD, CAUSAL, GROUPED, MERGE, HUNT, SLIDING)
