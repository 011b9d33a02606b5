"""Exercise 06: right answers in several styles pass, and each plausible wrong one fails with the hint made for it."""

import pytest
import torch
from grading_tools import answer_tests, answers, module_of

from instruments import backend
from instruments.compiled import compile_launch

EXERCISE = "06_online_softmax"
SOLUTION = answers(EXERCISE)

# ---------------------------------------------------------------- right, in another style

RIGHT = {
    "pieces, and a finite floor": (
        "06.1",
        """
def three_passes(x, temperature, block):
    pieces = x.split(block, dim=1)
    top = None
    for piece in pieces:
        here = piece.max(dim=1).values.float()
        top = here if top is None else torch.maximum(top, here)
    top = top.clamp(min=torch.finfo(torch.float32).min).unsqueeze(1)
    total = sum(((piece - top) / temperature).exp().sum(1) for piece in pieces)
    y = x.new_zeros(x.shape, dtype=torch.float32)
    for piece, out in zip(pieces, y.split(block, dim=1)):
        out.copy_(((piece - top) / temperature).exp() / total.clamp(min=1e-30).unsqueeze(1))
    return y
""",
    ),
    "row by row, base two, logarithm of the sum": (
        "06.1",
        """
LOG2E = 1.4426950408889634

def three_passes(x, temperature, block):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=torch.float32)
    for row in range(rows):
        starts = range(0, cols, block)
        top = max(x[row, s:s + block].max().item() for s in starts)
        if top == float("-inf"):
            y[row].zero_()
            continue
        scale = LOG2E / temperature
        total = sum(torch.exp2((x[row, s:s + block].double() - top) * scale).sum() for s in starts)
        for s in starts:
            y[row, s:s + block] = torch.exp2((x[row, s:s + block].double() - top) * scale - total.log2())
    return y
""",
    ),
    "the tile's own state, merged": (
        "06.2",
        """
def softmax_of(x, m):
    return torch.exp(torch.where(x == -torch.inf, x, x - m))

def absorb(m, l, o, tile, values):
    tile = tile.to(torch.float32)
    top = tile.max(1, keepdim=True).values
    e = softmax_of(tile, top)
    new = torch.maximum(m, top[:, 0])
    before, here = softmax_of(m, new), softmax_of(top[:, 0], new)
    return new, torch.addcmul(l * before, e.sum(1), here), torch.addcmul(o * before, e @ values, here)

def softmax_mean(x, values, block):
    state = [x.new_full((len(x), ), fill, dtype=torch.float32) for fill in (-torch.inf, 0, 0)]
    for piece, weights in zip(x.split(block, 1), values.split(block)):
        state = absorb(*state, piece, weights)
    m, l, o = state
    return torch.where(m == -torch.inf, torch.zeros_like(o), o / l)
""",
    ),
    "in double precision, masked": (
        "06.2",
        """
def absorb(m, l, o, tile, values):
    m, l, o, tile, values = (t.double() for t in (m, l, o, tile, values))
    larger = torch.max(m, torch.amax(tile, 1))
    seen = larger > -torch.inf
    repair = torch.where(seen, torch.exp(m - larger), 1.0)
    weights = torch.exp(tile - larger.unsqueeze(1)).nan_to_num(0.0)
    both = torch.stack([l, o], 1) * repair.unsqueeze(1)
    both[:, 0] += weights.sum(1)
    both[:, 1] += torch.mv(weights, values)
    return larger.float(), both[:, 0].float(), both[:, 1].float()

def softmax_mean(x, values, block):
    rows = x.shape[0]
    m, l, o = torch.full((rows, ), -torch.inf), torch.zeros(rows), torch.zeros(rows)
    start = 0
    while start < x.shape[1]:
        m, l, o = absorb(m, l, o, x.narrow(1, start, min(block, x.shape[1] - start)), values[start:start + block])
        start += block
    return (o / l).nan_to_num(0.0)
""",
    ),
    "the larger part first": (
        "06.3",
        """
from math import exp

def merge(m_a, l_a, o_a, m_b, l_b, o_b):
    if m_a < m_b:
        return merge(m_b, l_b, o_b, m_a, l_a, o_a)
    if not l_b:
        return m_a, l_a, o_a
    repair = exp(m_b - m_a)
    return m_a, l_a + repair * l_b, o_a + repair * o_b
""",
    ),
    "numpy over the parts": (
        "06.3",
        """
import numpy as np

def merge(*state):
    m, l, o = np.array(state).reshape(2, 3).T
    weights = np.exp(m - max(m.max(), -1e300))
    return float(m.max()), float(weights @ l), float(weights @ o)
""",
    ),
    "a state in each lane": (
        "06.4",
        """
@triton.jit
def lanes(x_ptr, sink_ptr, y_ptr, stride, cols, LANES: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, LANES)
    m = tl.full([LANES], -1e38, tl.float32)
    l = tl.zeros([LANES], tl.float32)
    for tile in tl.range(tl.cdiv(cols, LANES)):
        at = tile * LANES + c
        x = tl.load(x_ptr + row * stride + at, at < cols, -float("inf")).to(tl.float32)
        higher = tl.maximum(m, x)
        l = l * tl.exp2((m - higher) * 1.4426950408889634) + tl.exp2((x - higher) * 1.4426950408889634)
        m = higher
    sink = tl.load(sink_ptr + row)
    top = tl.maximum(tl.max(m, axis=0), sink)
    total = tl.sum(l * tl.exp(m - top), axis=0) + tl.exp(sink - top)
    for tile in tl.range(tl.cdiv(cols, LANES)):
        at = tile * LANES + c
        x = tl.load(x_ptr + row * stride + at, at < cols, 0).to(tl.float32)
        tl.store(y_ptr + row * cols + at, (tl.exp(x - top) * (1.0 / total)).to(y_ptr.dtype.element_ty), at < cols)

def sink_softmax(x, sink, out_dtype):
    y = x.new_empty(x.shape, dtype=out_dtype)
    lanes[(len(x), )](x, sink, y, x.stride(0), x.shape[1], LANES=1024)
    return y
""",
    ),
    "a program for each tile, merged by the kernel that stores": (
        "06.4",
        """
@triton.jit
def state(x_ptr, part_ptr, stride, cols, tiles, BLOCK: tl.constexpr):
    row, tile = tl.program_id(0), tl.program_id(1)
    c = tile * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=float("-inf")).to(tl.float32)
    m = tl.max(x)
    l = tl.sum(tl.exp(x - tl.where(m == float("-inf"), 0.0, m)))
    tl.store(part_ptr + (row * tiles + tile) * 2, m)
    tl.store(part_ptr + (row * tiles + tile) * 2 + 1, l)

@triton.jit
def finish(x_ptr, sink_ptr, part_ptr, y_ptr, stride, cols, tiles, BLOCK: tl.constexpr, TILES: tl.constexpr):
    row = tl.program_id(0)
    sink = tl.load(sink_ptr + row)
    t = tl.arange(0, TILES)
    tops = tl.load(part_ptr + (row * tiles + t) * 2, mask=t < tiles, other=float("-inf"))
    sums = tl.load(part_ptr + (row * tiles + t) * 2 + 1, mask=t < tiles, other=0.0)
    m = tl.maximum(sink, tl.max(tops))
    log_l = tl.log(tl.exp(sink - m) + tl.sum(sums * tl.exp(tops - m)))
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + c, mask=c < cols).to(tl.float32)
    tl.store(y_ptr + row * cols + c, tl.exp(x - m - log_l), mask=c < cols)

def sink_softmax(x, sink, out_dtype):
    rows, cols = x.shape
    block = 4096
    tiles = triton.cdiv(cols, block)
    part = torch.empty(rows, tiles, 2, device=x.device)
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    state[(rows, tiles)](x, part, x.stride(0), cols, tiles, BLOCK=block)
    finish[(rows, tiles)](x, sink, part, y, x.stride(0), cols, tiles, block, triton.next_power_of_2(tiles))
    return y
""",
    ),
    "every tile, guarded, tanh of an exponential": (
        "06.5",
        """
@triton.jit
def guarded(s_ptr, first_ptr, y_ptr, batch_stride, query_stride, key_stride, queries, keys, cap, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    batch, query = program // queries, program % queries
    s_ptr += batch.to(tl.int64) * batch_stride + query * query_stride
    first = tl.load(first_ptr + batch)
    m = tl.full([1], float("-inf"), tl.float32)
    l = tl.zeros([1], tl.float32)
    for start in range(0, keys, BLOCK):
        key = start + tl.arange(0, BLOCK)
        seen = (key >= first) & (key + queries <= query + keys)
        s = tl.load(s_ptr + key * key_stride, mask=seen, other=0).to(tl.float32)
        s = tl.where(seen, cap - 2 * cap / (tl.exp(2 * s / cap) + 1), float("-inf"))
        m_new = tl.maximum(m, tl.max(s, axis=0))
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)
        l = l * tl.exp(m - shift) + tl.sum(tl.exp(s - shift), axis=0)
        m = m_new
    shift = tl.where(m == float("-inf"), 0.0, m)
    scale = 1 / tl.maximum(l, 1e-30)
    for start in range(0, keys, BLOCK):
        key = start + tl.arange(0, BLOCK)
        seen = (key >= first) & (key + queries <= query + keys)
        s = tl.load(s_ptr + key * key_stride, mask=seen, other=0).to(tl.float32)
        s = tl.where(seen, cap - 2 * cap / (tl.exp(2 * s / cap) + 1), float("-inf"))
        tl.store(y_ptr + program.to(tl.int64) * keys + key, tl.exp(s - shift) * scale, mask=key < keys)

def capped_causal_softmax(scores, first, cap):
    batch, queries, keys = scores.shape
    y = torch.zeros(scores.shape, dtype=scores.dtype, device=scores.device)
    guarded[(batch * queries, )](scores, first, y, *scores.stride(), queries, keys, cap, 64)
    return y
""",
    ),
    "two queries per program": (
        "06.5",
        """
@triton.jit
def logits_of(s_ptr, offsets, seen, cap):
    s = tl.load(s_ptr + offsets, mask=seen, other=0.0).to(tl.float32)
    return tl.where(seen, cap * (1 - 2 * tl.sigmoid(-2 * s / cap)), -1e30)

@triton.jit
def pairs(s_ptr, first_ptr, y_ptr, bs, qs, ks, queries, keys, cap, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    batch = tl.program_id(1)
    query = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    begin = tl.load(first_ptr + batch)
    last = tl.where(query < queries, query + keys - queries, -1)
    m = tl.full([ROWS, 1], -1e29, tl.float32)
    l = tl.full([ROWS, 1], 1e-37, tl.float32)
    for tile in range(tl.cdiv(keys, BLOCK)):
        key = (tile * BLOCK + tl.arange(0, BLOCK))[None, :]
        logits = logits_of(s_ptr, batch * bs + query * qs + key * ks, (key >= begin) & (key <= last), cap)
        higher = tl.maximum(m, tl.max(logits, axis=1, keep_dims=True))
        l = l * tl.exp(m - higher) + tl.sum(tl.exp(logits - higher), axis=1, keep_dims=True)
        m = higher
    for tile in range(tl.cdiv(keys, BLOCK)):
        key = (tile * BLOCK + tl.arange(0, BLOCK))[None, :]
        logits = logits_of(s_ptr, batch * bs + query * qs + key * ks, (key >= begin) & (key <= last), cap)
        y = (tl.exp(logits - m) / l).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + (batch * queries + query) * keys + key, y, mask=(key < keys) & (query < queries))

def capped_causal_softmax(scores, first, cap):
    b, q, k = scores.shape
    y = torch.empty((b, q, k), dtype=scores.dtype, device=scores.device)
    strides = dict(zip(("bs", "qs", "ks"), scores.stride()))
    pairs[(triton.cdiv(q, 2), b)](scores, first, y, **strides, queries=q, keys=k, cap=cap, ROWS=2, BLOCK=128)
    return y
""",
    ),
    "three states in each lane": (
        "06.6",
        """
@triton.jit
def by_lanes(x_ptr, h_ptr, lse_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = tl.full([BLOCK], -1e30, tl.float32)
    l = tl.zeros([BLOCK], tl.float32)
    t = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=float("-inf")).to(tl.float32)
        x = tl.maximum(x, -1e30)
        real = x > -1e30
        higher = tl.maximum(m, x)
        down = m - higher
        t = (t + l * down) * tl.exp(down) + tl.where(real, (x - higher) * tl.exp(x - higher), 0.0)
        l = l * tl.exp(down) + tl.where(real, tl.exp(x - higher), 0.0)
        m = higher
    top = tl.max(m)
    down = m - top
    t = tl.sum((t + l * down) * tl.exp(down))
    l = tl.sum(l * tl.exp(down))
    tl.store(h_ptr + row, tl.log(l) - t / l)
    tl.store(lse_ptr + row, top + tl.log(l))

def entropy(x):
    h, lse = torch.empty(2, len(x), device=x.device).unbind()
    by_lanes[(len(x), )](x, h, lse, x.stride(0), x.shape[1], BLOCK=1024)
    return h, lse
""",
    ),
    "parts of a row, merged by a second kernel": (
        "06.6",
        """
NOTHING = tl.constexpr(float("-inf"))

@triton.jit
def part(x_ptr, m_ptr, l_ptr, t_ptr, stride, cols, tiles, BLOCK: tl.constexpr):
    row, tile = tl.program_id(1), tl.program_id(0)
    c = tile * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + c, mask=c < cols, other=NOTHING).to(tl.float32)
    m = tl.max(x)
    seen = x > NOTHING
    below = tl.where(seen, x - m, 0.0)
    e = tl.where(seen, tl.exp(below), 0.0)
    tl.store(m_ptr + row * tiles + tile, m)
    tl.store(l_ptr + row * tiles + tile, tl.sum(e))
    tl.store(t_ptr + row * tiles + tile, tl.sum(e * below))

@triton.jit
def merged(m_ptr, l_ptr, t_ptr, h_ptr, lse_ptr, tiles, TILES: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, TILES)
    ok = at < tiles
    m = tl.load(m_ptr + row * tiles + at, mask=ok, other=NOTHING)
    l = tl.load(l_ptr + row * tiles + at, mask=ok, other=0.0)
    t = tl.load(t_ptr + row * tiles + at, mask=ok, other=0.0)
    top = tl.max(m)
    down = tl.where(l > 0, m - top, 0.0)
    t = tl.sum((t + l * down) * tl.exp(down))
    l = tl.sum(l * tl.exp(down))
    tl.store(h_ptr + row, tl.log(l) - t / l)
    tl.store(lse_ptr + row, top + tl.log(l))

def entropy(x):
    rows, cols = x.shape
    tiles = triton.cdiv(cols, 2048)
    m, l, t = (torch.empty(rows, tiles, device=x.device) for _ in range(3))
    h, lse = torch.empty(rows, device=x.device), torch.empty(rows, device=x.device)
    part[(tiles, rows)](x, m, l, t, x.stride(0), cols, tiles, BLOCK=2048)
    merged[(rows, )](m, l, t, h, lse, tiles, TILES=triton.next_power_of_2(tiles))
    return h, lse
""",
    ),
}

# ---------------------------------------------------------------- wrong, each with its hint

TEMPERED = "(x[:, part].float() - m) / temperature"
SHIFT = '    shift = torch.where(m_new == float("-inf"), 0.0, m_new)  # nothing seen yet: any finite number will do\n'
MAX_OF_TILE = "m_new = torch.maximum(m, tile.amax(dim=1))"
REPAIRS = "repair_a, repair_b = math.exp(m_a - m), math.exp(m_b - m)"
MERGED = "l_a * repair_a + l_b * repair_b, o_a * repair_a + o_b * repair_b"
SEEN_LOAD = 'mask=columns < cols, other=float("-inf"))'
FIRST_LOOP = "for start in range(0, cols, BLOCK):"
ABSORB_CAPPED = "l = l * tl.exp(m - m_new) + tl.sum(tl.exp(logits - m_new))"
MASKED_LOGITS = (
    '        logits = tl.where(seen, logits, float("-inf"))    # after the cap, which would make a number of -inf\n'
)

NEW_L = [
    ("        l = l * repair + tl.sum(e)\n", ""),
    ("        t = (t", "        l = l * repair + tl.sum(e)\n        t = (t"),
]

WRONG = {
    # name: task, changes to the solution or a whole answer, kind of finding, words that the hint has to hold
    "no shift": ("06.1", [(TEMPERED, "x[:, part].float() / temperature")], ("slip", "nan"), ["exp", "88"]),
    "one maximum for all": ("06.1", [(".amax(dim=1, keepdim=True)", ".amax()")], "slip", ["maximum of its own"]),
    "the last block's maximum": (
        "06.1",
        [
            (
                "m = torch.maximum(m, x[:, part].float().amax(dim=1, keepdim=True))",
                "m = x[:, part].float().amax(1, True)",
            )
        ],
        ("slip", "nan"),
        ["maximum"],
    ),
    "each block's own maximum": (
        "06.1",
        [("torch.exp((x[:, part].float() - m)", "torch.exp((x[:, part].float() - x[:, part].float().amax(1, True))")],
        ("slip", "nan"),
        ["block"],
    ),
    "no temperature": ("06.1", [(" / temperature", "")], "slip", ["temperature was not applied"]),
    "no temperature in the last loop": (
        "06.1",
        [(f"torch.exp({TEMPERED}) / l", "torch.exp(x[:, part].float() - m) / l")],
        "slip",
        ["in one loop", "divide by the temperature in both"],
    ),
    "no temperature in the sum": (
        "06.1",
        [(f"torch.exp({TEMPERED}).sum", "torch.exp(x[:, part].float() - m).sum")],
        "slip",
        ["in one loop", "divide by the temperature in both"],
    ),
    "times the temperature": ("06.1", [("/ temperature", "* temperature")], "slip", ["divide by it"]),
    "no division": ("06.1", [(") / l\n", ")\n")], "slip", ["divided by their sum"]),
    "no guard for the maximum": (
        "06.1",
        [('m = torch.where(m == float("-inf"), 0.0, m)', "m = m + 0")],
        "slip",
        ["-inf - (-inf)"],
    ),
    "no guard for the sum": ("06.1", [("l = torch.where(l == 0, 1.0, l)", "l = l + 0")], "slip", ["divide by no zero"]),
    "divided in 16 bits": (
        "06.1",
        [("x[:, part].float() - m", "x[:, part] - m.to(x.dtype)")],
        ("overflow", "nan", "infinite", "sixteen_bit", "wrong", "slip"),
        [],
    ),
    "torch.softmax": (
        "06.1",
        "def three_passes(x, temperature, block):\n    return torch.softmax(x.float() / temperature, 1).nan_to_num(0)",
        "whole_tensor",
        ["slice"],
    ),
    "absorb without a guard": ("06.2", [(SHIFT, "    shift = m_new\n")], "slip", ["-inf - (-inf)"]),
    "mean without a guard": ("06.2", [("torch.where(l == 0, 1.0, l)", "l")], "slip", ["softmax_mean", "NaN"]),
    "no repair": ("06.2", [("l * repair", "l"), ("o * repair", "o")], "slip", ["absorb", "not repaired"]),
    "o not repaired": ("06.2", [("o * repair", "o")], "slip", ["o was not"]),
    "repair upside down": ("06.2", [("torch.exp(m - shift)", "torch.exp(shift - m)")], "slip", ["upside down"]),
    "local maximum": ("06.2", [(MAX_OF_TILE, "m_new = tile.amax(dim=1)")], "slip", ["own maximum"]),
    "shifted by the old maximum": (
        "06.2",
        [("torch.exp(tile - shift[:, None])", 'torch.exp(tile - torch.where(m == float("-inf"), 0.0, m)[:, None])')],
        "slip",
        ["old maximum"],
    ),
    "values forgotten": ("06.2", [("e * values", "e")], "slip", ["values"]),
    "m returned as it came": ("06.2", [("return m_new", "return m")], "slip", ["m_new"]),
    "exp in 16 bits": (
        "06.2",
        [("torch.exp(tile - shift[:, None])", "torch.exp((tile - shift[:, None]).half()).float()")],
        ("dtype", "sixteen_bit", "wrong", "row_scale"),
        [],
    ),
    "the tail left out": (
        "06.2",
        [("range(0, cols, block)", "range(0, cols - block + 1, block)")],
        ("tail", "row_scale", "wrong"),
        ["softmax_mean"],
    ),
    "in place": (
        "06.2",
        [("    return m_new, l * repair", "    l *= repair\n    return m_new, l")],
        "input_changed",
        ["changed its input l"],
    ),
    "all at once": (
        "06.2",
        [("    for start in range(0, cols, block):\n", "    block = cols\n    for start in range(0, cols, block):\n")],
        "whole_tensor",
        ["one tile"],
    ),
    "merged without repair": ("06.3", [(MERGED, "l_a + l_b, o_a + o_b")], "slip", ["smaller maximum was not repaired"]),
    "o repaired alone": ("06.3", [("l_a * repair_a + l_b * repair_b", "l_a + l_b")], "slip", ["l was not"]),
    "no larger maximum": (
        "06.3",
        [("m = max(m_a, m_b)", "m = m_a"), (REPAIRS, "repair_a, repair_b = 1.0, math.exp(min(m_b - m_a, 700.0))")],
        "slip",
        ["larger of the two"],
    ),
    "no shift at all": (
        "06.3",
        [(REPAIRS, "repair_a, repair_b = math.exp(m_a) / math.exp(m), math.exp(m_b) / math.exp(m)")],
        "exception",
        ["larger maximum"],
    ),
    "log-sum-exp of both": (
        "06.3",
        [("m = max(m_a, m_b)", "import numpy as np; m = float(np.logaddexp(m_a, m_b))")],
        "slip",
        ["larger of the two"],
    ),
    "empty parts": ("06.3", [("    if m == -math.inf:", "    if False:")], "slip", ["two empty parts"]),
    "a mean": (
        "06.3",
        [(", o_a * repair_a", ", (o_a * repair_a"), ("o_b * repair_b", "o_b * repair_b) / (l_a + l_b)")],
        ("wrong", "slip", "exception"),
        [],
    ),
    "starts at -inf, sink behind": (
        "06.4",
        [
            ("m = tl.load(sink_ptr + row) ", 'sink = tl.load(sink_ptr + row)\n    m = float("-inf")'),
            ("l = 1.0", "l = 0.0"),
        ]
        + [("        m = m_new\n", "        m = m_new\n    l += tl.exp(sink - m)\n")],
        "nan",
        ["-inf - (-inf)"],
    ),
    "own maximum of each tile": (
        "06.4",
        [("m_new = tl.maximum(m, tl.max(x))", "m_new = tl.max(x)")],
        ("nan", "slip", "row_scale"),
        [],
    ),
    "16-bit sums": (
        "06.4",
        [("tl.sum(tl.exp(x - m_new))", "tl.sum(tl.exp(x - m_new).to(tl.bfloat16)).to(tl.float32)")],
        "sixteen_bit",
        ["16 bits"],
    ),
    "masked lanes of 0": (
        "06.4",
        [(SEEN_LOAD, SEEN_LOAD.replace('float("-inf")', "0.0"))],
        "slip",
        ["masked lanes", "`other=`"],
    ),
    "no tail mask": ("06.4", [(SEEN_LOAD, "mask=None)")], "out_of_bounds", ["mask"]),
    "three readings": (
        "06.4",
        [
            (
                "    l = 1.0 ",
                "    for start in range(0, cols, BLOCK):\n        c = start + tl.arange(0, BLOCK)\n"
                '        x = tl.load(x_row + c, mask=c < cols, other=float("-inf")).to(tl.float32)\n'
                "        m = tl.maximum(m, tl.max(x))\n"
                "    l = tl.exp(tl.load(sink_ptr + row) - m) ",
            )
        ],
        "bytes",
        ["x is read 3.0 times", "Two readings"],
    ),
    "the diagonal without keys - queries": (
        "06.5",
        [("query + keys - queries + 1", "query + 1")],
        "out_of_bounds",
        ["keys - queries"],
    ),
    "not masked behind the cap": ("06.5", [(MASKED_LOGITS, "")], "slip", ["keys that are not seen", "after the cap"]),
    "masked before the cap": (
        "06.5",
        [(MASKED_LOGITS, ""), ("mask=seen, other=0.0)", 'mask=seen, other=float("-inf"))')],
        "slip",
        ["mask came before the cap", "bend the scores first"],
    ),
    "masked before the cap, in all tiles": (
        "06.5",
        [
            (MASKED_LOGITS, ""),
            ("mask=seen, other=0.0)", 'mask=seen, other=float("-inf"))'),
            ("range(first, end, BLOCK)", "range(0, keys, BLOCK)"),
            ("seen = key < end", "seen = (key >= first) & (key < end)"),
        ],
        "slip",
        ["mask came before the cap", "bend the scores first"],
    ),
    "masked before the cap, up to the diagonal, and stored as it is": (
        "06.5",
        [
            (MASKED_LOGITS, ""),
            ("mask=seen, other=0.0)", 'mask=seen, other=float("-inf"))'),
            ("range(first, end, BLOCK)", "range(0, end, BLOCK)"),
            ("seen = key < end", "seen = (key >= first) & (key < end)"),
            ("tl.where(seen, tl.exp(logits - m) / l, 0.0)", "tl.exp(logits - m) / l"),
        ],
        "slip",
        ["mask came before the cap", "bend the scores first"],
    ),
    "empty tiles without a guard": (
        "06.5",
        [
            ("range(first, end, BLOCK)", "range(0, end, BLOCK)"),
            ("seen = key < end", "seen = (key >= first) & (key < end)"),
        ],
        ("slip", "nan"),
        ["-inf - (-inf)"],
    ),
    "empty queries divide by zero": (
        "06.5",
        [("tl.where(seen, tl.exp(logits - m) / l, 0.0)", "tl.where(seen, tl.exp(logits - m), 0.0) / l")],
        ("slip", "nan"),
        ["-inf"],
    ),
    "own maximum under the mask": (
        "06.5",
        [("m_new = tl.maximum(m, tl.max(logits))", "m_new = tl.max(logits)")],
        ("nan", "infinite", "overflow"),
        ["maximum of all that was seen"],
    ),
    "hidden scores read": (
        "06.5",
        [
            (
                "logits = capped(tl.load(scores_row + key.to(tl.int64) * key_stride, mask=seen, other=0.0), cap)",
                "logits = capped(tl.load(scores_row + key.to(tl.int64) * key_stride, mask=key < keys, other=0.0), cap)",
            )
        ],
        "bytes",
        ["what the query sees"],
    ),
    "scores taken as contiguous": (
        "06.5",
        [("*scores.stride()", "queries * keys, keys, 1")],
        ("out_of_bounds", "nan", "not_read"),
        ["scores.stride()"],
    ),
    "t moved with the new l": ("06.6", NEW_L, "nan", ["no -inf in the row", "before the tile"]),
    "t moved with the new l, from a nearer start": (
        "06.6",
        [*NEW_L, ("m = -3.0e38 ", "m = -1e30 ")],
        "slip",
        ["holds the new tile already", "repair t first"],
    ),
    "0 times -inf": ("06.6", [("tl.where(e > 0, below * e, 0.0)", "below * e")], "nan", ["0 * -inf"]),
    "starts at -inf": ("06.6", [("m = -3.0e38 ", 'm = float("-inf") ')], "nan", ["nothing but -inf"]),
    "x * exp(x - m)": (
        "06.6",
        [
            ("(t + l * (m - m_new)) * repair", "t * repair"),
            ("below * e", "x * e"),
            ("tl.log(l) - t / l", "m + tl.log(l) - t / l"),
        ],
        ("wrong", "row_scale", "sixteen_bit"),
        ["10,000"],
    ),
    "a second reading": (
        "06.6",
        [
            (
                "    tl.store(entropy_ptr",
                "    t = 0.0\n    for start in range(0, cols, BLOCK):\n        c = start + tl.arange(0, BLOCK)\n"
                '        below = tl.load(x_row + c, mask=c < cols, other=float("-inf")).to(tl.float32) - m\n'
                "        t += tl.sum(tl.where(below > -100, below * tl.exp(below), 0.0))\n    tl.store(entropy_ptr",
            )
        ],
        "bytes",
        ["x is read 2.0 times", "second reading"],
    ),
}


test_right, test_wrong, test_untouched, test_enough = answer_tests(SOLUTION, RIGHT, WRONG)


def call_wide(module):
    module.sink_softmax(torch.empty(2, 65536, dtype=torch.bfloat16), torch.empty(2, 1), torch.bfloat16)


def call_causal(module):
    module.capped_causal_softmax(
        torch.empty(1, 64, 2048, dtype=torch.bfloat16), torch.zeros(1, dtype=torch.int32), 50.0
    )


def call_entropy(module):
    module.entropy(torch.empty(2, 131072, dtype=torch.bfloat16))


@pytest.mark.parametrize("task, call", [("06.4", call_wide), ("06.5", call_causal), ("06.6", call_entropy)])
def test_the_solutions_kernels_compile_without_spills(task, call):
    with backend.captured() as records:
        call(module_of(SOLUTION[task]))
    assert len(records) == 1 and compile_launch(records[0], arch=90).spills == 0
