"""Exercise 08b, the backward of attention: what is kept for it, the walk with a sink, the keys' kernel with a cap."""

import numpy as np

from grading.tasks import Case, Slip, Task, gives, tensor
from grading.tasks.lesson_08 import PROGRAMS, TILE_ROWS, WIDEST, ceil, one_of

EXERCISE = "08b_attention_backward"

# ---------------------------------------------------------------- 08b.1 count


@gives("bytes")
def kept_materialised(batch, heads, kv_heads, sequence, head_dim, itemsize):
    """q, k, v and the weights."""
    wide, narrow = batch * heads * sequence * head_dim, batch * kv_heads * sequence * head_dim
    return (wide + 2 * narrow + batch * heads * sequence * sequence) * itemsize


@gives("bytes")
def kept_fused(batch, heads, kv_heads, sequence, head_dim, itemsize):
    """q, k, v, out and the log-sum-exp."""
    wide, narrow = batch * heads * sequence * head_dim, batch * kv_heads * sequence * head_dim
    return (2 * wide + 2 * narrow) * itemsize + 4 * batch * heads * sequence


@gives("flops")
def backward_flops(batch, heads, queries, keys, head_dim):
    """Five products: the scores again, the weights' gradient, dq, dk, dv."""
    return 5 * 2 * batch * heads * queries * keys * head_dim


def layer(itemsize):
    def make(rng):
        kv_heads = one_of(rng, 2, 3, 5)
        return {
            "batch": one_of(rng, 2, 3, 4),
            "heads": kv_heads * one_of(rng, 4, 6, 8),
            "kv_heads": kv_heads,
            "sequence": one_of(rng, *range(301, 999)),
            "head_dim": one_of(rng, 80, 96, 128),
            "itemsize": itemsize,
        }

    return make


def lengths(rng):
    names = ("batch", "heads", "queries", "keys", "head_dim")
    ranges = ((2, 5), (6, 20), (300, 900), (900, 2000), (40, 200))
    return {name: one_of(rng, *range(*between)) for name, between in zip(names, ranges)}


COUNT = Task(
    id="08b.1",
    title="Count what is kept, and what is computed",
    points=2,
    functions={oracle.__name__: oracle for oracle in (kept_materialised, kept_fused, backward_flops)},
    cases=(
        *(Case(f"kept_materialised, elements of {size} bytes", layer(size), "kept_materialised") for size in (2, 4)),
        *(Case(f"kept_fused, elements of {size} bytes", layer(size), "kept_fused") for size in (2, 4)),
        *(Case(f"backward_flops, {which} sizes", lengths, "backward_flops") for which in ("some", "other")),
    ),
    slips=(
        Slip(
            "k and v were counted with as many heads as q",
            "Several query heads share a key head: k and v have kv_heads of them.",
            "kv_heads * sequence * head_dim -> heads * sequence * head_dim",
        ),
        Slip(
            "the weights have as many heads as k",
            "Each query head has weights of its own.",
            "+ batch * heads * sequence * sequence -> + batch * kv_heads * sequence * sequence",
        ),
        Slip(
            "scores and weights were both kept",
            "The gradient of softmax needs the weights alone.",
            "+ batch * heads * sequence * sequence -> + 2 * batch * heads * sequence * sequence",
        ),
        Slip(
            "out was kept beside the weights",
            "With the weights kept, nothing in this backward reads out.",
            "(wide + 2 * narrow -> (2 * wide + 2 * narrow",
        ),
        Slip(
            "out was not kept",
            "delta is made of out and its gradient: out is kept, one row per query.",
            "(2 * wide + 2 * narrow) -> (wide + 2 * narrow)",
        ),
        Slip(
            "the log-sum-exp was left out, or counted with itemsize",
            "It is one fp32 number per query and head: 4 bytes.",
            " + 4 * batch -> + 0 * batch",
            " + 4 * batch -> + itemsize * batch",
        ),
        Slip(
            "elements were counted, not bytes",
            "Multiply by the bytes of an element.",
            "sequence * sequence) * itemsize -> sequence * sequence)",
            "2 * narrow) * itemsize -> 2 * narrow)",
        ),
        Slip(
            "the scores are not computed again",
            "They were not kept: q k^T is the first of five products.",
            "5 * 2 -> 4 * 2",
        ),
        Slip(
            "a multiplication and an addition were counted as one",
            "A multiplication and an addition are two FLOPs.",
            "5 * 2 -> 5",
        ),
        Slip(
            "the forward's two products were counted",
            "The backward has five: the scores again, the gradient of the weights, and those of q, k and v.",
            "5 * 2 -> 2 * 2",
        ),
    ),
    hints={
        "wrong": "Write each gradient as a product of matrices, and note which matrices it reads.",
        "type": "Bytes and FLOPs are whole: return an int.",
    },
)

# ---------------------------------------------------------------- 08b.2 the walk in PyTorch


@gives(dq="q", dk="q", dv="q", dsink="fp32")
def gradients(q, k, v, sink, out, lse, dout, scale):
    """Of attention with a sink, heads side by side, from what its forward left."""
    scores = np.einsum("hqd,hkd->hqk", q, k) * scale
    weights = np.exp(scores - lse[..., None])
    delta = (dout * out).sum(axis=-1)
    dweights = np.einsum("hqd,hkd->hqk", dout, v)
    dscores = weights * (dweights - delta[..., None])
    dq = np.einsum("hqk,hkd->hqd", dscores, k) * scale
    dk = np.einsum("hqk,hqd->hkd", dscores, q) * scale
    dv = np.einsum("hqk,hqd->hkd", weights, dout)
    return dq, dk, dv, -(np.exp(sink[:, None] - lse) * delta).sum(axis=-1)


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def last_tile(of, block):
    """What belongs to the last tile of keys, and zero for the others."""
    keys = of.shape[-1]
    return of * (np.arange(keys) >= (keys - 1) // block * block)


def of_heads(heads, queries, keys, head_dim, block=32, scale=0.3, sink=1.0, around=0.25, apart=1.0, high=0.0):
    """What a forward with sinks around `sink` and values `around` some number got and left, and a gradient of its
    output. high: around it lie the scores of every other query, whose gradient is 0."""

    def make(rng):
        q, k = rng.normal(0, 1, (heads, queries, head_dim)), rng.normal(0, 1, (heads, keys, head_dim))
        v, sinks = rng.normal(around, apart, k.shape), rng.normal(sink, 0.5, heads)
        if high:
            k[..., 0], q[..., 0] = high / (8 * scale), np.where(np.arange(queries) % 2, 8, 0)
        q, k, v = (tensor(of, "fp16") for of in (q, k, v))
        scores = np.einsum("hqd,hkd->hqk", q.values, k.values) * scale
        lse = np.log(np.exp(scores).sum(axis=-1) + np.exp(sinks)[:, None])
        out = np.einsum("hqk,hkd->hqd", np.exp(scores - lse[..., None]), v.values)
        return {
            "q": q,
            "k": k,
            "v": v,
            "sink": tensor(sinks),
            "out": tensor(out, "fp16"),
            "lse": tensor(lse),
            "dout": tensor(rng.uniform(0.5, 1.5, out.shape) * (q.values[..., :1] == 0 if high else 1), "fp16"),
            "scale": scale,
            "block": block,
        }

    return make


HIGH = "exp(110) is infinite in fp32, and infinity times 0 is NaN: subtract lse before exp."

TILES = Task(
    id="08b.2",
    title="The backward in tiles, in PyTorch, with a sink",
    points=5,
    functions={"backward_tiles": gradients},
    cases=(
        Case("2 heads, 20 queries, 64 keys, tiles of 32", of_heads(2, 20, 64, 16)),
        Case("3 heads, 15 queries, 70 keys, tiles of 16: ragged", of_heads(3, 15, 70, 16, 16)),
        Case("2 heads, 12 queries, 40 keys, one tile of 64, another scale", of_heads(2, 12, 40, 32, 64, scale=0.125)),
        Case("1 head, 10 queries, 300 keys, tiles of 8: many", of_heads(1, 10, 300, 16, 8)),
        Case("1 head, 9 queries, 1 key", of_heads(1, 9, 1, 16, around=2.0, apart=0.3)),
        Case("2 heads, 10 queries, 50 keys, sinks above the scores", of_heads(2, 10, 50, 16, sink=6.0)),
        Case(
            "2 heads, 10 queries, 50 keys, scores near 110 for queries whose gradient is 0",
            of_heads(2, 10, 50, 16, scale=0.25, high=110.0),
            hint=HIGH,
        ),
    ),
    slips=(
        Slip(
            "delta was left out",
            "A weight's gradient lowers the other weights' share: subtract delta, the sum of dout * out of the row.",
            "(dweights - delta[..., None]) -> dweights",
            answer="(dp - delta[..., None]) -> dp",
        ),
        Slip("delta was added", "dscores = weights * (dweights - delta).", "dweights - delta -> dweights + delta"),
        Slip(
            "the weights were not normalised",
            "The log-sum-exp holds the maximum and the sum: weights are exp(scores - lse).",
            "np.exp(scores - lse[..., None]) -> np.exp(scores - scores.max(axis=-1, keepdims=True))",
            "np.exp(scores - lse[..., None]) -> np.exp(scores)",
        ),
        Slip(
            "the weights were made without the sink",
            "lse has the sink in it: with exp(scores - lse) the weights of a row add up to less than 1. softmax of the "
            "scores is another thing.",
            "np.exp(scores - lse[..., None]) -> softmax(scores)",
        ),
        Slip(
            "the scores were not scaled",
            "The forward's scores are scale * q k^T: compute the same ones again.",
            'np.einsum("hqd,hkd->hqk", q, k) * scale -> np.einsum("hqd,hkd->hqk", q, k)',
        ),
        Slip(
            "dq was not multiplied by scale",
            "The scores are scale * q k^T: what flows back into q passes the scale.",
            "dscores, k) * scale -> dscores, k)",
            answer="dq += ds @ k_tile * scale -> dq += ds @ k_tile",
            results=("dq",),
        ),
        Slip(
            "dk was not multiplied by scale",
            "The scores are scale * q k^T: what flows back into k passes the scale.",
            "dscores, q) * scale -> dscores, q)",
            results=("dk",),
        ),
        Slip(
            "dq and dk were not multiplied by scale",
            "The scores are scale * q k^T: what flows back into q and k passes the scale.",
            ("dscores, k) * scale -> dscores, k)", "dscores, q) * scale -> dscores, q)"),
            results=("dq", "dk"),
        ),
        Slip(
            "dv was made of the scores' gradient",
            "out = weights v: dv is the weights, transposed, times dout.",
            "weights, dout) -> dscores, dout)",
            results=("dv",),
        ),
        Slip(
            "dq has the last tile of keys alone",
            "Every tile of keys adds to dq: start it at zero and add.",
            "dscores, k) * scale -> last_tile(dscores, TILE), k) * scale",
            answer="dq += ds -> dq = ds",
            results=("dq",),
        ),
        Slip(
            "the sink's gradient has the wrong sign",
            "A larger sink takes weight from every key: dsink = -sum(exp(sink - lse) * delta).",
            ", -(np.exp(sink -> , (np.exp(sink",
            results=("dsink",),
        ),
        Slip(
            "the sink's weight is missing in its gradient",
            "The sink has a weight in each row, exp(sink - lse), and its value is zero: its score's gradient is "
            "weight * (0 - delta).",
            "-(np.exp(sink[:, None] - lse) * delta) -> -(delta)",
            "-(np.exp(sink[:, None] - lse) * delta) -> -(np.exp(sink[:, None]) * delta)",
            results=("dsink",),
        ),
        Slip(
            "delta is missing in the sink's gradient",
            "The sink's value is zero, so its score's gradient is weight * (0 - delta).",
            "-(np.exp(sink[:, None] - lse) * delta) -> -(np.exp(sink[:, None] - lse))",
            results=("dsink",),
        ),
    ),
    tile_elements=lambda q, k, block, **rest: len(q) * max(q[0].size, len(q[0]) * block, block * q.shape[2]),
    hints={
        "whole_tensor": "Slice k and v, and fill slices of dk and dv: no operation sees more than a tile of scores.",
        "nan": "dq is added to: start it at zero. dk and dv are written a slice at a time, to the last key.",
        "wrong": "Take one head, two queries and two keys, and compare each of the five matrices with autograd's.",
    },
)


# ---------------------------------------------------------------- 08b.3 the keys' kernel


@gives(dk="fp32", dv="fp32")
def key_gradients(q, k, v, dout, lse, delta, scale, cap):
    """Of soft-capped attention, [batch, sequence, heads, head_dim]; lse and delta are [batch, heads, queries]."""
    capped = cap * np.tanh(np.einsum("bqhd,bkhd->bhqk", q, k) * scale / cap)
    weights = np.exp(capped - lse[..., None])
    dcapped = weights * (np.einsum("bqhd,bkhd->bhqk", dout, v) - delta[..., None])
    dscores = dcapped * (1 - (capped / cap) ** 2)
    return np.einsum("bhqk,bqhd->bkhd", dscores, q) * scale, np.einsum("bhqk,bqhd->bkhd", weights, dout)


def whole_rows(queries, width):
    """1 for queries in whole tiles, 0 behind."""
    return (np.arange(queries) < queries // width * width)[:, None].astype(float)


def of_sequences(batch, queries, keys, heads, head_dim, scale=0.2, cap=2.0, high=0.0):
    """What a forward got and left. delta is drawn, and so that only positive numbers are added up for dk and dv: no row
    of them is a small difference of large numbers. high: the scores of every other query, whose gradient is 0; those of
    the rest are 0 then, where a large cap costs no precision."""

    def make(rng):
        q = tensor(rng.uniform(0.5, 1.5, (batch, queries, heads, head_dim)))
        k = tensor(rng.normal(0, 1, (batch, keys, heads, head_dim)))
        zero = np.arange(queries) % 2 * bool(high)  # queries without a gradient
        if high:
            some = (np.arange(head_dim) >= head_dim // 2) * (1 - zero[:, None])
            q = tensor(q.values * some[:, None] + 8.0 * zero[:, None, None] * (np.arange(head_dim) == 0))
            k = tensor(np.broadcast_to(high / (8 * scale) * (np.arange(head_dim) == 0), k.shape))
        capped = cap * np.tanh(np.einsum("bqhd,bkhd->bhqk", q.values, k.values) * scale / cap)
        return {
            "q": q,
            "k": k,
            "v": tensor(rng.normal(0, 0.2, k.shape)),
            "dout": tensor(rng.uniform(0.5, 1.5, q.shape) * (1 - zero[:, None, None])),
            "lse": tensor(np.log(np.exp(capped).sum(axis=-1))),
            "delta": tensor(rng.uniform(-9, -7, (batch, heads, queries)) * (1 - zero)),
            "scale": scale,
            "cap": cap,
        }

    return make


def backward_bytes(q, k, v, dout, lse, delta, scale, cap):
    tiles = ceil(k.shape[1], TILE_ROWS)
    whole = {"k": k.nbytes, "v": v.nbytes, "returned 0": k.nbytes, "returned 1": v.nbytes}
    return {
        **whole,
        **{name: tiles * of.nbytes for name, of in zip(("q", "dout", "lse", "delta"), (q, dout, lse, delta))},
    }


DERIVATIVE = " * (1 - (capped / cap) ** 2)"
KEYS = Task(
    id="08b.3",
    title="The kernel of dk and dv, with a soft cap",
    points=5,
    functions={"key_gradients": key_gradients},
    kernel=True,
    ieee=True,
    cases=(
        Case("1 x 64 queries and keys, 2 heads of 16", of_sequences(1, 64, 64, 2, 16)),
        Case("2 x 33 queries, 50 keys, 1 head of 32: ragged", of_sequences(2, 33, 50, 1, 32, scale=0.15)),
        Case("2 x 40 queries, 20 keys, 2 heads of 16", of_sequences(2, 40, 20, 2, 16, cap=1.5)),
        Case(
            "1 x 40 queries and keys, capped scores near 110 for queries whose gradient is 0",
            of_sequences(1, 40, 40, 1, 16, scale=0.25, cap=128.0, high=160.0),
            hint=HIGH,
        ),
        Case(f"{PROGRAMS} x 2 queries, 1 key", of_sequences(PROGRAMS, 2, 1, 1, 16)),
    ),
    slips=(
        Slip(
            "the cap's derivative was left out",
            "Between the capped score and the score lies tanh: multiply by 1 - (capped / cap)**2.",
            f"{DERIVATIVE} -> ",
            answer=" * (1 - (s / cap) * (s / cap)) -> ",
        ),
        Slip(
            "the cap's derivative was taken at the wrong place",
            "tanh'(u) = 1 - tanh(u)**2, and tanh(u) is capped / cap.",
            f"{DERIVATIVE} ->  * (1 - capped**2)",
            f"{DERIVATIVE} ->  * (1 - capped / cap)",
            f"{DERIVATIVE} ->  * (1 - np.tanh(capped / cap) ** 2)",
        ),
        Slip(
            "the scores were not capped",
            "The weights are made of the capped scores: exp(capped - lse).",
            'capped = cap * np.tanh(np.einsum("bqhd,bkhd->bhqk", q, k) * scale / cap) -> '
            'capped = np.einsum("bqhd,bkhd->bhqk", q, k) * scale',
        ),
        Slip("delta was left out", "dcapped = weights * (dout v^T - delta).", " - delta[..., None]) -> )"),
        Slip(
            "dk was not multiplied by scale",
            "The scores are scale * q k^T: what flows back into k passes the scale.",
            "dscores, q) * scale -> dscores, q)",
            results=("dk",),
        ),
        Slip(
            "the last, ragged tile of queries was left out",
            "The loop goes over all queries, with a mask in the last tile.",
            "weights = np.exp(capped - lse[..., None]) -> "
            "weights = np.exp(capped - lse[..., None]) * whole_rows(q.shape[1], TILE)",
        ),
        Slip(
            "dv was made of the scores' gradient",
            "out = weights v: dv is the weights, transposed, times dout.",
            "weights, dout) -> dscores, dout)",
            results=("dv",),
        ),
    ),
    minimum_bytes=backward_bytes,
    max_tile=(WIDEST, WIDEST),
    hints={
        "out_of_bounds": "Mask the queries beyond the last in q, dout, lse and delta, and the keys in k, v, dk and dv.",
        "bytes": f"The minimum here is what tiles of {TILE_ROWS} keys ask for: k and v once, the others once per "
        "tile of keys.",
        "unwritten": "The grid has to cover every tile of keys of every head of every sequence.",
        "nan": "A lane beyond the last query must not make exp(0 - other) of nothing: load lse with a finite other=.",
        "some_rows": "Look at a key's address and its mask, and at whether every tile of queries adds to it.",
        "wrong": "Take one head, two queries and two keys, and follow the five matrices by hand.",
    },
)


TASKS = (COUNT, TILES, KEYS)
