"""Exercise 08d: a KV cache counted in bytes and waves, parts of rows merged, keys gathered through a block table."""

import numpy as np

from grading.tasks import Case, Mistake, Task, ceil, one_of, returns, tensor
from grading.tasks.lesson_08 import BY_HAND, RESCALE, softmax, values
from grading.tasks.properties import PROGRAMS

EXERCISE = "08d_decode"

# ---------------------------------------------------------------- 08d.1 count


@returns("bytes")
def token_bytes(layers, kv_heads, head_dim, itemsize, *, tensors=2):
    """A key and a value per KV head and layer."""
    return tensors * layers * kv_heads * head_dim * itemsize


@returns("bytes")
def paged_bytes(lengths, page, layers, kv_heads, head_dim, itemsize, *, tensors=2, pages="whole"):
    """Whole pages per sequence."""
    used = {
        "whole": sum(ceil(n, page) for n in lengths) * page,
        "filled": sum(lengths),
        "shared": ceil(sum(lengths), page) * page,
    }[pages]
    return used * token_bytes(layers, kv_heads, head_dim, itemsize, tensors=tensors)


@returns("waves")
def waves(sequences, kv_heads, splits, sms, per_sm, *, slots="per SM"):
    """Programs over the slots of the GPU, rounded up."""
    return ceil(sequences * kv_heads * splits, sms * (per_sm if slots == "per SM" else 1))


@returns("keys")
def busiest_keys(sequences, kv_heads, keys, splits, sms, per_sm, *, slots="per SM", part=ceil):
    """Keys that the busiest slot reads: a part in each wave."""
    return waves(sequences, kv_heads, splits, sms, per_sm, slots=slots) * part(keys, splits)


def model(rng):
    """Sizes that all differ."""
    sizes = {"layers": one_of(rng, 16, 28, 32, 80), "kv_heads": one_of(rng, 2, 4, 8)}
    return sizes | {"head_dim": one_of(rng, 64, 96, 128), "itemsize": one_of(rng, 1, 2)}


def paged(rng):
    """Sequences of which few fill their last page."""
    page = one_of(rng, 16, 32, 64)
    lengths = [page * one_of(rng, *range(1, 90)) + one_of(rng, 0, 1, page // 2, page - 1) for _ in range(6)]
    return {"lengths": [*lengths, page, 1], "page": page} | model(rng)


def launch(rng):
    """A launch of more than one wave, the last of which is not full."""
    sizes = {"sequences": 3 * one_of(rng, 11, 13, 17), "kv_heads": one_of(rng, 5, 7, 8)}
    return sizes | {"splits": one_of(rng, 3, 5, 6), "sms": one_of(rng, 40, 108, 132), "per_sm": 2}


def long_launch(rng):
    sizes = launch(rng)
    keys = sizes["splits"] * one_of(rng, 300, 500, 700) + 1
    return {"sequences": sizes["sequences"], "kv_heads": sizes["kv_heads"], "keys": keys} | {
        name: sizes[name] for name in ("splits", "sms", "per_sm")
    }


COUNT = Task(
    id="08d.1",
    title="Count a cache's bytes and a launch's waves",
    points=3,
    functions={of.__name__: of for of in (token_bytes, paged_bytes, waves, busiest_keys)},
    cases=tuple(
        Case(f"{name}, {which} sizes", make, name)
        for name, make in (
            ("token_bytes", model), ("paged_bytes", paged), ("waves", launch), ("busiest_keys", long_launch)
        )
        for which in ("some", "other")
    ),
    mistakes=(
        Mistake("only keys were counted, or only values", "Each KV head stores a key and a value.", tensors=1),
        Mistake(
            "the last pages are not whole",
            "A page belongs to one sequence: round each length up to whole pages, then add up.",
            {"pages": "filled"},
            {"pages": "shared"},
        ),
        Mistake("an SM holds several programs", "A wave has sms * per_sm programs.", slots="one"),
        Mistake(
            "the longest part was rounded down",
            "keys need not be a multiple of splits: the longest part has ceil(keys / splits).",
            part=lambda n, block: n // block,
        ),
    ),
    hints={
        "form": "Bytes, waves and keys are whole numbers: return an int, with // where you divide.",
        "values": "Do it for one layer, one sequence or one wave by hand; then multiply.",
    },
)  # fmt: skip

# ---------------------------------------------------------------- 08d.2 merge


@returns(out="fp16")
def merge_states(part_max, part_sum, part_acc, counts, *, base=2.0, rescaled="both"):
    """Rows [head_dim] from the first counts[row] of their parts; 0 where no part has a key."""
    valid = np.arange(part_max.shape[1]) < counts[:, None]
    m = np.where(valid, part_max, -np.inf)
    l, acc = np.where(valid, part_sum, 0), np.where(valid[..., None], part_acc, 0)  # noqa: E741
    top = m.max(axis=1, keepdims=True)
    factor = base ** (m - np.where(np.isfinite(top), top, 0))
    of_sum, of_acc = (factor if rescaled in ("both", which) else 1.0 * valid for which in ("sum", "acc"))
    row_sum = (l * of_sum).sum(axis=1)[:, None]
    return (acc * of_acc[..., None]).sum(axis=1) / np.where(row_sum == 0, 1, row_sum)


def of_parts(rows, splits, head_dim, around=0.0, least=1, empty=()):
    """States of parts, NaN after the parts that a row has. empty: (row, part) pairs without a key."""

    def make(rng):
        counts = rng.sizes.integers(least, splits + 1, rows)
        counts[0] = splits
        m, l = rng.normal(around, 2, (rows, splits)), rng.uniform(1, 50, (rows, splits))  # noqa: E741
        acc = l[..., None] * values(rng, rows, splits, head_dim)
        for row, part in empty:
            m[row, part], l[row, part], acc[row, part] = -np.inf, 0, 0
        after = np.arange(splits) >= counts[:, None]
        m[after], l[after], acc[after] = np.nan, np.nan, np.nan
        named = {"part_max": m, "part_sum": l, "part_acc": acc}
        return {name: tensor(of) for name, of in named.items()} | {"counts": tensor(counts, "int32")}

    return make


def merge_bytes(part_max, part_sum, part_acc, counts):
    parts, (rows, _, head_dim) = int(counts.values.sum()), part_acc.shape
    scalars = {"part_max": 4 * parts, "part_sum": 4 * parts, "counts": 4 * rows}
    return scalars | {"part_acc": 4 * parts * head_dim, "returned 0": 2 * rows * head_dim}


HOLES, ROW_1 = ((0, 0), (1, 2), (2, 1)), ((1, 0), (1, 1))  # (row, part) pairs without a key
NO_KEY = (
    "In a row without a key every max is -inf, also where it has no parts: -inf minus -inf is NaN, and so is 0 / 0."
)
MERGE = Task(
    id="08d.2",
    title="Merge the parts of rows, some of them empty",
    points=4,
    functions={"merge_states": merge_states},
    kernel=True,
    cases=(
        Case("5 rows of up to 4 parts, head_dim 32", of_parts(5, 4, 32)),
        Case("3 rows of one part, head_dim 64", of_parts(3, 1, 64)),
        Case("2 rows of up to 33 parts, head_dim 16", of_parts(2, 33, 16)),
        *(
            Case(f"4 rows of up to 5 parts, maxima near {n}", of_parts(4, 5, 16, around=n), hint=
                 "exp2 of such a maximum leaves fp32: subtract the largest maximum of the row first.")
            for n in (300, -300)
        ),
        Case("4 rows of 3 parts, some without a key", of_parts(4, 3, 32, least=3, empty=HOLES), hint=NO_KEY),
        Case("3 rows of 2 parts, no part of row 1 has a key", of_parts(3, 2, 16, least=2, empty=ROW_1), hint=NO_KEY),
        Case("6 rows, some without a part", of_parts(6, 3, 16, least=0), hint=NO_KEY),
        Case(f"{PROGRAMS} rows of up to 2 parts", of_parts(PROGRAMS, 2, 16)),
    ),
    mistakes=(
        Mistake(
            "the parts were not rescaled to the common maximum",
            "Multiply the sum and the accumulator of each part by exp2(its max - the row's max).",
            {"rescaled": "none"},
            {"rescaled": "sum"},
            {"rescaled": "acc"},
        ),
        Mistake("exp was taken instead of exp2", "The maxima are in units of log2(e): use exp2.", base=np.e),
    ),
    minimum_bytes=merge_bytes,
    max_tile=(64, 64),
    hints={
        "values": "Merge two parts by hand. What lies after a row's parts is NaN, and NaN * 0 is NaN: mask the loads.",
        "traffic": "Load only the parts that a row has, each once.",
    },
)  # fmt: skip

# ---------------------------------------------------------------- 08d.3 pages


@returns(out="q")
def paged_decode(q, pool, table, lengths, scale, *, half=1, unscaled="", width=0, padding=0):
    """One query per head [batch, heads, head_dim] over keys in pages [pages, 2, page, head_dim]."""
    page, out = pool.shape[2], np.zeros(q.shape)
    for b, length in enumerate(lengths):
        if length:
            own = table[b][: ceil(int(length), page)]
            k, v = (pool[own, which].reshape(-1, q.shape[2])[:length] for which in (0, half))
            scores = (q[b] @ k.T * scale)[:, None]
            weights, _ = softmax(scores, unscaled=unscaled, width=width, padding=padding)
            out[b] = weights[:, 0] @ v
    return out


def of_pages(lengths, heads, head_dim=16, page=16, scale=0.25, late=0.0):
    """A pool with NaN in free pages and after the last key; -1 after the last page of a row of the table.

    late: the score of the last key of each sequence with the even heads, half of it with the odd ones.
    """

    def make(rng):
        batch, most = len(lengths), max(1, max(ceil(n, page) for n in lengths))
        total = sum(ceil(n, page) for n in lengths)
        order = rng.sizes.permutation(total + 3)
        q = rng.normal(0, 1, (batch, heads, head_dim))
        if late:
            q[:, 0::2, 0], q[:, 1::2, 0] = 8.0, 4.0
        pool, table = np.full((total + 3, 2, page, head_dim), np.nan), np.full((batch, most), -1)
        at = 0
        for b, length in enumerate(lengths):
            for slot in range(ceil(length, page)):
                where, keys = order[at], min(page, length - slot * page)
                table[b, slot], at = where, at + 1
                pool[where, 0, :keys], pool[where, 1, :keys] = (
                    rng.normal(0, 1, (keys, head_dim)),
                    values(rng, keys, head_dim),
                )
                if late:
                    pool[where, 0, :keys] = 0.0
                    if slot * page + keys == length:
                        pool[where, 0, keys - 1, 0] = late / (8.0 * scale)
        stored = {"q": tensor(q, "fp16"), "pool": tensor(pool, "fp16"), "table": tensor(table, "int32")}
        return stored | {"lengths": tensor(np.array(lengths), "int32"), "scale": scale}

    return make


def pages_bytes(q, pool, table, lengths, scale):
    """Each key and value once, and an entry of the table for each key."""
    keys = int(lengths.values.sum())
    return {
        "q": q.nbytes, "pool": 2 * keys * q.shape[2] * 2, "table": 4 * keys, "lengths": lengths.nbytes,
        "returned 0": q.nbytes,
    }  # fmt: skip


TAIL = "What lies after the last key is NaN, and NaN times 0 is NaN: mask the loads of k and v, not only the scores."
PAGES = Task(
    id="08d.3",
    title="A decode step through a block table",
    points=6,
    functions={"paged_decode": paged_decode},
    kernel=True,
    cases=(
        Case("2 sequences of 64 and 48 keys, 4 heads", of_pages((64, 48), 4)),
        Case("1 sequence of 32 keys, pages of 32, 8 heads of 32", of_pages((32,), 8, 32, 32)),
        Case("3 sequences of 50, 7 and 33 keys, 4 heads", of_pages((50, 7, 33), 4), hint=TAIL),
        Case("2 sequences of 40 and 90 keys, pages of 32, 1 head", of_pages((40, 90), 1, 16, 32), hint=TAIL),
        Case("2 sequences of 100 and 17 keys, 16 heads of 64", of_pages((100, 17), 16, 64)),
        Case("3 sequences, one without a key", of_pages((20, 0, 35), 4), hint="Its rows are 0, not NaN."),
        Case("2 sequences of 70 and 40 keys, a large score at the end", of_pages((70, 40), 4, late=240.0)),
        Case(f"{PROGRAMS} sequences of 1 key, 1 head", of_pages((1,) * PROGRAMS, 1)),
    ),
    mistakes=(
        Mistake("keys were taken as values", "The keys of a page are pool[p, 0], its values pool[p, 1].", half=0),
        RESCALE,
    ),
    minimum_bytes=pages_bytes,
    max_tile=(64, 64),
    hints={
        "values": BY_HAND + " " + TAIL,
        "out_of_bounds": "Entries of the table after a sequence's last page are -1: mask the loads of the table, of k "
        "and of v by key < length. Row b of the table begins at b * pages_per_sequence.",
        "traffic": "One program per sequence reads each key and value once, for all heads.",
        "unwritten": "A program stores all heads of its sequence, also where its length is 0.",
    },
)  # fmt: skip

TASKS = (COUNT, MERGE, PAGES)
