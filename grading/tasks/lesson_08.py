"""Exercise 08, attention with a sink, a soft cap and grouped heads: counted, walked, in kernels, merged, broken."""

import numpy as np

from grading.arrays import spread
from grading.tasks import Case, Slip, Task, gives, tensor

EXERCISE = "08_flash_attention"
PROGRAMS = (
    151  # sequences of one head: just more programs than any GPU has multiprocessors, each takes its milliseconds
)


def ceil(n: int, block: int) -> int:
    """Blocks that cover n."""
    return -(-n // block)


# ---------------------------------------------------------------- 08.1 count


@gives("bytes")
def materialised_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize):
    """Scores written, capped (read, written), made weights (read, written), read; q, k, v and out once."""
    scores = batch * heads * sequence * sequence
    wide, narrow = batch * heads * sequence * head_dim, batch * kv_heads * sequence * head_dim
    return (6 * scores + 2 * wide + 2 * narrow) * itemsize


@gives("bytes")
def fused_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize):
    """q, k, v and out once, and the log-sum-exp of each row."""
    rows = batch * heads * sequence
    wide, narrow = batch * heads * sequence * head_dim, batch * kv_heads * sequence * head_dim
    return (2 * wide + 2 * narrow) * itemsize + 4 * rows


@gives("bytes")
def asked_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize, block):
    """The same, with all of k and v asked for by each program."""
    rows = batch * heads * sequence
    programs = batch * heads * ceil(sequence, block)
    wide, read = batch * heads * sequence * head_dim, programs * sequence * head_dim
    return (2 * wide + 2 * read) * itemsize + 4 * rows


@gives("flops")
def causal_flops(batch, heads, sequence, head_dim, block):
    """Two products in each tile on the diagonal and below."""
    side = sequence // block
    tiles = side * (side + 1) // 2
    return 4 * batch * heads * tiles * block * block * head_dim


def one_of(rng, *choices) -> int:
    return int(rng.choice(choices))


def layer(itemsize, **more):
    """A layer whose sizes all differ, of a sequence that no tile divides. more: {name: rng -> value}."""

    def make(rng):
        kv_heads = one_of(rng, 2, 3, 5)
        return {
            "batch": one_of(rng, 2, 3, 4),
            "heads": kv_heads * one_of(rng, 4, 6, 8),
            "kv_heads": kv_heads,
            "sequence": 64 * one_of(rng, *range(5, 15)) + one_of(rng, *range(1, 32)),
            "head_dim": one_of(rng, 80, 96, 128),
            "itemsize": itemsize,
            **{name: of(rng) for name, of in more.items()},
        }

    return make


def whole_tiles(rng):
    """A sequence of several whole tiles."""
    block = one_of(rng, 32, 64, 128)
    return {
        "batch": one_of(rng, 2, 3, 4),
        "heads": one_of(rng, 8, 12, 16),
        "sequence": block * one_of(rng, *range(3, 12)),
        "head_dim": one_of(rng, 80, 96, 112),
        "block": block,
    }


def of_block(rng):
    return one_of(rng, 32, 64)


COUNT = Task(
    id="08.1",
    title="Count what is stored, asked for and computed",
    points=3,
    functions={oracle.__name__: oracle for oracle in (materialised_bytes, fused_bytes, asked_bytes, causal_flops)},
    cases=(
        *(Case(f"materialised_bytes, elements of {size} bytes", layer(size), "materialised_bytes") for size in (2, 4)),
        *(Case(f"fused_bytes, elements of {size} bytes", layer(size), "fused_bytes") for size in (2, 4)),
        *(
            Case(f"asked_bytes, elements of {size} bytes", layer(size, block=of_block), "asked_bytes")
            for size in (2, 4)
        ),
        *(Case(f"causal_flops, {which} sizes", whole_tiles, "causal_flops") for which in ("some", "other")),
    ),
    slips=(
        Slip(
            "k and v were counted with as many heads as q",
            "Several query heads share a key head: k and v have kv_heads of them.",
            "kv_heads * sequence * head_dim -> heads * sequence * head_dim",
        ),
        Slip(
            "the programs of a group's query heads were counted as one",
            "Here every query head has programs of its own, and each asks for all of its k and v.",
            "programs = batch * heads -> programs = batch * kv_heads",
        ),
        Slip(
            "k and v were counted once",
            "Count what programs ask for: each one walks over all keys of its head, so k and v are asked for once "
            "per tile of queries.",
            "programs * sequence * head_dim -> batch * kv_heads * sequence * head_dim",
            "programs * sequence * head_dim -> batch * heads * sequence * head_dim",
        ),
        Slip(
            "the last, ragged tile of queries was left out",
            "A ragged end has a program too: round the number of tiles up.",
            "ceil(sequence, block) -> (sequence // block)",
        ),
        Slip(
            "the log-sum-exp was left out",
            "Each row leaves one fp32 number besides its output: 4 bytes per query and head.",
            " + 4 * rows -> ",
        ),
        Slip(
            "what is stored was left out",
            "Stores count too: out in elements of itemsize bytes, and the log-sum-exp, 4 bytes per query and head.",
            "(2 * wide + 2 * narrow) * itemsize + 4 * rows -> (wide + 2 * narrow) * itemsize",
            "(2 * wide + 2 * read) * itemsize + 4 * rows -> (wide + 2 * read) * itemsize",
        ),
        Slip(
            "the log-sum-exp was counted with itemsize",
            "It is fp32 whatever q is: 4 bytes.",
            "+ 4 * rows -> + itemsize * rows",
        ),
        Slip(
            "elements were counted, not bytes",
            "Multiply by the bytes of an element.",
            "(6 * scores + 2 * wide + 2 * narrow) * itemsize -> (6 * scores + 2 * wide + 2 * narrow)",
            "(2 * wide + 2 * narrow) * itemsize -> (2 * wide + 2 * narrow)",
            "(2 * wide + 2 * read) * itemsize -> (2 * wide + 2 * read)",
        ),
        Slip(
            "the operation that caps the scores was left out",
            "The cap reads all scores and writes all of them.",
            "6 * scores -> 4 * scores",
        ),
        Slip(
            "scores were counted as written and not as read, or the other way round",
            "Three operations write a matrix of scores or weights, and three read one.",
            "6 * scores -> 3 * scores",
        ),
        Slip(
            "scores and weights were counted once",
            "Go through the four operations: which of the three matrices does each read, which one does it write?",
            "6 * scores -> scores",
            "6 * scores -> 2 * scores",
        ),
        Slip(
            "one of the tensors q, k, v and out was left out, or both on one side of the group",
            "q, k and v are read once, out is written once.",
            "2 * wide + -> wide +",
            "2 * narrow) -> narrow)",
        ),
        Slip(
            "one product was counted, or a multiplication and an addition as one",
            "There are two products, q k^T and weights times v, and a multiplication and an addition are two FLOPs.",
            "4 * batch -> 2 * batch",
            "4 * batch -> batch",
        ),
        Slip(
            "tiles above the diagonal were counted",
            "A tile whose keys all come after its queries is skipped: n (n + 1) / 2 of n n tiles are left.",
            "side * (side + 1) // 2 -> side * side",
        ),
        Slip(
            "the tiles on the diagonal were left out",
            "A tile on the diagonal is computed whole: n (n + 1) / 2 tiles.",
            "side * (side + 1) // 2 -> side * (side - 1) // 2",
        ),
        Slip(
            "pairs of query and key were counted, not tiles",
            "A tile on the diagonal is computed whole, with the half that the mask then drops.",
            "tiles * block * block * head_dim -> (sequence * (sequence + 1) // 2) * head_dim",
            "tiles * block * block * head_dim -> (sequence * sequence // 2) * head_dim",
        ),
        Slip(
            "the length of the inner products is missing",
            "A score is a product of head_dim numbers, and a weight scales head_dim numbers.",
            " * block * head_dim ->  * block",
        ),
    ),
    hints={
        "wrong": "Write a line per operation, or per tensor, with what is read and what is written; then add up.",
        "type": "Bytes and FLOPs are whole: return an int, with // where you divide.",
    },
)

# ---------------------------------------------------------------- attention with a sink, and ways to get it wrong


def softmaxed(scores, sink):
    """Weights and log-sum-exp of scores [..., heads, queries, keys], the sink's logit of each head beside them."""
    largest = np.maximum(scores.max(axis=-1), sink[:, None])
    weights = np.exp(scores - largest[..., None])
    total = weights.sum(axis=-1) + np.exp(sink[:, None] - largest)
    return weights / total[..., None], largest + np.log(total)


def walked(scores, sink, width, repair_sum=True, repair_out=True, largest_of="all"):
    """The same as a walk over tiles of `width` keys that leaves a repair out, or takes the tile's own maximum."""
    largest = np.broadcast_to(sink[:, None], scores.shape[:-1])
    total, weights = np.ones_like(largest), np.zeros_like(scores)
    for start in range(0, scores.shape[-1], width):
        tile = scores[..., start : start + width]
        larger = tile.max(axis=-1) if largest_of == "tile" else np.maximum(largest, tile.max(axis=-1))
        repair, part = np.exp(largest - larger), np.exp(tile - larger[..., None])
        total = total * (repair if repair_sum else 1) + part.sum(axis=-1)
        weights = weights * (repair[..., None] if repair_out else 1)
        weights[..., start : start + width] = part
        largest = larger
    return weights / total[..., None], largest + np.log(total)


@gives(out="fp32", lse="fp32", uses=(softmaxed,))
def streamed(q, k, v, sink, scale):
    """Attention of heads side by side, [heads, sequence, head_dim]."""
    scores = np.einsum("hqd,hkd->hqk", q, k) * scale
    weights, lse = softmaxed(scores, sink)
    return np.einsum("hqk,hkd->hqd", weights, v), lse


@gives(out="q", lse="fp32", uses=(softmaxed,))
def attended(q, k, v, sink, scale):
    """Attention of tensors [batch, sequence, heads, head_dim]."""
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * scale
    weights, lse = softmaxed(scores, sink)
    return np.einsum("bhqk,bkhd->bqhd", weights, v), lse


CALL = "= softmaxed(scores, sink)"
SINK = " + np.exp(sink[:, None] - largest)"


def sink_slips(**answers: str | tuple) -> tuple:
    """The slips of attention with a sink. answers: {name of a slip below: the same edit of the published answer}."""

    def slip(name, fault, hint, *ways, results=()):
        return Slip(fault, hint, *ways, answer=answers.get(name, ()), results=results)

    return (
        slip(
            "no_sink",
            "the sink was left out of the sum",
            "The sink takes part in the sum like one more key whose value is zero.",
            f"{SINK} -> ",
        ),
        slip(
            "plain_sink",
            "the sink's exponential was not repaired",
            "It counts exp(sink - m), for the largest score m: start from the state m = sink, l = 1, and every repair "
            "is the loop's own.",
            f"{SINK} ->  + np.exp(sink[:, None])",
            f"{SINK} ->  + 1",
        ),
        slip(
            "zero_sink",
            "the sink was taken to be 0",
            "Each head has a sink of its own: start from the state m = sink, l = 1.",
            f"{SINK} ->  + np.exp(0 - largest)",
        ),
        slip(
            "first_sink",
            "every head got the first head's sink",
            "Each head has a sink of its own.",
            f"{SINK} ->  + np.exp(sink[:1, None] - largest)",
        ),
        slip(
            "per_tile",
            "the sink was added once per tile",
            "One sink takes part in a row's sum, however many tiles the keys are in.",
            f"{SINK} -> {SINK} * -(-scores.shape[-1] // TILE)",
        ),
        slip(
            "unrepaired",
            "what was added up so far was not repaired when a larger maximum came",
            "out is over the old maximum: multiply it by exp(m_old - m_new) before the tile's part is added.",
            f"{CALL} -> = walked(scores, sink, TILE, repair_out=False)",
        ),
        slip(
            "unrepaired_sum",
            "the running sum was not repaired when a larger maximum came",
            "l is over the old maximum: multiply it by exp(m_old - m_new) before the tile's sum is added.",
            f"{CALL} -> = walked(scores, sink, TILE, repair_sum=False)",
            f"{CALL} -> = walked(scores, sink, TILE, repair_sum=False, repair_out=False)",
        ),
        slip(
            "of_the_tile",
            "each tile counts from its own maximum, and nothing brings the tiles together",
            "Take the larger one of the old maximum and the tile's, and repair what was added up before.",
            f"{CALL} -> = walked(scores, sink, TILE, False, False, largest_of='tile')",
        ),
        slip(
            "twice", "the scale was applied twice", "Multiply the scores by scale once.", "* scale -> * scale * scale"
        ),
        slip("unscaled", "the scores were not scaled", "Multiply q k^T by scale.", "* scale -> "),
        slip(
            "own_scale",
            "the scale is 1 / sqrt(head_dim), and another one was given",
            "Multiply the scores by the argument scale.",
            "* scale -> / np.sqrt(q.shape[-1])",
        ),
        slip(
            "undivided",
            "out was not divided by the sum of the exponentials",
            "After the last tile, divide out by l.",
            "return weights / total[..., None], -> return weights,",
            results=("out",),
        ),
        slip(
            "base_two",
            "lse is in units of log(2)",
            "lse is a natural logarithm: where m and l are kept for exp2, multiply by log(2) at the end.",
            "largest + np.log(total) -> (largest + np.log(total)) / np.log(2)",
            results=("lse",),
        ),
        slip(
            "mixed_bases",
            "lse adds a maximum and a logarithm of two bases",
            "Both in natural units: m + log(l). Of a maximum kept for exp2, (m + log2(l)) * log(2).",
            "largest + np.log(total) -> largest / np.log(2) + np.log(total)",
            "largest + np.log(total) -> largest + np.log2(total)",
            results=("lse",),
        ),
        slip(
            "sum_alone",
            "lse is the logarithm of the sum alone, over the largest score",
            "Exponentials were summed over the maximum: lse = m + log(l).",
            "largest + np.log(total) -> np.log(total)",
            "largest + np.log(total) -> total",
            "largest + np.log(total) -> largest",
            results=("lse",),
        ),
        slip(
            "last_tile",
            "the keys of the last, ragged tile were left out",
            "The loop goes to the end of the keys, with a mask in the last tile.",
            f"{CALL} -> = softmaxed(whole_tiles_of(scores, TILE), sink)",
        ),
        slip(
            "zero_scores",
            "lanes beyond the last key counted as scores of 0",
            "A masked lane of k gives a score of 0, which is no weight of 0: set scores beyond the last key to -inf "
            "before the maximum.",
            f"{CALL} -> = zero_lanes(scores, sink, TILE)",
        ),
    )


def whole_tiles_of(scores, width):
    """Scores of which those behind the last whole tile are masked."""
    keys = scores.shape[-1]
    return np.where(np.arange(keys) < keys // width * width, scores, -np.inf)


def unrepaired(scores, width):
    """The weights of scores [..., keys] over the maximum of their own tile of `width` keys and those before it."""
    keys = scores.shape[-1]
    running = np.maximum.accumulate(scores, axis=-1)[
        ..., np.minimum(np.arange(keys) // width * width + width, keys) - 1
    ]
    return np.exp(scores - np.where(np.isfinite(running), running, 0))


def zero_lanes(scores, sink, width):
    """The same where the lanes that hang over the last key have scores of 0."""
    over = [(0, 0)] * (scores.ndim - 1) + [(0, -scores.shape[-1] % width)]
    weights, lse = softmaxed(np.pad(scores, over), sink)
    return weights[..., : scores.shape[-1]], lse


def repair_slips(out: str, total: str, weights: str, acc: str) -> tuple:
    """The slips of a walk without a sink that leaves a repair out: the places of the oracle where out takes the
    weights, where the sum does, and where both do. acc: the same edit of the published answer."""
    return (
        Slip(
            "what was added up so far was not repaired when a larger maximum came",
            "out is over the old maximum: multiply it by exp(m_old - m_new) before the tile's part is added.",
            out,
            answer=acc,
        ),
        Slip(
            "the running sum was not repaired when a larger maximum came",
            "l is over the old maximum: multiply it by exp(m_old - m_new) before the tile's sum is added.",
            total,
            weights,
        ),
    )


# ---------------------------------------------------------------- inputs


def values(rng, *shape):
    """Values of v: none near zero, so that no row of the result is a small difference of large numbers."""
    return rng.uniform(0.5, 2, shape)


def planted(at, score):
    """Key `at` has this score with every other query and half of it with the rest, far above all others."""

    def change(q, k, scale):
        q.reshape(-1, q.shape[-1])[0::2, 0], q.reshape(-1, q.shape[-1])[1::2, 0] = 8.0, 4.0
        k[..., 0] = 0.0
        keys = np.moveaxis(k, 1, 0)
        keys[at] = 0.0
        keys[at][..., 0] = score / (8.0 * scale)

    return change


def low(at, score):
    """Key `at` has this score, below -104, with every other query and half of it with the rest; all others have half
    as much again, so that their weights are 0. The products are exact in any order."""

    def change(q, k, scale):
        q.reshape(-1, q.shape[-1])[0::2, 0], q.reshape(-1, q.shape[-1])[1::2, 0] = 8.0, 4.0
        k[:] = 0.0
        k[..., 0] = 1.5 * score / (8.0 * scale)
        np.moveaxis(k, 1, 0)[at][..., 0] = score / (8.0 * scale)

    return change


def dwarfed(q, k, scale):
    """Every key but the first has a weight of about 2**-18 of the first's: a tile of them is lost in a 16-bit sum."""
    q *= 0.05
    k *= 0.05
    q[..., 0], k[..., 0], k[:, 0, :, 0] = 8.0, -8.5 / (8.0 * scale), 4.0 / (8.0 * scale)


def drawn(rng, shape, key_shape, scale, change=None, positive=False):
    """q and k. change(q, k, scale): makes something of them. positive: so that every score is."""
    of = (lambda size: rng.uniform(0.5, 1.5, size)) if positive else (lambda size: rng.normal(0, 1, size))
    q, k = of(shape), of(key_shape)
    if change:
        change(q, k, scale)
    return q, k


# ---------------------------------------------------------------- 08.2 the loop in PyTorch


def of_heads(heads, queries, keys, head_dim, dtype="fp32", block=32, scale=0.3, sink=None, **more):
    """Heads side by side. sink: of every head, or one for each; otherwise drawn."""

    def make(rng):
        q, k = drawn(rng, (heads, queries, head_dim), (heads, keys, head_dim), scale, **more)
        sinks = rng.normal(0.5, 1, heads) if sink is None else np.full(heads, sink)
        return {
            "q": tensor(q, dtype),
            "k": tensor(k, dtype),
            "v": tensor(values(rng, *k.shape), dtype),
            "sink": tensor(sinks, "fp32"),
            "scale": scale,
            "block": block,
        }

    return make


ABOVE = (6.0, 1000.0)  # sinks of two heads: above all scores, and so far above that exp(sink - score) overflows in fp64
FAR_SINK = (
    "Here the sink of one head is 1000, far above its scores: it counts for the maximum too, or exp(sink - m) is "
    "infinite. Where the sink joins after the last tile, l and out are repaired for it as for a tile."
)
RUNNING = (
    "Some exponent was positive and large: the running maximum of a row must never go down. Subtract the largest score "
    "so far, and repair l and out by exp(m_old - m_new), which is never above 1."
)
LATE = "Here the largest score, 120 or 240, stands in the last tile: all that came before has to be repaired for it."
EARLY = (
    "Here the largest score of a query, 120 or 240, stands in the first tile, and later tiles have scores near 0: the "
    "running maximum of a row must never go down, and each row has its own."
)
LOW = (
    "Here all scores lie below -104, and so does the sink where there is one: a running maximum that starts at 0 makes "
    "every exponential 0."
)

TILE_LOOP = Task(
    id="08.2",
    title="The tile loop, in PyTorch, with a sink",
    points=4,
    functions={"tile_loop": streamed},
    cases=(
        Case("2 heads, 16 queries, 96 keys, fp32, tiles of 32", of_heads(2, 16, 96, 16)),
        Case("3 heads, 20 queries, 90 keys, fp16, tiles of 32: ragged", of_heads(3, 20, 90, 16, "fp16")),
        Case("1 head, 1 query, 1 key, fp32", of_heads(1, 1, 1, 8, sink=1.0, positive=True)),
        Case("2 heads, 7 queries, 50 keys, bf16, one tile of 64", of_heads(2, 7, 50, 16, "bf16", 64)),
        Case("2 heads, 9 queries, 70 keys, fp32, another scale", of_heads(2, 9, 70, 32, block=16, scale=0.125)),
        Case("2 heads, 8 queries, 64 keys, large first", of_heads(2, 8, 64, 16, change=planted(3, 240.0)), hint=EARLY),
        Case("2 heads, 8 queries, 64 keys, large last", of_heads(2, 8, 64, 16, change=planted(60, 240.0)), hint=LATE),
        Case("2 heads, 8 queries, 70 keys, sinks above all scores", of_heads(2, 8, 70, 16, sink=ABOVE), hint=FAR_SINK),
        Case(
            "2 heads, 8 queries, 70 keys, a sink of -inf",
            of_heads(2, 8, 70, 16, sink=-np.inf),
            hint="A sink of -inf counts nothing. In the first tile exp(-inf - m) is 0; -inf - (-inf) would be NaN.",
        ),
        Case(
            "2 heads, 8 queries, 70 keys, all scores below -104",
            of_heads(2, 8, 70, 16, scale=0.25, sink=(-np.inf, -300.0), change=low(40, -240.0)),
            hint=LOW,
        ),
    ),
    slips=sink_slips(
        no_sink="l = torch.ones( -> l = torch.zeros(",
        unrepaired="acc = acc * repair[..., None] -> acc = acc",
        unrepaired_sum="l = l * repair -> l = l",
        twice="s = q @ k_tile.mT * scale -> s = (q * scale) @ k_tile.mT * scale",
        mixed_bases="torch.log(l) -> torch.log2(l)",
    ),
    tile_elements=lambda q, k, block, **rest: len(q) * max(q[0].size, len(q[0]) * block, block * q.shape[2]),
    hints={
        "whole_tensor": "Slice k and v first, then convert and multiply: no operation sees more than a tile of scores.",
        "nan": RUNNING + " NaN also comes from -inf - (-inf).",
        "infinite": RUNNING,
        "overflow": RUNNING,
        "sixteen_bit": "Convert q and the tiles of k and v to fp32 before the products, and keep m, l and out in fp32.",
        "wrong": "Take one head, one query and two tiles of one key each, and follow m, l and out by hand.",
    },
)

# ---------------------------------------------------------------- 08.3 the forward kernel


def of_sequences(batch, queries, keys, heads, head_dim, dtype="fp32", strides=None, scale=0.3, sink=None, **more):
    """Tensors [batch, sequence, heads, head_dim]. strides: (of q, of k and v), contiguous by default."""

    def make(rng):
        shapes = [(batch, length, heads, head_dim) for length in (queries, keys, keys)]
        q, k = drawn(rng, *shapes[:2], scale, **more)
        laid = [
            spread(given, dtype, *step) if step else tensor(given, dtype)
            for given, step in zip((q, k, values(rng, *k.shape)), strides or (None, None, None))
        ]
        sinks = rng.normal(0.5, 1, heads) if sink is None else np.full(heads, sink)
        return {**dict(zip("qkv", laid)), "sink": tensor(sinks, "fp32"), "scale": scale}

    return make


def one_tensor(length, heads, head_dim):
    """Strides of q, k and v that are parts of one tensor [batch, sequence, 3, heads, head_dim]."""
    row = 3 * heads * head_dim
    return ((length * row, row, head_dim, 1),) * 3


def apart(queries, keys, heads, head_dim):
    """Strides of q, k and v that all differ: heads outside in k, padded rows in v."""
    return (
        (queries * heads * head_dim, heads * head_dim, head_dim, 1),
        (keys * heads * head_dim, head_dim, keys * head_dim, 1),
        (keys * (heads + 1) * head_dim, (heads + 1) * head_dim, head_dim, 1),
    )


TILE_ROWS = 32  # queries per tile, by which bytes are judged
WIDEST = 64  # side of a tile


def sink_bytes(q, k, v, sink, scale):
    batch, queries, heads, _ = q.shape
    tiles = ceil(queries, TILE_ROWS)
    return {
        "q": q.nbytes,
        "k": tiles * k.nbytes,
        "v": tiles * v.nbytes,
        "sink": 4 * batch * heads * tiles,
        "returned 0": q.nbytes,
        "returned 1": 4 * batch * queries * heads,
    }


STRIDES = "{0} are views: use the strides of each tensor, which need not be those of a contiguous one."
KERNEL_HINTS = {
    "nan": RUNNING + " Lanes beyond the last key must be loaded as 0: 0 times NaN is NaN.",
    "infinite": RUNNING,
    "overflow": RUNNING,
    "out_of_bounds": "A tile that hangs over the end needs a mask: rows < queries for q and out, columns < keys for k "
    "and v. Where the masks are there, check which stride goes with which index.",
    "tile_too_wide": f"No side of a tile is above {WIDEST}: walk over the keys in tiles.",
    "sixteen_bit": "Keep scores, m, l and out in fp32; only the weights may be rounded to v's dtype, as operand of the "
    "second product. For fp32 inputs, tl.dot(..., input_precision='ieee').",
    "bytes": f"The minimum here is what tiles of {TILE_ROWS} queries ask for: k and v once each, q once.",
    "some_rows": "An error far below a thousandth is rounding to 16 bits or to TF32 on the way: for fp32 inputs, "
    "weights and products are fp32 too. A larger one: look at how a row's address and its mask are formed.",
    "row_scale": "l is one number per row: look at its start, its repair, and lanes beyond the last key.",
    "unwritten": "The grid has to cover every tile of queries of every head of every sequence.",
    "not_read": "Every query, key and value has to be read, in all sequences and heads.",
    "wrong": "Take one sequence, one head, one query and two tiles of keys, and follow m, l and out by hand.",
}

FORWARD = Task(
    id="08.3",
    title="The forward kernel",
    points=5,
    functions={"sink_attention": attended},
    kernel=True,
    ieee=True,
    cases=(
        Case("1 x 64 queries, 96 keys, 2 heads of 16, fp32", of_sequences(1, 64, 96, 2, 16)),
        Case("1 x 33 queries, 70 keys, 1 head of 32, fp32: ragged", of_sequences(1, 33, 70, 1, 32, scale=0.2)),
        Case("2 x 1 query, 1 key, 1 head of 16, fp32", of_sequences(2, 1, 1, 1, 16, sink=1.0, positive=True)),
        Case(
            "2 x 40 queries and keys, 2 heads of 16, fp16, parts of one tensor",
            of_sequences(2, 40, 40, 2, 16, "fp16", one_tensor(40, 2, 16)),
            hint=STRIDES.format("q, k and v") + " Here a row is 3 * heads * head_dim elements on.",
        ),
        Case(
            "2 x 9 queries, 35 keys, 3 heads of 16, fp32, all strides different",
            of_sequences(2, 9, 35, 3, 16, strides=apart(9, 35, 3, 16)),
            hint=STRIDES.format("k and v"),
        ),
        Case(
            "1 x 5 queries, 80 keys, large first", of_sequences(1, 5, 80, 1, 16, change=planted(2, 240.0)), hint=EARLY
        ),
        Case("1 x 5 queries, 80 keys, large last", of_sequences(1, 5, 80, 1, 16, change=planted(79, 240.0)), hint=LATE),
        Case(
            "1 x 6 queries, 50 keys, sinks above all scores", of_sequences(1, 6, 50, 2, 16, sink=ABOVE), hint=FAR_SINK
        ),
        Case(
            "1 x 5 queries, 50 keys, all scores and sinks below -104",
            of_sequences(1, 5, 50, 2, 16, scale=0.25, sink=-300.0, change=low(40, -240.0)),
            hint=LOW,
        ),
        Case(f"{PROGRAMS} x 2 queries, 3 keys, 1 head of 16, fp32", of_sequences(PROGRAMS, 2, 3, 1, 16, sink=1.0)),
    ),
    slips=sink_slips(
        zero_scores="s = tl.where(inside[None, :], s, float('-inf')) -> s = s".replace("'", '"'),
        unrepaired="acc = acc * repair[:, None] -> acc = acc",
    ),
    minimum_bytes=sink_bytes,
    max_tile=(WIDEST, WIDEST),
    hints=KERNEL_HINTS,
)

# ---------------------------------------------------------------- 08.4 causal, with a soft cap


@gives(out="q")
def capped_causal(q, k, v, scale, cap):
    """Causal attention of tensors [batch, sequence, heads, head_dim], the scores soft-capped; rows without a key are
    0."""
    queries, keys = q.shape[1], k.shape[1]
    scores = cap * np.tanh(np.einsum("bqhd,bkhd->bhqk", q, k) * scale / cap)
    seen = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
    scores = np.where(seen, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = weights.sum(axis=-1, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", weights / np.where(total > 0, total, 1), v)


def leaking(scores, seen, v, width, masked):
    """Scores in which `masked` stands for what is not seen in tiles that are visited, lanes beyond the last key
    included; and v with zeros for these."""
    queries, keys = seen.shape
    over = -keys % width
    scores = np.pad(np.where(seen, scores, masked), [(0, 0)] * 3 + [(0, over)], constant_values=masked)
    ends = (np.arange(queries) // width + 1) * width + keys - queries
    visited = ceil(np.clip(ends, 0, keys), width) * width
    return np.where(np.arange(keys + over) < visited[:, None], scores, -np.inf), np.pad(
        v, [(0, 0), (0, over), (0, 0), (0, 0)]
    )


def of_prompt(batch, queries, keys, heads, head_dim, cap=4.0, scale=0.4, **more):
    """A prompt behind keys - queries keys that a cache holds."""

    def make(rng):
        q, k = drawn(rng, (batch, queries, heads, head_dim), (batch, keys, heads, head_dim), scale, **more)
        made = {"q": q, "k": k, "v": values(rng, *k.shape)}
        return {**{name: tensor(of) for name, of in made.items()}, "scale": scale, "cap": cap}

    return make


def reach(queries, keys, tile=TILE_ROWS):
    """Keys that the programs of one head load, each walking over whole tiles to the last key that it sees."""
    lasts = [min(first + tile, queries) + keys - queries for first in range(0, queries, tile)]
    return sum(min(keys, ceil(max(last, 0), tile) * tile) for last in lasts)


def causal_bytes(q, k, v, scale, cap):
    batch, queries, heads, _ = q.shape
    keys = k.shape[1]
    loaded = batch * heads * reach(queries, keys) * (k.nbytes // (batch * heads * keys))
    return {"q": q.nbytes, "k": loaded, "v": loaded, "returned 0": q.nbytes}


SEEN = "np.arange(keys) <= np.arange(queries)[:, None] + keys - queries"
CAPPED = 'cap * np.tanh(np.einsum("bqhd,bkhd->bhqk", q, k) * scale / cap)'
MASKED = "scores = np.where(seen, scores, -np.inf)"
RAW = 'np.einsum("bqhd,bkhd->bhqk", q, k) * scale'

CAUSAL = Task(
    id="08.4",
    title="Causal, without the tiles above the diagonal",
    points=5,
    functions={"causal_attention": capped_causal},
    kernel=True,
    ieee=True,
    cases=(
        Case("1 x 96 queries and keys, 2 heads of 16", of_prompt(1, 96, 96, 2, 16)),
        Case("1 x 70 queries and keys, 1 head of 32: ragged", of_prompt(1, 70, 70, 1, 32, scale=0.25)),
        Case(
            "1 x 64 queries at the end of 97 keys",
            of_prompt(1, 64, 97, 1, 16),
            hint="The queries are the last ones of the sequence: query i sees the keys up to i + keys - queries, which "
            "is the first key of a tile for some of them.",
        ),
        Case(
            "2 x 5 queries at the end of 40 keys, 2 heads",
            of_prompt(2, 5, 40, 2, 16),
            hint="The queries are the last ones of the sequence: query i sees the keys up to i + keys - queries.",
        ),
        Case(
            "1 x 50 queries, 20 keys: the first 30 see none",
            of_prompt(1, 50, 20, 1, 16),
            hint="A row that sees no key has l = 0: its output is 0, not 0 / 0.",
        ),
        Case("1 x 1 query and key", of_prompt(1, 1, 1, 1, 16)),
        Case(
            "1 x 40 queries and keys, the first key's score is large",
            of_prompt(1, 40, 40, 1, 16, cap=400.0, change=planted(0, 300.0)),
            hint="Here the first key has a capped score of about 140 or 250 and the others are near 0: the running "
            "maximum of a row must never go down, and each row has its own.",
        ),
        Case(
            "1 x 40 queries and keys, all scores below -104",
            of_prompt(1, 40, 40, 1, 16, cap=400.0, scale=0.25, change=low(0, -240.0)),
            hint=LOW,
        ),
        Case(f"{PROGRAMS} x 1 query, 2 keys", of_prompt(PROGRAMS, 1, 2, 1, 16)),
    ),
    slips=(
        Slip(
            "a query does not see the key at its own place",
            "The mask has keys up to and with i + keys - queries: <=, not <.",
            "np.arange(keys) <= -> np.arange(keys) <",
        ),
        Slip(
            "a query sees the key after its own place",
            "The mask has keys up to i + keys - queries, and none behind.",
            f"{SEEN} -> {SEEN} + 1",
        ),
        Slip(
            "the diagonal starts at the first key",
            "The queries are the last ones of the sequence: query i stands at key i + keys - queries.",
            " + keys - queries -> ",
            answer=("row + keys - queries -> row", "* BLOCK + keys - queries -> * BLOCK"),
        ),
        Slip("the mask is missing", "Keys after the query's own place have a score of -inf.", f"{SEEN} -> True"),
        Slip(
            "the mask is turned round",
            "A query sees the keys before it, not those after it.",
            "np.arange(keys) <= -> np.arange(keys) >=",
        ),
        Slip(
            "the scores were masked before the cap",
            "tanh(-inf) is -1, so a masked score becomes -cap and keeps a weight: cap first, then mask.",
            f"{MASKED} -> scores, v = leaking(scores, seen, v, TILE, -cap)",
        ),
        Slip("the scores were not capped", "Each score is cap * tanh(score / cap).", f"{CAPPED} -> {RAW}"),
        Slip(
            "the cap was applied before the scale",
            "Scale the scores first: cap * tanh(scale * score / cap).",
            f"{CAPPED} -> cap * np.tanh({RAW} / scale / cap) * scale",
        ),
        Slip(
            "tanh was not multiplied by the cap again",
            "tanh lies between -1 and 1: cap * tanh(score / cap) stays close to small scores.",
            "cap * np.tanh( -> np.tanh(",
        ),
        Slip(
            "the scores were not divided by the cap",
            "cap * tanh(score / cap): divide by the cap inside.",
            "* scale / cap) -> * scale)",
        ),
        Slip(
            "sigmoid stands where tanh belongs",
            "tanh(u) = 2 * sigmoid(2 u) - 1.",
            f"{CAPPED} -> cap / (1 + np.exp(-{RAW} / cap))",
            f"{CAPPED} -> cap * (2 / (1 + np.exp(-{RAW} / cap)) - 1)",
        ),
        Slip(
            "the scale was applied twice",
            "Multiply the scores by scale once.",
            "* scale / cap -> * scale * scale / cap",
        ),
        Slip("the scores were not scaled", "Multiply q k^T by scale before the cap.", "* scale / cap -> / cap"),
        Slip(
            "a row that sees no key averages what it should not see",
            "A large negative number in place of -inf gives equal weights where every key is masked: use -inf, and "
            "make the output 0 where the sum is 0.",
            f"{MASKED} -> scores, v = leaking(scores, seen, v, TILE, -1e9)",
            "seen, scores, -np.inf -> seen, scores, -1e9",
        ),
        *repair_slips(
            "weights / np.where( -> unrepaired(scores, TILE) / np.where(",
            "total = weights.sum( -> total = unrepaired(scores, TILE).sum(",
            "np.exp(scores - np.where(np.isfinite(largest), largest, 0)) -> unrepaired(scores, TILE)",
            "acc = acc * repair[:, None] -> acc = acc",
        ),
    ),
    minimum_bytes=causal_bytes,
    max_tile=(WIDEST, WIDEST),
    hints={
        **KERNEL_HINTS,
        "some_rows": "The first rows see few keys, which hides much: look at the scores, their cap and the mask.",
        "bytes": f"The minimum here is what tiles of {TILE_ROWS} queries by {TILE_ROWS} keys ask for that lie on the "
        "diagonal or below: end the loop at the last key that the last query of the tile sees.",
        "nan": "Of a row that sees no key m is -inf and l is 0, and -inf - (-inf) and 0 / 0 are NaN. Elsewhere: "
        + RUNNING,
    },
)

# ---------------------------------------------------------------- 08.5 a step of decoding


@gives(out="q", lse="fp32")
def decoded(q, k, v, scale):
    """One query [batch, heads, head_dim] for k and v [batch, keys, kv_heads, head_dim]."""
    batch, heads, head_dim = q.shape
    of = np.arange(heads) // (heads // k.shape[2])
    scores = np.einsum("bhd,bkhd->bhk", q, k[:, :, of]) * scale
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True)
    return np.einsum("bhk,bkhd->bhd", weights / total, v[:, :, of]), (largest + np.log(total))[..., 0]


def of_cache(batch, keys, kv_heads, group, head_dim=16, strides=None, scale=0.25, change=None, positive=False):
    """A query per sequence, and a cache of keys and values."""

    def make(rng):
        shape = (batch, keys, kv_heads, head_dim)
        q, k = drawn(rng, (batch, kv_heads * group, head_dim), shape, scale, change, positive)
        laid = [spread(of, "fp16", *strides) if strides else tensor(of, "fp16") for of in (k, values(rng, *shape))]
        return {"q": tensor(q, "fp16"), "k": laid[0], "v": laid[1], "scale": scale}

    return make


def cache_bytes(q, k, v, scale):
    batch, heads, _ = q.shape
    return {"q": q.nbytes, "k": k.nbytes, "v": v.nbytes, "returned 0": q.nbytes, "returned 1": 4 * batch * heads}


GROUPED = Task(
    id="08.5",
    title="A step of decoding, with grouped heads",
    points=5,
    functions={"decode_step": decoded},
    kernel=True,
    cases=(
        Case("2 x 100 keys, 2 key heads for 4 query heads each", of_cache(2, 100, 2, 4)),
        Case("1 x 70 keys, 3 key heads for 2 query heads each, head_dim 32", of_cache(1, 70, 3, 2, 32, scale=0.2)),
        Case("2 x 33 keys, 2 key heads for 5 query heads each", of_cache(2, 33, 2, 5)),
        Case("1 x 40 keys, one key head for 16 query heads", of_cache(1, 40, 1, 16)),
        Case("1 x 40 keys, as many key heads as query heads", of_cache(1, 40, 3, 1)),
        Case("3 x 1 key, one head", of_cache(3, 1, 1, 1, positive=True)),
        Case(
            "2 x 35 keys of a cache that holds 48, heads outside",
            of_cache(2, 35, 2, 4, strides=(2 * 48 * 16, 16, 48 * 16, 1)),
            hint=STRIDES.format("k and v"),
        ),
        Case("1 x 80 keys, large first", of_cache(1, 80, 1, 4, change=planted(2, 240.0)), hint=EARLY),
        Case("1 x 80 keys, large last", of_cache(1, 80, 1, 4, change=planted(79, 240.0)), hint=LATE),
        Case("1 x 80 keys, all scores below -104", of_cache(1, 80, 1, 4, change=low(40, -240.0)), hint=LOW),
        Case(
            "1 x 800 keys, the first far above many others",
            of_cache(1, 800, 1, 4, change=dwarfed),
            hint="Here 799 keys together weigh 0.3% of the first one. A sum in 16 bits absorbs none of them.",
        ),
        Case(f"{PROGRAMS} x 2 keys, one key head for 2 query heads", of_cache(PROGRAMS, 2, 1, 2, positive=True)),
    ),
    slips=(
        Slip(
            "query head h reads key head h % kv_heads",
            "Query heads beside each other share a key head: h // group, with group = heads // kv_heads.",
            "np.arange(heads) // (heads // k.shape[2]) -> np.arange(heads) % k.shape[2]",
            answer=("kv_head * group + slot -> slot * kv_heads + kv_head",),
        ),
        Slip(
            "every query head reads the first key head",
            "Query head h reads key head h // group, with group = heads // kv_heads.",
            "np.arange(heads) // (heads // k.shape[2]) -> np.arange(heads) * 0",
        ),
        Slip(
            "the last, ragged tile of keys was left out",
            "The loop goes to the end of the keys, with a mask in the last tile.",
            "* scale -> * scale\n    scores = whole_tiles_of(scores, TILE)",
        ),
        Slip("the scale was applied twice", "Multiply the scores by scale once.", "* scale -> * scale * scale"),
        Slip("the scores were not scaled", "Multiply q k^T by scale.", "* scale -> "),
        Slip(
            "the scale is 1 / sqrt(head_dim), and another one was given",
            "Multiply the scores by the argument scale.",
            "* scale -> / np.sqrt(head_dim)",
        ),
        Slip(
            "lse is in units of log(2), or adds two bases",
            "lse is a natural logarithm: (m + log2(l)) * log(2), where m and l are kept for exp2.",
            "(largest + np.log(total)) -> ((largest + np.log(total)) / np.log(2))",
            "(largest + np.log(total)) -> (largest / np.log(2) + np.log(total))",
            "(largest + np.log(total)) -> (largest + np.log2(total))",
            results=("lse",),
        ),
        Slip(
            "lse is the logarithm of the sum alone, over the largest score",
            "Exponentials were summed over the maximum: lse = m + log(l).",
            "(largest + np.log(total)) -> np.log(total)",
            results=("lse",),
        ),
        *repair_slips(
            "weights / total, -> unrepaired(scores, TILE) / total,",
            "total = weights.sum( -> total = unrepaired(scores, TILE).sum(",
            "weights = np.exp(scores - largest) -> weights = unrepaired(scores, TILE)",
            "acc = acc * repair[:, None] -> acc = acc",
        ),
    ),
    minimum_bytes=cache_bytes,
    max_tile=(WIDEST, WIDEST),
    hints={
        **KERNEL_HINTS,
        "bytes": "k and v are most of what moves: one program for each sequence and key head reads them once, for all "
        "query heads of the group. Rows of the tile that are no query head load nothing.",
        "unwritten": "A program stores all query heads of its group; the grid has one for each sequence and key head.",
        "out_of_bounds": "The tile has 16 rows, and the group may have fewer: mask the heads beyond it in q, out and "
        "lse, and the keys beyond the last in k and v. The strides of k and v are their own.",
        "race": "Rows beyond the group belong to another program's heads: mask them in the store.",
    },
)

# ---------------------------------------------------------------- 08.6 merge


@gives(out="fp32", lse="fp32")
def merged(parts, lse, sink):
    """Partial results [splits, batch, heads, head_dim] and their log-sum-exps, brought together beside a sink."""
    largest = np.maximum(lse.max(axis=0), sink)
    weights = np.exp(lse - largest)
    total = weights.sum(axis=0) + np.exp(sink - largest)
    return (weights[..., None] * parts).sum(axis=0) / total[..., None], largest + np.log(total)


def of_parts(splits, batch, heads, head_dim, around=3.0, spread_by=1.0, empty=(), sink=None, gap=0.0):
    """Partial results whose log-sum-exps lie around a number. empty: (split, sequence), each of which saw no key. gap:
    by how much one split of each row lies above the others and the sink. Far from 0 there has to be such a gap: the
    merged log-sum-exp is then exact in fp32, and exp(lse - merged) is as good a weight as any."""

    def make(rng):
        parts, lse = values(rng, splits, batch, heads, head_dim), rng.normal(around, spread_by, (splits, batch, heads))
        if gap:
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


MERGE_SINK = " + np.exp(sink - largest)"
MERGE = Task(
    id="08.6",
    title="Merge the parts of a split",
    points=4,
    functions={"merge_parts": merged},
    kernel=True,
    cases=(
        Case("4 splits, 2 sequences, 3 heads of 32", of_parts(4, 2, 3, 32)),
        Case("1 split, 2 sequences, 2 heads of 16", of_parts(1, 2, 2, 16)),
        Case("7 splits, 1 sequence, 2 heads of 64", of_parts(7, 1, 2, 64)),
        Case("33 splits, 1 sequence, 1 head of 16", of_parts(33, 1, 1, 16)),
        Case(
            "3 splits, log-sum-exps near 110",
            of_parts(3, 2, 2, 16, around=110.0, gap=30.0),
            hint="exp(110) is infinity: subtract the largest log-sum-exp before the exponential.",
        ),
        Case(
            "3 splits, log-sum-exps near -110",
            of_parts(3, 2, 2, 16, around=-110.0, gap=30.0),
            hint="exp(-110) is 0: subtract the largest log-sum-exp before the exponential.",
        ),
        Case(
            "4 splits, some of which saw no key",
            of_parts(4, 2, 2, 16, empty=((0, 0), (3, 0), (1, 1))),
            hint="A split that saw no key has an lse of -inf and a weight of 0.",
        ),
        Case(
            "2 splits, none of which saw a key in the first sequence",
            of_parts(2, 2, 2, 16, empty=((0, 0), (1, 0))),
            hint="Where no split saw a key, the sink is all there is: out is 0 and lse is the sink.",
        ),
        Case("2 splits, a sink above them", of_parts(2, 2, 2, 16, sink=9.0)),
        Case(
            "2 splits, a sink of -120",
            of_parts(2, 2, 2, 16, sink=-120.0),
            hint="Here the log-sum-exps lie 120 above the sink: exp(lse - sink) is infinite. Subtract the largest.",
        ),
        Case(
            "2 splits that saw no key, sinks of 120 and -120",
            of_parts(2, 1, 2, 16, empty=((0, 0), (1, 0)), sink=(120.0, -120.0)),
            hint="Where no split saw a key, the sink is all there is: out is 0 and lse is the sink.",
        ),
        Case(f"2 splits, {PROGRAMS} sequences, 1 head of 16", of_parts(2, PROGRAMS, 1, 16)),
    ),
    slips=(
        Slip(
            "the parts were averaged",
            "A part counts with the sum of its exponentials, exp(lse): weight it by exp(lse - m).",
            "weights = np.exp(lse - largest) -> weights = np.exp(lse - lse)",
            "(weights[..., None] * parts).sum(axis=0) / total[..., None] -> parts.mean(axis=0)",
        ),
        Slip(
            "the sink was left out of the sum",
            "The sink is one more part whose output is zero: its logit is its log-sum-exp.",
            f"{MERGE_SINK} -> ",
            answer="total = tl.sum(weights) + tl.exp(sink - m) -> total = tl.sum(weights)",
        ),
        Slip(
            "every head got the first head's sink",
            "Each head has a sink of its own.",
            f"{MERGE_SINK} ->  + np.exp(sink[:1] - largest)",
        ),
        Slip(
            "the sink was added once per split",
            "The parts were computed without the sink: it comes in once.",
            f"{MERGE_SINK} -> {MERGE_SINK} * len(parts)",
        ),
        Slip(
            "the sink's exponential was not shifted",
            "Subtract the same maximum from the sink as from the parts' log-sum-exps.",
            f"{MERGE_SINK} ->  + np.exp(sink)",
            f"{MERGE_SINK} ->  + 1",
        ),
        Slip(
            "lanes beyond the last split were counted",
            "A lane of lse that is loaded as 0 is no part without a weight: exp(0 - m) is above 0. Which log-sum-exp "
            "has a weight of 0?",
            "total = weights.sum(axis=0) + -> total = weights.sum(axis=0) + -len(parts) % TILE * np.exp(-largest) +",
            answer='inside, other=float("-inf") -> inside, other=0.0',
        ),
        Slip(
            "out was not divided by the sum of the weights",
            "The weights do not add up to 1 yet: divide by their sum, the sink's included.",
            " / total[..., None] -> ",
            answer="axis=0) / total -> axis=0)",
            results=("out",),
        ),
        Slip(
            "lse is the logarithm of the sum alone, over the largest",
            "The weights are exponentials over m: lse = m + log(their sum).",
            "largest + np.log(total) -> np.log(total)",
            results=("lse",),
        ),
        Slip(
            "the weights are the log-sum-exps themselves",
            "An lse is a logarithm: the weight of a part is exp(lse - m).",
            "weights = np.exp(lse - largest) -> weights = lse",
        ),
        Slip(
            "lse is in units of log(2)",
            "lse is a natural logarithm: tl.exp and tl.log, or exp2 and log2 with a factor of log(2).",
            "weights = np.exp(lse - largest) -> weights = np.exp2(lse - largest)",
            "largest + np.log(total) -> largest + np.log2(total)",
            results=("lse",),
        ),
    ),
    minimum_bytes=merge_bytes,
    max_tile=(64, 64),
    hints={
        "nan": "-inf - (-inf) and inf / inf are NaN: subtract the largest of all log-sum-exps and the sink, which is "
        "finite. Lanes beyond the last split are loaded with other=-inf, and their parts with other=0.0.",
        "infinite": "Subtract the largest log-sum-exp, the sink included, before any exponential.",
        "bytes": "A part is needed once: load it, weight it, add it.",
        "out_of_bounds": "Outside sink: it has one number per head, the same for all sequences, and a row is a head of "
        "a sequence. Outside parts or lse: tl.arange takes a power of two, so mask the lanes beyond the last split, "
        "and know the distance from one split to the next, batch * heads * head_dim elements in parts.",
        "unwritten": "The grid has a program for each head of each sequence.",
    },
)

# ---------------------------------------------------------------- 08.7 which loop breaks

BLOCK = 16  # keys per tile of the loops
LARGEST = 300.0  # of a score
OFF_BY = 0.1


def attend_one(scores, values, block, start, next_maximum):
    """One row of attention in fp32, tile by tile. start: the maximum before the first tile. next_maximum(m, tile): the
    maximum to count from."""
    m, total, out = np.float32(start), np.float32(0), np.float32(0)
    with np.errstate(all="ignore"):
        for at in range(0, len(scores), block):
            tile = scores[at : at + block].astype(np.float32)
            larger = np.float32(next_maximum(m, tile))
            repair, weights = np.exp(m - larger), np.exp(tile - larger)
            total = total * repair + weights.sum(dtype=np.float32)
            out = out * repair + (weights * values[at : at + block].astype(np.float32)).sum(dtype=np.float32)
            m = larger
        return float(out / total)


#: loop: (maximum before the first tile, the next one), as the exercise's cell has them
LOOPS = {
    "a": (-np.inf, lambda m, tile: max(m, tile.max())),
    "b": (-np.inf, lambda m, tile: tile.max()),
    "c": (-np.inf, lambda m, tile: tile.max() if tile.max() > m + 8 else m),
    "d": (0.0, lambda m, tile: max(m, tile.max())),
}
WRONG = {
    "b": "It counts from the maximum of the tile at hand, and repairs by exp(m - larger). When is that no number?",
    "d": "It starts from a maximum that no score has. Which scores are too far away from it?",
}


def values_of(keys):
    """The values of the keys, between 1 and 2."""
    return np.linspace(1, 2, keys)


def exactly(scores):
    weights = np.exp(scores - scores.max())
    return float(weights @ values_of(len(scores)) / weights.sum())


def shown(arguments, returned):
    """Whether a loop that is wrong is off on the returned scores, and one that is right is called right."""
    loop, keys = arguments["loop"], arguments["keys"]
    if len(returned) != 1:
        return f"loop {loop!r}: {len(returned)} values came back, expected a tensor of scores or None"
    scores = returned[0]
    if loop not in WRONG:
        if scores is None:
            return ""
        return (
            f"loop {loop!r} is right for all scores up to {LARGEST:g}: expected None. A maximum that lags behind is no "
            "fault as long as no exponential overflows and something is left of the sum"
        )
    if scores is None:
        return f"loop {loop!r} is not right for all scores, and None says that it is. {WRONG[loop]}"
    if not isinstance(scores, np.ndarray) or scores.shape != (keys,) or arguments["_dtypes"][0] != "fp32":
        return f"loop {loop!r}: expected an fp32 tensor of shape [{keys}], one score per key"
    if not np.isfinite(scores).all() or np.abs(scores).max() > LARGEST:
        return f"loop {loop!r}: every score has to lie between -{LARGEST:g} and {LARGEST:g}"
    right = exactly(scores)
    came = {name: attend_one(scores, values_of(keys), BLOCK, *how) for name, how in LOOPS.items()}
    if abs(came[loop] / right - 1) < OFF_BY:
        return f"loop {loop!r} gives {came[loop]:.6g} on your scores, and {right:.6g} is right. {WRONG[loop]}"
    others = [name for name in LOOPS if name != loop and not abs(came[name] / right - 1) < 1e-3]
    if others:
        return (
            f"loop {loop!r} is off on your scores, and so is loop {others[0]!r}: find scores that only {loop!r} fails"
        )
    return ""


def of_loop(loop):
    return lambda rng: {"loop": loop, "keys": BLOCK * int(rng.integers(3, 9))}


HUNT = Task(
    id="08.7",
    title="Which loop breaks? Plant the scores that show it",
    points=3,
    functions={"show_wrong": None},
    verdict=shown,
    cases=tuple(Case(f"loop {loop}, {turn}", of_loop(loop)) for loop in LOOPS for turn in ("some keys", "other keys")),
    success="the two loops that are wrong give NaN or are off by 10% on your scores, and the others are right there",
)

TASKS = (COUNT, TILE_LOOP, FORWARD, CAUSAL, GROUPED, MERGE, HUNT)
