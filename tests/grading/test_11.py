"""Exercise 11: right answers in several styles pass, and each plausible wrong one fails with the hint made for it."""

import itertools

import numpy as np
import pytest
from grading_tools import answer_tests, answers, find_task

from grading.arrays import rounded
from grading.diagnose import Got, matches
from grading.tasks import Given

EXERCISE = "11_mixture_of_experts"
SOLUTION = answers(EXERCISE)
NOT_FAR = {("11.3", "align"): "experts is contiguous, as a router leaves it"}
pytestmark = pytest.mark.once

# ---------------------------------------------------------------- right, in another style

RIGHT = {
    "by hand": (
        "11.1",
        """
def fractions(experts, many):
    number = torch.arange(many, device=experts.device)
    return (experts.flatten(1)[..., None] == number).float().mean(1) * many

def balance_loss(logits, experts):
    scores = logits.sigmoid()
    share = scores / scores.sum(2, keepdim=True)
    return torch.einsum("se,ste->s", fractions(experts, logits.shape[2]), share) / logits.shape[1]

def balance_gradient(logits, experts):
    f, s = fractions(experts, logits.shape[2])[:, None], logits.sigmoid()
    p = s / s.sum(2, keepdim=True)
    return p * (1 - s) * (f - (f * p).sum(2, keepdim=True)) / logits.shape[1]

def next_bias(bias, experts, step):
    n, total = len(bias), experts.numel()
    counts = torch.bincount(experts.reshape(-1).long(), minlength=n)
    return bias + step * ((counts * n < total).float() - (counts * n > total).float())
""",
    ),
    "a sequence at a time": (
        "11.1",
        """
def balance_loss(logits, experts):
    losses = []
    for one, choices in zip(logits, experts):
        n = one.shape[1]
        f = torch.zeros(n, device=one.device).index_add_(
            0, choices.flatten().long(), torch.full((choices.numel(),), n / choices.numel(), device=one.device))
        s = torch.exp(one - torch.nn.functional.softplus(one))
        losses.append((f * (s / s.sum(1, keepdim=True)).mean(0)).sum())
    return torch.stack(losses)

def balance_gradient(logits, experts):
    with torch.enable_grad():
        leaf = logits.clone().requires_grad_(True)
        return torch.autograd.grad(balance_loss(leaf, experts).sum(), leaf)[0]

def next_bias(bias, experts, step):
    new = bias.clone()
    for e in range(len(bias)):
        over = int((experts == e).sum()) * len(bias) - experts.numel()
        new[e] += step if over < 0 else -step if over > 0 else 0
    return new
""",
    ),
    "sums in the place of a product, the maximum by hand": (
        "11.2",
        """
@triton.jit
def by_sums(x_ptr, w_ptr, b_ptr, e_ptr, g_ptr, T, H, stride, scale, E: tl.constexpr, K: tl.constexpr,
            EP: tl.constexpr, KP: tl.constexpr):
    t, e, k = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, EP), tl.arange(0, KP)
    logits = tl.zeros([16, EP], tl.float32)
    for start in tl.range(0, H, 8):
        h = start + tl.arange(0, 8)
        x = tl.load(x_ptr + t[:, None] * stride + h[None, :], (t < T)[:, None] & (h < H)[None, :], 0.0).to(tl.float32)
        w = tl.load(w_ptr + e[:, None] * H + h[None, :], (e < E)[:, None] & (h < H)[None, :], 0.0).to(tl.float32)
        logits += tl.sum(x[:, None, :] * w[None, :, :], axis=2)
    score = 1 / (1 + tl.exp(-logits))
    bias = tl.load(b_ptr + e, e < E, 0.0)
    left = tl.where((e < E)[None, :], score + bias[None, :], -float("inf"))
    experts, gates = tl.zeros([16, KP], tl.int32), tl.zeros([16, KP], tl.float32)
    for i in range(K):
        top = tl.max(left, axis=1)
        first = tl.min(tl.where(left == top[:, None], e[None, :], EP), axis=1)
        mine = e[None, :] == first[:, None]
        experts = tl.where(k[None, :] == i, first[:, None], experts)
        gates = tl.where(k[None, :] == i, tl.sum(tl.where(mine, score, 0.0), axis=1)[:, None], gates)
        left = tl.where(mine, -float("inf"), left)
    gates *= scale / tl.sum(gates, axis=1)[:, None]
    at, mask = t[:, None] * K + k[None, :], (t < T)[:, None] & (k < K)[None, :]
    tl.store(e_ptr + at, experts, mask)
    tl.store(g_ptr + at, gates, mask)

def route(x, router, bias, top_k, scale):
    (T, H), E = x.shape, router.shape[0]
    experts = x.new_empty((T, top_k), dtype=torch.int32)
    gates = x.new_empty((T, top_k), dtype=torch.float32)
    by_sums[((T + 15) // 16,)](x, router, bias, experts, gates, T, H, x.stride(0), scale, E, top_k,
                               triton.next_power_of_2(E), triton.next_power_of_2(top_k))
    return experts, gates
""",
    ),
    "a fixed number of programs, scores divided in a second round": (
        "11.2",
        """
@triton.jit
def persistent(x, router, bias, experts, gates, tokens, hidden, many, stride, scale, k: tl.constexpr, W: tl.constexpr):
    e = tl.arange(0, W)
    for tile in range(tl.program_id(0), tl.cdiv(tokens, 32), tl.num_programs(0)):
        t = (tile * 32 + tl.arange(0, 32)).to(tl.int64)
        z = tl.zeros((W, 32), dtype=tl.float32)                                # the logits, transposed
        for h0 in range(0, tl.cdiv(hidden, 32)):
            h = h0 * 32 + tl.arange(0, 32)
            a = tl.load(x + t[None, :] * stride + h[:, None], mask=(t < tokens)[None, :] & (h < hidden)[:, None],
                        other=0)
            w = tl.load(router + e[:, None] * hidden + h[None, :], mask=(e[:, None] < many) & (h[None, :] < hidden),
                        other=0)
            z += tl.dot(w, a)
        score = tl.sigmoid(z)
        b = tl.load(bias + e, mask=e < many, other=-1e30)
        free = tl.where(e < many, 1, 0)[:, None] + tl.zeros((W, 32), tl.int32)
        total = tl.zeros((32,), tl.float32)
        for i in tl.static_range(k):
            best = tl.argmax(tl.where(free == 1, score + b[:, None], -1e30), axis=0)
            hit = e[:, None] == best[None, :]
            g = tl.sum(tl.where(hit, score, 0.0), axis=0)
            total += g
            free = tl.where(hit, 0, free)
            tl.store(experts + t * k + i, best, mask=t < tokens)
        free = tl.where((e < many)[:, None], 1, free * 0)
        for i in tl.static_range(k):
            best = tl.argmax(tl.where(free == 1, score + b[:, None], -1e30), axis=0)
            hit = e[:, None] == best[None, :]
            tl.store(gates + t * k + i, scale * tl.sum(tl.where(hit, score, 0.0), axis=0) / total, mask=t < tokens)
            free = tl.where(hit, 0, free)

def route(x, router, bias, top_k, scale):
    experts = torch.zeros((x.shape[0], top_k), dtype=torch.int32, device=x.device)
    gates = torch.empty_like(experts, dtype=torch.float32)
    persistent[(min(132, triton.cdiv(x.shape[0], 32)),)](
        x, router, bias, experts, gates, *x.shape, len(router), x.stride(0), scale, k=top_k,
        W=max(16, triton.next_power_of_2(len(router))))
    return experts, gates
""",
    ),
    "one program for all": (
        "11.3",
        """
@triton.jit
def alone(experts_ptr, slots_ptr, owners_ptr, S, R, N, E, block, EP: tl.constexpr, B: tl.constexpr):
    e, i = tl.arange(0, EP), tl.arange(0, B)
    load = tl.zeros([EP], tl.int32)
    for s in range(0, S, B):
        x = tl.load(experts_ptr + s + i, s + i < S, -1)
        load += tl.sum((x[None, :] == e[:, None]).to(tl.int32), 1)
    tiles = tl.cdiv(load, block)
    stop = tl.cumsum(tiles, 0)
    at = (stop - tiles) * block
    for s in range(0, S, B):
        x = tl.load(experts_ptr + s + i, s + i < S, -1)
        one = (x[None, :] == e[:, None]).to(tl.int32)
        row = tl.sum(one * (at[:, None] + tl.cumsum(one, 1) - 1), 0)
        tl.store(slots_ptr + row, s + i, s + i < S)
        at += tl.sum(one, 1)
    for n in range(0, N, B):
        t = n + i
        who = tl.sum((t[None, :] >= stop[:, None]).to(tl.int32), 0)
        tl.store(owners_ptr + t, tl.where(t < tl.max(stop, 0), who, -1), t < N)

@triton.jit
def fill(slots_ptr, R, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(slots_ptr + i, tl.full([B], -1, tl.int32), i < R)

def align(experts, num_experts, block):
    S = experts.numel()
    N = (S + num_experts * (block - 1)) // block
    slots = experts.new_empty(N * block)
    owners = experts.new_empty(N)
    fill[(triton.cdiv(N * block, 1024),)](slots, N * block, 1024)
    alone[(1,)](experts, slots, owners, S, N * block, N, num_experts, block, triton.next_power_of_2(num_experts), 256)
    return slots, owners
""",
    ),
    "loads by atomics, padding by each expert": (
        "11.3",
        """
@triton.jit
def counts(experts_ptr, part_ptr, load_ptr, S, B: tl.constexpr, EP: tl.constexpr):
    p, e = tl.program_id(0), tl.arange(0, EP)
    s = p * B + tl.arange(0, B)
    x = tl.load(experts_ptr + s, s < S, EP)
    n = tl.sum((x[:, None] == e[None, :]).to(tl.int32), 0)
    tl.store(part_ptr + p * EP + e, n)
    tl.atomic_add(load_ptr + e, n, mask=n > 0)

@triton.jit
def begins(part_ptr, load_ptr, slots_ptr, owners_ptr, P, N, E, block, EP: tl.constexpr, B: tl.constexpr):
    me, e, i = tl.program_id(0), tl.arange(0, EP), tl.arange(0, B)
    load = tl.load(load_ptr + e)
    tiles = (load + block - 1) // block
    first = tl.sum(tl.where(e < me, tiles, 0), 0)
    mine, n = tl.sum(tl.where(e == me, load, 0), 0), tl.sum(tl.where(e == me, tiles, 0), 0)
    place = first * block
    for p in range(P):
        here = tl.load(part_ptr + p * EP + me)
        tl.store(part_ptr + p * EP + me, place)
        place += here
    last = first + n
    if me == E - 1:
        last = N
    for r in range(first * block + mine, last * block, B):
        tl.store(slots_ptr + r + i, -1, mask=r + i < last * block)
    for t in range(first, last, B):
        tl.store(owners_ptr + t + i, tl.where(t + i < first + n, me, -1), mask=t + i < last)

@triton.jit
def scatter(experts_ptr, part_ptr, slots_ptr, S, B: tl.constexpr, EP: tl.constexpr):
    p, e = tl.program_id(0), tl.arange(0, EP)
    s = p * B + tl.arange(0, B)
    x = tl.load(experts_ptr + s, s < S, EP)
    hit = x[:, None] == e[None, :]
    n = tl.cumsum(hit.to(tl.int32), 0) - 1 + tl.load(part_ptr + p * EP + e)[None, :]
    tl.store(slots_ptr + n, s[:, None] + n * 0, mask=hit & (s < S)[:, None])

def align(experts, num_experts, block):
    S, B, EP = experts.numel(), 256, triton.next_power_of_2(num_experts)
    N = (S + num_experts * (block - 1)) // block
    slots, owners = (torch.empty((n,), dtype=torch.int32, device=experts.device) for n in (N * block, N))
    P = triton.cdiv(S, B)
    part = torch.empty((P, EP), dtype=torch.int32, device=experts.device)
    load = torch.zeros(EP, dtype=torch.int32, device=experts.device)
    counts[(P,)](experts, part, load, S, B, EP)
    begins[(num_experts,)](part, load, slots, owners, P, N, num_experts, block, EP, 64)
    scatter[(P,)](experts, part, slots, S, B, EP)
    return slots, owners
""",
    ),
    "a program for each expert and tile": (
        "11.4",
        """
@triton.jit
def each(x, w, b, offsets, y, N, K, stride, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    e = tl.program_id(2)
    begin, end = tl.load(offsets + e), tl.load(offsets + e + 1)
    m = begin + tl.program_id(0) * BM + tl.arange(0, BM)
    if begin + tl.program_id(0) * BM < end:
        n = tl.program_id(1) * BN + tl.arange(0, BN)
        total = tl.zeros((BN, BM), tl.float32)
        for k0 in range(tl.cdiv(K, BK)):
            k = k0 * BK + tl.arange(0, BK)
            xs = tl.load(x + m[None, :].to(tl.int64) * stride + k[:, None], (m[None, :] < end) & (k[:, None] < K), 0.0)
            ws = tl.load(w + (e * N + n[:, None]) * K + k[None, :], (n < N)[:, None] & (k < K)[None, :], 0.0)
            total += tl.dot(ws, xs)
        total += tl.load(b + e * N + n, n < N, 0.0)[:, None]
        total = tl.where(total > 0, total * total, 0.0)
        tl.store(y + m[None, :] * N + n[:, None], total.to(y.dtype.element_ty), (m[None, :] < end) & (n[:, None] < N))

def grouped_linear(x, weight, bias, offsets):
    E, N, K = weight.shape
    y = x.new_empty(len(x), N)
    each[(triton.cdiv(len(x), 16), triton.cdiv(N, 32), E)](x, weight, bias, offsets, y, N, K, x.stride(0), 16, 32, 16)
    return y
""",
    ),
    "persistent, walking from group to group": (
        "11.4",
        """
@triton.jit
def walk(x_ptr, w_ptr, b_ptr, o_ptr, y_ptr, E, N, K, stride, BM: tl.constexpr, BN: tl.constexpr):
    wide = tl.cdiv(N, BN)
    passed = 0
    mine = tl.program_id(0)
    start = tl.load(o_ptr)
    for e in range(E):
        end = tl.load(o_ptr + e + 1)
        tiles = tl.cdiv(end - start, BM) * wide
        while mine < passed + tiles:
            here = mine - passed
            rows = start + here // wide * BM + tl.arange(0, BM)
            cols = here % wide * BN + tl.arange(0, BN)
            y = tl.zeros([BM, BN], tl.float32) + tl.load(b_ptr + e * N + cols, mask=cols < N, other=0.0)[None, :]
            for k in range(0, K, 32):
                ks = k + tl.arange(0, 32)
                a = tl.load(x_ptr + rows[:, None] * stride + ks[None, :],
                            mask=(rows < end)[:, None] & (ks < K)[None, :], other=0.0)
                b = tl.load(w_ptr + e * N * K + cols[:, None] * K + ks[None, :],
                            mask=(cols < N)[:, None] & (ks < K)[None, :], other=0.0)
                y = tl.dot(a, tl.trans(b), y)
            y = tl.maximum(y, 0)
            tl.store(y_ptr + rows[:, None] * N + cols[None, :], y * y, mask=(rows < end)[:, None] & (cols < N)[None, :])
            mine += tl.num_programs(0)
        passed += tiles
        start = end

def grouped_linear(x, weight, bias, offsets):
    y = torch.empty((x.shape[0], weight.shape[1]), device=x.device, dtype=x.dtype)
    walk[(20,)](x, weight, bias, offsets, y, *weight.shape, x.stride(0), BM=64, BN=64)
    return y
""",
    ),
    "all choices as one tile": (
        "11.5",
        """
@triton.jit
def tile(y, rows, gates, shared, out, H, ys, ss, K: tl.constexpr, KP: tl.constexpr, B: tl.constexpr):
    t, k, c = tl.program_id(0), tl.arange(0, KP), tl.program_id(1) * B + tl.arange(0, B)
    row = tl.load(rows + t * K + k, mask=k < K, other=-1)
    gate = tl.load(gates + t * K + k, mask=row >= 0, other=0.0)
    mask = (row >= 0)[:, None] & (c < H)[None, :]
    picked = tl.load(y + row[:, None].to(tl.int64) * ys + c[None, :], mask=mask, other=0.0).to(tl.float32)
    s = tl.load(shared + t * ss + c, mask=c < H, other=0.0).to(tl.float32)
    tl.store(out + t * H + c, s + tl.sum(picked * gate[:, None], axis=0), mask=c < H)

def combine(y, rows, gates, shared):
    out = shared.new_empty(shared.shape)
    (T, K), H = rows.shape, shared.shape[1]
    tile[(T, triton.cdiv(H, 128))](y, rows, gates, shared, out, H, y.stride(0), shared.stride(0), K,
                                   triton.next_power_of_2(K), 128)
    return out
""",
    ),
    "several tokens a program, nothing loaded where nothing is": (
        "11.5",
        """
@triton.jit
def loop(y_ptr, rows_ptr, gates_ptr, shared_ptr, out_ptr, T, H, K, y_stride, s_stride, B: tl.constexpr):
    for t in range(tl.program_id(0), T, tl.num_programs(0)):
        for start in range(0, H, B):
            c = start + tl.arange(0, B)
            total = tl.load(shared_ptr + t * s_stride + c, c < H).to(tl.float32)
            for k in range(K):
                row = tl.load(rows_ptr + t * K + k)
                if row != -1:
                    part = tl.load(y_ptr + row * y_stride + c, c < H).to(tl.float32)
                    total = tl.fma(part, tl.zeros([B], tl.float32) + tl.load(gates_ptr + t * K + k), total)
            tl.store(out_ptr + t * H + c, total.to(out_ptr.dtype.element_ty), c < H)

def combine(y, rows, gates, shared):
    out = torch.zeros(shared.shape, dtype=shared.dtype, device=shared.device)
    loop[(min(len(rows), 264),)](y, rows, gates, shared, out, *shared.shape, rows.shape[1], y.stride(0),
                                 shared.stride(0), B=512)
    return out
""",
    ),
}

RIGHT["the gate is loaded where its row is, all columns as one tile"] = (
    "11.5",
    """
@triton.jit
def masked(y_ptr, rows_ptr, gates_ptr, shared_ptr, out_ptr, hidden, y_stride, s_stride, K: tl.constexpr,
           B: tl.constexpr):
    token, col = tl.program_id(0).to(tl.int64), tl.arange(0, B)
    total = tl.load(shared_ptr + token * s_stride + col, mask=col < hidden, other=0.0).to(tl.float32)
    for i in tl.static_range(K):
        row = tl.load(rows_ptr + token * K + i).to(tl.int64)
        y = tl.load(y_ptr + row * y_stride + col, mask=(col < hidden) & (row >= 0), other=0.0).to(tl.float32)
        total += y * tl.load(gates_ptr + token * K + i, mask=row >= 0, other=0.0)
    tl.store(out_ptr + token * hidden + col, total.to(out_ptr.dtype.element_ty), mask=col < hidden)

def combine(y, rows, gates, shared):
    (tokens, top_k), hidden = rows.shape, y.shape[1]
    out = torch.empty((tokens, hidden), dtype=y.dtype, device=y.device)
    masked[(tokens,)](y, rows, gates, shared, out, hidden, y.stride(0), shared.stride(0), top_k,
                      triton.next_power_of_2(hidden))
    return out
""",
)

# ---------------------------------------------------------------- wrong, each with its hint

ATOMIC = """
@triton.jit
def loads(experts_ptr, load_ptr, slots_ptr, S, R, B: tl.constexpr):
    s = tl.program_id(0) * B + tl.arange(0, B)
    e = tl.load(experts_ptr + s, s < S, 0)
    tl.atomic_add(load_ptr + e, 1, mask=s < S)
    for r in range(tl.program_id(0) * B, R, tl.num_programs(0) * B):
        tl.store(slots_ptr + r + tl.arange(0, B), -1, r + tl.arange(0, B) < R)

@triton.jit
def firsts(load_ptr, owners_ptr, N, E, block, EP: tl.constexpr, B: tl.constexpr):
    e = tl.arange(0, EP)
    tiles = tl.cdiv(tl.load(load_ptr + e, e < E, 0), block)
    stop = tl.cumsum(tiles, 0)
    tl.store(load_ptr + e, (stop - tiles) * block, e < E)
    for n in range(0, N, B):
        t = n + tl.arange(0, B)
        who = tl.sum((t[None, :] >= stop[:, None]).to(tl.int32), 0)
        tl.store(owners_ptr + t, tl.where(t < tl.max(stop, 0), who, -1), t < N)

@triton.jit
def take(experts_ptr, next_ptr, slots_ptr, S, B: tl.constexpr):
    s = tl.program_id(0) * B + tl.arange(0, B)
    e = tl.load(experts_ptr + s, s < S, 0)
    row = tl.atomic_add(next_ptr + e, 1, mask=s < S)
    tl.store(slots_ptr + row, s, s < S)

def align(experts, num_experts, block):
    S, B = experts.numel(), 128
    N = (S + num_experts * (block - 1)) // block
    slots, owners, load = experts.new_empty(N * block), experts.new_empty(N), experts.new_zeros(num_experts)
    loads[(triton.cdiv(S, B),)](experts, load, slots, S, N * block, B)
    firsts[(1,)](load, owners, N, num_experts, block, triton.next_power_of_2(num_experts), B)
    take[(triton.cdiv(S, B),)](experts, load, slots, S, B)
    return slots, owners
"""

LOOP = """
@triton.jit
def one(x, w, b, y, start, rows, N, K, stride, BM: tl.constexpr, BN: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for k0 in range(0, K, 32):
        k = k0 + tl.arange(0, 32)
        a = tl.load(x + (start + m)[:, None] * stride + k[None, :], (m < rows)[:, None] & (k < K)[None, :], 0.0)
        c = tl.load(w + n[None, :] * K + k[:, None], (n < N)[None, :] & (k < K)[:, None], 0.0)
        acc = tl.dot(a, c, acc)
    z = tl.maximum(acc + tl.load(b + n, n < N, 0.0)[None, :], 0.0)
    tl.store(y + (start + m)[:, None] * N + n[None, :], z * z, (m < rows)[:, None] & (n < N)[None, :])

def grouped_linear(x, weight, bias, offsets):
    y = x.new_empty(len(x), weight.shape[1])
    bounds = offsets.tolist()
    for e, (start, end) in enumerate(zip(bounds, bounds[1:])):
        if end > start:
            one[(triton.cdiv(end - start, 32), triton.cdiv(y.shape[1], 64))](
                x, weight[e], bias[e], y, start, end - start, y.shape[1], x.shape[1], x.stride(0), 32, 64)
    return y
"""

FULL_TILE = ("mask=(row < end)[:, None] & (n < N)[None, :])", "mask=(row < rows)[:, None] & (n < N)[None, :])")

WRONG = {  # name: task, changes to the solution or a whole answer, kind of finding, words that the hint has to hold
    "argmax of one choice": ("11.1", [("flatten(), minlength", "flatten()[::2], minlength")], (), ["next_bias"]),
    "bias changed in place": (
        "11.1",
        [("return bias + step", "return bias.add_(step"), ("* len(bias))        #", "* len(bias)))        #")],
        (),
        [],
    ),
    "the median in the place of the mean": (
        "11.1",
        [("torch.sign(experts.numel() - counts * len(bias))", "torch.sign(counts.float().median() - counts)")],
        (),
        ["next_bias"],
    ),
    "5% are near enough": (
        "11.1",
        [
            (
                "return bias + step * torch.sign(experts.numel() - counts * len(bias))",
                "off = experts.numel() / len(bias) - counts\n"
                "    return bias + step * torch.sign(off) * (off.abs() * len(bias) > 0.05 * experts.numel())",
            )
        ],
        "slip",
        ["mean"],
    ),
    "a 25th of a choice is near enough": (
        "11.1",
        [
            (
                "return bias + step * torch.sign(experts.numel() - counts * len(bias))",
                "off = experts.numel() / len(bias) - counts\n"
                "    return bias + step * torch.sign(off) * (off.abs() > 0.04)",
            )
        ],
        "slip",
        ["next_bias", "mean"],
    ),
    "the first choice alone moves the bias": (
        "11.1",
        [("experts.flatten(), minlength", "experts[:, 0], minlength"), ("experts.numel() -", "len(experts) -")],
        "slip",
        ["next_bias", "only the first choice"],
    ),
    "the input asks for a gradient": (
        "11.1",
        [("logits.detach().requires_grad_()", "logits.requires_grad_()")],
        "input_changed",
        ["logits, which now asks for a gradient"],
    ),
    "exp over 1 + exp": (
        "11.1",
        [("torch.sigmoid(logits)", "torch.exp(logits) / (1 + torch.exp(logits))")],
        "nan",
        ["balance_loss", "inf / inf"],
    ),
    "no way back from -100": (
        "11.1",
        [("torch.sigmoid(logits)", "1 / (1 + torch.exp(-logits))")],
        "nan",
        ["balance_gradient", "torch.sigmoid holds"],
    ),
    "no minlength": ("11.1", [(", minlength=len(bias)", "")], ("exception", "shape"), []),
    "the gradient of the counts": (
        "11.1",
        [("return logits.grad", "return torch.zeros_like(logits)")],
        ("wrong",),
        ["dlogits is zero"],
    ),
    "a program for eight tokens": (
        "11.2",
        [
            ("BLOCK_T, BLOCK_E = 16,", "BLOCK_T, BLOCK_E = 8,"),
            (
                "logits = tl.dot(x, weight, acc=logits)",
                "logits += tl.sum(x.to(tl.float32)[:, :, None] * weight.to(tl.float32)[None, :, :], axis=1)",
            ),
        ],
        "bytes",
        ["router", "16 tokens"],
    ),
    "logits in 16 bits": (
        "11.2",
        [("tl.sigmoid(logits)", "tl.sigmoid(logits.to(x_ptr.dtype.element_ty).to(tl.float32))")],
        (),
        [],
    ),
    "the accumulator in 16 bits": (
        "11.2",
        [("acc=logits)", "acc=logits).to(x_ptr.dtype.element_ty).to(tl.float32)"), ("BLOCK_H=64", "BLOCK_H=16")],
        (),
        [],
    ),
    "one scale for all": ("11.2", [("gates = scale * kept", "gates = 2.5 * kept")], (), []),
    "16 experts at most": ("11.2", [("max(16, triton.next_power_of_2(len(router)))", "16")], (), ["of 33"]),
    "NaN from 89 on": (
        "11.2",
        [("tl.sigmoid(logits)", "tl.exp(logits) / (1 + tl.exp(logits))")],
        "nan",
        ["a logit of 100 is 1"],
    ),
    "logits clipped": (
        "11.2",
        [("tl.sigmoid(logits)", "tl.sigmoid(tl.clamp(logits, -8.0, 8.0))")],
        (),
        ["that of 12 is above that of 9"],
    ),
    "1,024 columns at most": (
        "11.2",
        [("range(0, hidden, BLOCK_H)", "range(0, tl.minimum(hidden, 1024), BLOCK_H)")],
        (),
        ["All 1,100 columns count"],
    ),
    "choices in fp16": (
        "11.2",
        [("choice = scores + bias[None, :]", "choice = (scores + bias[None, :]).to(tl.float16).to(tl.float32)")],
        (),
        ["experts["],
    ),
    "a sum that is not small": (
        "11.2",
        [("tl.sum(kept, axis=1)[:, None]", "tl.maximum(tl.sum(kept, axis=1)[:, None], 1e-3)")],
        (),
        ["divided by their own sum"],
    ),
    "-10,000 for what was taken": (
        "11.2",
        [('tl.where(taken, float("-inf"), choice)', "tl.where(taken, -1e4, choice)")],
        (),
        ["minus infinity"],
    ),
    "-10,000 beyond the last": ("11.2", [('other=float("-inf"))', "other=-1e4)")], (), ["minus infinity"]),
    "ties broken in the sum": (
        "11.2",
        [("choice = scores + bias[None, :]", "choice = scores + bias[None, :] - 1e-7 * expert[None, :]")],
        (),
        ["broken by the index"],
    ),
    "-10 for minus infinity": ("11.2", [('other=float("-inf"))', "other=-10.0)")], "slip", ["minus infinity"]),
    "gates in the reverse order": (
        "11.2",
        [("place == k)", "place == TOP_K - 1 - k)")],
        "slip",
        ["gates[t, i] belongs to experts[t, i]"],
    ),
    "rows without their stride": ("11.2", [("* x_row_stride", "* hidden")], (), ["padded rows"]),
    "int64 experts": ("11.2", [("top_k, dtype=torch.int32", "top_k, dtype=torch.int64")], "dtype", ["int32"]),
    "torch chooses": (
        "11.2",
        "def route(x, router, bias, top_k, scale):\n"
        "    scores = torch.sigmoid(x.float() @ router.float().T)\n"
        "    experts = torch.topk(scores + bias, top_k).indices\n"
        "    gates = scores.gather(1, experts)\n"
        "    return experts.int(), scale * gates / gates.sum(1, keepdim=True)",
        "no_kernel",
        [],
    ),
    "places handed out by an atomic": ("11.3", ATOMIC, "order", ["in another order", "Count first"]),
    "tokens for slots": (
        "11.3",
        [
            ("slot, mask=slot < total)\n    ### END SOLUTION\n\n\ndef", "slot // top_k, mask=slot < total)\n\n\ndef"),
            ("total, num_experts, BLOCK: tl", "total, num_experts, top_k, BLOCK: tl"),
            (
                "total, num_experts, BLOCK, BLOCK_E)\n    return",
                "total, num_experts, experts.shape[1], BLOCK, BLOCK_E)\n    return",
            ),
        ],
        "slip",
        ["tokens, not slots"],
    ),
    "filled by torch": (
        "11.3",
        [
            ("torch.empty(tiles * block,", "torch.full((tiles * block,), -1,"),
            ("        tl.store(slots_ptr + row, -1, mask=row < rows)", "        pass"),
        ],
        "unwritten",
        ["stored by a kernel, for all"],
    ),
    "filled while slots are placed": (
        "11.3",
        [
            (
                "    tl.store(slots_ptr + row, slot, mask=slot < total)",
                "    for start in range(tl.program_id(0) * BLOCK, rows, tl.num_programs(0) * BLOCK):\n"
                "        every = start + tl.arange(0, BLOCK)\n"
                "        tl.store(slots_ptr + every, -1, mask=every < rows)\n"
                "    tl.store(slots_ptr + row, slot, mask=slot < total)",
            ),
            ("total, num_experts, BLOCK: tl", "total, num_experts, rows, BLOCK: tl"),
            (
                "total, num_experts, BLOCK, BLOCK_E)\n    return",
                "total, num_experts, tiles * block, BLOCK, BLOCK_E)\n    return",
            ),
        ],
        "race",
        ["in a launch before"],
    ),
    "each tile of slots counts from its expert's first row on": (
        "11.3",
        [("        place += count", "        place += 0 * count")],
        "race",
        ["behind those of all tiles before it"],
    ),
    "counts of eight bits": (
        "11.3",
        [
            (
                "tl.sum(mine, axis=0), mask=e < num_experts)\n    for",
                "tl.sum(mine, axis=0).to(tl.int8), mask=e < num_experts)\n    for",
            )
        ],
        (),
        [],
    ),
    "choices read by the host": (
        "11.3",
        [("    total, BLOCK = experts.numel(), 128", "    total, BLOCK = len(experts.flatten().tolist()), 128")],
        "readback",
        ["by `tolist`"],
    ),
    "masked slots count for expert 0": (
        "11.3",
        [("mask=slot < total, other=-1", "mask=slot < total, other=0")],
        (),
        [],
    ),
    "the running sum with its own slot": (
        "11.3",
        [("tl.cumsum(mine, axis=0) - mine", "tl.cumsum(mine, axis=0)")],
        (),
        [],
    ),
    "an empty expert read": (
        "11.4",
        [
            (
                "    tiles = (ends - starts + BLOCK_M - 1) // BLOCK_M ",
                "    tiles = tl.where(e < num_experts, tl.maximum((ends - starts + BLOCK_M - 1) // BLOCK_M, 1), 0) ",
            )
        ],
        "bytes",
        ["not at all where it has none"],
    ),
    "no program for tiles that are not full": (
        "11.4",
        [("triton.cdiv(rows, BLOCK_M) + num_experts", "triton.cdiv(rows, BLOCK_M)")],
        "unwritten",
        ["never written"],
    ),
    "the group's end left out": (
        "11.4",
        [
            FULL_TILE,
            ("N, K, x_row_stride,\n", "N, K, x_row_stride, rows,\n"),
            ("N, K, x.stride(0),\n", "N, K, x.stride(0), rows,\n"),
        ],
        ("race", "slip", "some_rows"),
        ["next expert"],
    ),
    "K in one tile": (
        "11.4",
        [("    for k0 in range(0, K, BLOCK_K):", "    for k0 in range(0, 1, BLOCK_K):"), ("BLOCK_K=32", "BLOCK_K=64")],
        (),
        ["one tile of the columns"],
    ),
    "every step of K starts anew": (
        "11.4",
        [("acc=acc)", "acc=acc * 0)"), ("BLOCK_K=32", "BLOCK_K=64")],
        (),
        ["one tile of the columns"],
    ),
    "64 columns of y": ("11.4", [("triton.cdiv(N, BLOCK_N))]", "1)]")], "unwritten", ["several tiles of columns"]),
    "128 columns of y": (
        "11.4",
        [("triton.cdiv(N, BLOCK_N))]", "1)]"), ("BLOCK_M, BLOCK_N = 32, 64", "BLOCK_M, BLOCK_N = 16, 128")],
        "unwritten",
        ["several tiles of columns"],
    ),
    "numbers below zero leak": (
        "11.4",
        [
            (
                "tl.maximum(acc + bias[None, :], 0.0)",
                "tl.where(acc + bias[None, :] > 0, 1.0, 1e-3) * (acc + bias[None, :])",
            )
        ],
        ("some_rows", "wrong"),
        ["all below zero"],
    ),
    "empty experts have no number": (
        "11.4",
        [("(last <= tile).to", "((last <= tile) & (tiles > 0)).to")],
        (),
        ["keeps its number"],
    ),
    "a tile of 16 offsets": ("11.4", [("BLOCK_E=triton.next_power_of_2(num_experts)", "BLOCK_E=16")], "unwritten", []),
    "half as many programs more": (
        "11.4",
        [("triton.cdiv(rows, BLOCK_M) + num_experts", "triton.cdiv(rows, BLOCK_M) + num_experts // 2")],
        "unwritten",
        [],
    ),
    "160 programs": (
        "11.4",
        [
            (
                "most = triton.cdiv(rows, BLOCK_M) + num_experts",
                "most = min(160, triton.cdiv(rows, BLOCK_M) + num_experts)",
            )
        ],
        "unwritten",
        [],
    ),
    "the last offset read by the host": (
        "11.4",
        [("triton.cdiv(rows, BLOCK_M)", "triton.cdiv(int(offsets[-1]), BLOCK_M)")],
        "readback",
        ["the host reads a number"],
    ),
    **{
        f"the host reads by {name}": ("11.4", [("    BLOCK_M, ", f"    {line}\n    BLOCK_M, ")], "readback", [word])
        for name, line, word in (
            ("repeat_interleave", "owner = torch.repeat_interleave(offsets.diff())", "`repeat_interleave`"),
            ("a mask", "full = offsets[1:][offsets.diff() > 0]", "a mask as index"),
            ("masked_select", "full = offsets.masked_select(offsets > 0)", "`masked_select`"),
            ("equal", "none = torch.equal(offsets, torch.zeros_like(offsets))", "`equal`"),
            ("allclose", "none = torch.allclose(offsets[:1], offsets[1:])", "`allclose`"),
            ("an f-string", 'said = f"{offsets}"', "`format`"),
            ("str", "said = str(offsets)", "`repr`"),
            ("numpy", "import numpy\n    last = numpy.asarray(offsets)[-1]", "`array`"),
            ("tensor_split", "parts = torch.tensor_split(x, offsets[1:-1].long())", "`tensor_split`"),
        )
    },
    "an empty tile behind a full one": (
        "11.4",
        [
            (
                "    tiles = (ends - starts + BLOCK_M - 1) // BLOCK_M ",
                "    tiles = tl.where(ends > starts, (ends - starts) // BLOCK_M + 1, 0) ",
            ),
            ("BLOCK_M, BLOCK_N = 32, 64", "BLOCK_M, BLOCK_N = 16, 32"),
        ],
        "bytes",
        [],
    ),
    "offsets read by the host": ("11.4", LOOP, "readback", ["from the shapes alone"]),
    "tiles counted by the host": (
        "11.4",
        [("triton.cdiv(rows, BLOCK_M) + num_experts", "sum(triton.cdiv(n, BLOCK_M) for n in offsets.diff().tolist())")],
        "readback",
        ["from the shapes alone"],
    ),
    "sums in 16 bits": (
        "11.4",
        [("acc = tl.dot(x, w, acc=acc)", "acc = tl.dot(x, w, acc=acc).to(x.dtype).to(tl.float32)")],
        (),
        [],
    ),
    "negative gates dropped": ("11.5", [("gate * expert_row", "tl.maximum(gate, 0.0) * expert_row")], (), []),
    "dropped choices read": (
        "11.5",
        [("there = inside & (row >= 0)", "there = inside")],
        "out_of_bounds",
        ["that is no row of y"],
    ),
    "dropped choices weighed with 0": (
        "11.5",
        [
            ("there = inside & (row >= 0)", "there = inside"),
            ("gate = tl.load(gates_ptr + slot)", "gate = tl.where(row >= 0, tl.load(gates_ptr + slot), 0.0)"),
            ("row.to(tl.int64)", "tl.maximum(row, 0).to(tl.int64)"),
        ],
        "nan",
        ["NaN times 0"],
    ),
    "added in 16 bits": (
        "11.5",
        [("acc += gate * expert_row", "acc = (acc + gate * expert_row).to(out_ptr.dtype.element_ty).to(tl.float32)")],
        (),
        [],
    ),
    "products in 16 bits": (
        "11.5",
        [("acc += gate * expert_row", "acc += (gate * expert_row).to(out_ptr.dtype.element_ty).to(tl.float32)")],
        (),
        ["nearly takes away"],
    ),
    "the shared expert added to a rounded sum": (
        "11.5",
        [
            ("    acc = tl.load(shared_ptr", "    acc = tl.zeros([BLOCK], tl.float32)\n    own = tl.load(shared_ptr"),
            ("column, acc, mask", "column, acc.to(out_ptr.dtype.element_ty).to(tl.float32) + own, mask"),
        ],
        (),
        ["nearly takes away"],
    ),
    "small gates dropped": (
        "11.5",
        [("there = inside & (row >= 0)", "there = inside & (row >= 0) & (tl.abs(gate) > 1e-3)")],
        (),
        ["Small gates"],
    ),
    "results clipped": (
        "11.5",
        [("column, acc, mask", "column, tl.clamp(acc, -1e3, 1e3), mask")],
        (),
        ["a result may be any number"],
    ),
    "gathered by torch": (
        "11.5",
        [
            (
                "y, rows, gates, shared, out, hidden, y.stride(0)",
                "y[rows.clamp(min=0)].view(-1, hidden), rows, gates, shared, out, hidden, hidden",
            ),
            ("row = tl.load(rows_ptr + slot)", "row = tl.where(tl.load(rows_ptr + slot) >= 0, slot, -1)"),
        ],
        ("torch_work", "not_read"),
        ["index"],
    ),
}

test_right, test_wrong, test_untouched, test_enough = answer_tests(SOLUTION, RIGHT, WRONG)


def test_rounding_once_is_right_for_many_seeds():
    task = find_task("11.4")
    for given in (Given(task, seed) for seed in range(1, 41)):
        for index, turn in itertools.product(range(len(task.cases)), range(4)):
            (e,) = given.expected(index, turn)
            assert matches(Got(rounded(e.values.astype(np.float32), e.dtype), e.dtype), e), (given.seed, index, turn)
