"""Exercise 08b: the backward of attention, counted, in tiles with a sink, and the kernel of dk and dv with a cap."""

import numpy as np

from grading.tasks import Case, Mistake, Task, ceil, one_of, returns, tensor
from grading.tasks import lesson_08 as forward
from grading.tasks.lesson_08 import TILE_ROWS, layer
from grading.tasks.properties import PROGRAMS

EXERCISE = "08b_attention_backward"

# ---------------------------------------------------------------- 08b.1 count


@returns("bytes")
def kept_materialised(batch, heads, kv_heads, sequence, head_dim, itemsize, *, grouped=True, outs=0):
    """q, k, v and the weights."""
    rows = batch * ((1 + outs) * heads + 2 * (kv_heads if grouped else heads)) * sequence
    return (rows * head_dim + batch * heads * sequence * sequence) * itemsize


@returns("flops")
def backward_flops(batch, heads, queries, keys, head_dim, *, matmuls=5):
    """Five matmuls: the scores again, the gradient of the weights, dq, dk and dv."""
    return matmuls * 2 * batch * heads * queries * keys * head_dim


def lengths(rng):
    ranges = {"batch": (2, 5), "heads": (6, 20), "queries": (300, 900), "keys": (900, 2000), "head_dim": (40, 200)}
    return {name: one_of(rng, *range(*between)) for name, between in ranges.items()}


COUNT = Task(
    id="08b.1",
    title="Count what is kept, and what is computed",
    points=2,
    functions={
        "kept_materialised": kept_materialised,
        "kept_fused": forward.fused_bytes,  # the fused backward reads what the fused forward reads and writes
        "backward_flops": backward_flops,
    },
    cases=(
        *(
            Case(f"{name}, elements of {size} bytes", layer(size), name)
            for name in ("kept_materialised", "kept_fused")
            for size in (2, 4)
        ),
        *(Case(f"backward_flops, {which} sizes", lengths, "backward_flops") for which in ("some", "other")),
    ),
    mistakes=(
        forward.HEADS_OF_Q,
        forward.LSE_BYTES,
        Mistake(
            "out was counted where it is not kept",
            "The fused backward needs out for delta; the unfused one has the weights and does not read out.",
            outs=1,
        ),
        Mistake(
            "not all FLOPs of the five matmuls were counted",
            "They are the scores, the gradient of the weights, dq, dk and dv; a multiply and an add are two FLOPs.",
            *({"matmuls": matmuls} for matmuls in (1, 2, 2.5, 3, 4)),
        ),
    ),
    hints={
        "form": "Bytes and FLOPs are whole numbers: return an int.",
        "values": "Write each gradient as a matmul, and note which matrices it reads.",
    },
)

# ---------------------------------------------------------------- 08b.2 the tile loop in PyTorch


@returns(dq="q", dk="q", dv="q", dsink="fp32")
def backward_tiles(q, k, v, sink, out, lse, dout, scale, *, with_delta=True, weights="lse", scaled="qk"):
    """Of attention with a sink, heads side by side, from what its forward kept.

    scaled: which of dq and dk are multiplied by scale.
    """
    scores = np.einsum("hqd,hkd->hqk", q, k) * scale
    p = np.exp(scores - lse[..., None])
    p = p / p.sum(axis=-1, keepdims=True) if weights == "softmax" else p
    delta = (dout * out).sum(axis=-1)
    ds = p * (np.einsum("hqd,hkd->hqk", dout, v) - with_delta * delta[..., None])
    dk = np.einsum("hqk,hqd->hkd", ds, q) * (scale if "k" in scaled else 1)
    dq = np.einsum("hqk,hkd->hqd", ds, k) * (scale if "q" in scaled else 1)
    dsink = -(np.exp(sink[:, None] - lse) * delta).sum(axis=-1)
    return dq, dk, np.einsum("hqk,hqd->hkd", p, dout), dsink


def of_heads(heads, queries, keys, head_dim, block=32, scale=0.3, sink=1.0, around=0.25, apart=1.0, high=0.0):
    """What a forward with sinks around `sink` and values around `around` got and kept, and a gradient of its output.
    high: around it lie the scores of every other query, whose gradient is 0."""

    def make(rng):
        q, k = rng.normal(0, 1, (heads, queries, head_dim)), rng.normal(0, 1, (heads, keys, head_dim))
        v, sinks = rng.normal(around, apart, k.shape), rng.normal(sink, 0.5, heads)
        dout = rng.uniform(0.5, 1.5, q.shape)
        if high:
            k[..., 0], q[..., 0] = high / (8 * scale), np.where(np.arange(queries) % 2, 8, 0)
            dout[:, 1::2] = 0
        q, k, v = (tensor(of, "fp16") for of in (q, k, v))
        scores = np.einsum("hqd,hkd->hqk", q.values, k.values) * scale
        lse = np.log(np.exp(scores).sum(axis=-1) + np.exp(sinks)[:, None])
        out = np.einsum("hqk,hkd->hqd", np.exp(scores - lse[..., None]), v.values)
        saved = {"sink": tensor(sinks), "out": tensor(out, "fp16"), "lse": tensor(lse)}
        return {"q": q, "k": k, "v": v, **saved, "dout": tensor(dout, "fp16"), "scale": scale, "block": block}

    return make


HIGH = "For queries whose gradient is 0, exp(110) * 0 is infinity * 0 in fp32, which is NaN: subtract lse before exp."
DELTA = Mistake(
    "delta was left out",
    "The gradient of the scores is p * (dp - delta), where delta is the sum of dout * out over the row.",
    with_delta=False,
)
TILES = Task(
    id="08b.2",
    title="The backward in tiles, in PyTorch, with a sink",
    points=5,
    functions={"backward_tiles": backward_tiles},
    cases=(
        Case("2 heads, 20 queries, 64 keys, tiles of 32", of_heads(2, 20, 64, 16)),
        Case("3 heads, 15 queries, 70 keys, tiles of 16: ragged", of_heads(3, 15, 70, 16, 16)),
        Case("2 heads, 12 queries, 40 keys, one tile of 64", of_heads(2, 12, 40, 32, 64, scale=0.125)),
        Case("1 head, 9 queries, 1 key", of_heads(1, 9, 1, 16, around=2.0, apart=0.3)),
        Case("2 heads, 10 queries, 50 keys, sinks above the scores", of_heads(2, 10, 50, 16, sink=6.0)),
        Case("2 heads, 50 keys, scores near 110", of_heads(2, 10, 50, 16, scale=0.25, high=110.0), hint=HIGH),
    ),
    mistakes=(
        DELTA,
        Mistake(
            "the weights were normalized without the sink",
            "lse includes the sink: with exp(scores - lse) the weights of a row add up to less than 1.",
            weights="softmax",
        ),
        Mistake(
            "dq or dk was not multiplied by scale",
            "The scores are scale * q k^T: the gradients of q and of k both get the factor scale.",
            {"scaled": "k"},
            {"scaled": "q"},
            {"scaled": ""},
            results=("dq", "dk"),
        ),
    ),
    max_tile=forward.TILE_LOOP.max_tile,
    hints={"traffic": "Slice k and v, and fill slices of dk and dv: no operation touches more than a tile of scores."},
)

# ---------------------------------------------------------------- 08b.3 the kernel of dk and dv


@returns(dk="fp32", dv="fp32")
def key_gradients(q, k, v, dout, lse, delta, scale, cap, *, derivative="right", capped=True, with_delta=True):
    """Of soft-capped attention, [batch, sequence, heads, head_dim]; lse and delta are [batch, heads, queries]."""
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * scale
    s = cap * np.tanh(scores / cap) if capped else scores
    p = np.exp(s - lse[..., None])
    slope = {"right": 1 - (s / cap) ** 2, "none": 1, "no cap": 1 - s**2, "no square": 1 - s / cap}[derivative]
    ds = p * (np.einsum("bqhd,bkhd->bhqk", dout, v) - with_delta * delta[..., None]) * slope
    return np.einsum("bhqk,bqhd->bkhd", ds, q) * scale, np.einsum("bhqk,bqhd->bkhd", p, dout)


def of_sequences(batch, queries, keys, heads, head_dim, scale=0.2, cap=2.0, high=0.0):
    """What a forward got and kept. delta is random, so that only positive numbers are added up for dk and dv: no row of
    them is a small difference of large numbers. high: the scores of every other query, whose gradient is 0; those of
    the rest are 0 then, where a large cap costs no precision."""

    def make(rng):
        q = rng.uniform(0.5, 1.5, (batch, queries, heads, head_dim))
        k = rng.normal(0, 1, (batch, keys, heads, head_dim))
        dout, delta = rng.uniform(0.5, 1.5, q.shape), rng.uniform(-9, -7, (batch, heads, queries))
        if high:
            q[:, ::2, :, 0], k[..., 1:] = 0, 0
            q[:, 1::2, :, 0], k[..., 0] = 8, high / (8 * scale)
            dout[:, 1::2], delta[..., 1::2] = 0, 0
        q, k = tensor(q), tensor(k)
        s = cap * np.tanh(np.einsum("bqhd,bkhd->bhqk", q.values, k.values) * scale / cap)
        saved = {"lse": tensor(np.log(np.exp(s).sum(axis=-1))), "delta": tensor(delta)}
        v = tensor(rng.normal(0, 0.2, k.shape))
        return {"q": q, "k": k, "v": v, "dout": tensor(dout), **saved, "scale": scale, "cap": cap}

    return make


def backward_bytes(q, k, v, dout, lse, delta, scale, cap):
    tiles = ceil(k.shape[1], TILE_ROWS)
    per_tile = {name: tiles * of.nbytes for name, of in (("q", q), ("dout", dout), ("lse", lse), ("delta", delta))}
    return {"k": k.nbytes, "v": v.nbytes, **per_tile, "returned 0": k.nbytes, "returned 1": v.nbytes}


KEYS = Task(
    id="08b.3",
    title="The kernel of dk and dv, with a soft cap",
    points=5,
    functions={"key_gradients": key_gradients},
    kernel=True,
    cases=(
        Case("1 x 64 queries and keys, 2 heads of 16", of_sequences(1, 64, 64, 2, 16)),
        Case("2 x 33 queries, 50 keys, 1 head of 32: ragged", of_sequences(2, 33, 50, 1, 32, scale=0.15)),
        Case("2 x 40 queries, 20 keys, 2 heads of 16", of_sequences(2, 40, 20, 2, 16, cap=1.5)),
        Case(
            "1 x 40, capped scores near 110",
            of_sequences(1, 40, 40, 1, 16, scale=0.25, cap=128.0, high=160.0),
            hint=HIGH,
        ),
        Case(f"{PROGRAMS} x 2 queries, 1 key", of_sequences(PROGRAMS, 2, 1, 1, 16)),
    ),
    mistakes=(
        Mistake(
            "the derivative of the cap is missing or wrong",
            "Multiply by 1 - tanh(u)**2, where tanh(u) is the capped score divided by cap.",
            *({"derivative": which} for which in ("none", "no cap", "no square")),
        ),
        Mistake("the scores were not capped", "The weights are exp(capped - lse).", capped=False),
        DELTA,
    ),
    minimum_bytes=backward_bytes,
    max_tile=forward.FORWARD.max_tile,
    hints={
        "out_of_bounds": "Mask the queries after the last in q, dout, lse and delta, and the keys in k, v, dk and dv.",
        "traffic": f"The minimum is what tiles of {TILE_ROWS} keys request: k and v once, the others once per tile.",
        "unwritten": "The grid has to cover every tile of keys of every head of every sequence.",
    },
)

TASKS = (COUNT, TILES, KEYS)
