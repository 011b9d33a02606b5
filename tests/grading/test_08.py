"""Exercise 08: right answers in several styles pass, and each plausible wrong one fails with the hint made for it."""

from grading_tools import answer_tests, answers

EXERCISE = "08_flash_attention"
SOLUTION = answers(EXERCISE)
SOLUTION["08.7"] = "BLOCK = 16\n\n\n" + SOLUTION["08.7"]  # which a given cell defines

# ---------------------------------------------------------------- right, in another style

RIGHT = {
    "tensor by tensor": (
        "08.1",
        """
def sizes(batch, heads, kv_heads, sequence, head_dim, itemsize):
    of = lambda heads, width: batch * heads * sequence * width * itemsize
    return of(heads, head_dim), of(kv_heads, head_dim), of(heads, sequence)

def materialised_bytes(*layer):
    q, k, scores = sizes(*layer)
    return sum([q, k, scores, scores, scores, scores, scores, scores, k, q])

def fused_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize):
    q, k, _ = sizes(batch, heads, kv_heads, sequence, head_dim, itemsize)
    return 2 * (q + k) + batch * heads * sequence * 4

def asked_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize, block):
    per_program = 2 * sequence * head_dim * itemsize
    tiles = (sequence + block - 1) // block
    per_head = tiles * per_program + 2 * sequence * head_dim * itemsize + 4 * sequence
    return batch * heads * per_head

def causal_flops(batch, heads, sequence, head_dim, block):
    return sum(4 * block * block * head_dim for row in range(0, sequence, block) for _ in range(0, row + 1, block)
               ) * batch * heads
""",
    ),
    "one formula": (
        "08.1",
        """
import math

def fused_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize):
    return batch * sequence * (2 * itemsize * head_dim * (heads + kv_heads) + 4 * heads)

def materialised_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize):
    return 2 * itemsize * batch * sequence * (3 * heads * sequence + head_dim * (heads + kv_heads))

def asked_bytes(batch, heads, kv_heads, sequence, head_dim, itemsize, block):
    return batch * heads * sequence * (2 * itemsize * head_dim * (1 + math.ceil(sequence / block)) + 4)

def causal_flops(batch, heads, sequence, head_dim, block):
    return 2 * batch * heads * head_dim * sequence * (sequence + block)
""",
    ),
    "the sink at the end, by powers of two": (
        "08.2",
        """
def tile_loop(q, k, v, sink, scale, block):
    log2e = 1.4426950408889634
    q = q.to(torch.float32)
    m = torch.full(q.shape[:2], float("-inf"), device=q.device)
    l, acc = torch.zeros_like(m), torch.zeros_like(q)
    for keys, vals in zip(k.split(block, dim=1), v.split(block, dim=1)):
        s = torch.bmm(q, keys.float().transpose(1, 2)) * (scale * log2e)
        top = torch.maximum(m, s.max(dim=2).values)
        p, repair = torch.exp2(s - top.unsqueeze(2)), torch.exp2(m - top)
        l = torch.addcmul(p.sum(2), l, repair)
        acc = torch.baddbmm(acc * repair.unsqueeze(2), p, vals.float())
        m = top
    sink = sink[:, None] * log2e
    top = torch.maximum(m, sink)
    l = l * torch.exp2(m - top) + torch.exp2(sink - top)
    return acc * (torch.exp2(m - top) / l)[:, :, None], (top + torch.log2(l)) / log2e
""",
    ),
    "parts merged by their log-sum-exps": (
        "08.2",
        """
def tile_loop(q, k, v, sink, scale, block):
    q = q.float()
    out, lse = torch.zeros_like(q), sink[:, None].repeat(1, q.shape[1])
    for start in range(0, k.shape[1], block):
        s = torch.einsum("hqd,hkd->hqk", q, k[:, start:start + block].float()).mul(scale)
        part = torch.logsumexp(s, dim=2)
        both = torch.logaddexp(lse, part)
        tile = torch.softmax(s, dim=2) @ v[:, start:start + block].float()
        out = out * (lse - both).exp()[..., None] + tile * (part - both).exp()[..., None]
        lse = both
    return out, lse
""",
    ),
    "two walks": (
        "08.2",
        """
def tile_loop(q, k, v, sink, scale, block):
    tiles = [(start, min(start + block, k.shape[1])) for start in range(0, k.shape[1], block)]
    lse = sink[:, None] + torch.zeros(q.shape[:2], device=q.device)
    for start, end in tiles:
        s = q.float() @ k[:, start:end].float().mT * scale
        lse = torch.logaddexp(lse, s.logsumexp(-1))
    out = torch.zeros(q.shape, device=q.device)
    for start, end in reversed(tiles):
        s = q.float() @ k[:, start:end].float().mT * scale
        out += torch.exp(s - lse[..., None]) @ v[:, start:end].float()
    return [out, lse]
""",
    ),
    "one axis, powers of two, the sink at the end": (
        "08.3",
        """
@triton.jit
def attend(q_ptr, k_ptr, v_ptr, sink_ptr, out_ptr, lse_ptr, n, n_keys, H, scale,
           qb, qn, qh, kb, kn, kh, vb, vn, vh, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    tiles = tl.cdiv(n, M)
    pid = tl.program_id(0)
    tile, bh = pid % tiles, (pid // tiles).to(tl.int64)
    b, h = bh // H, bh % H
    i, d = tile * M + tl.arange(0, M)[:, None], tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + b * qb + h * qh + i * qn + d, i < n, 0.0)
    top = tl.full([M, 1], -1e30, tl.float32)
    total, acc = tl.zeros([M, 1], tl.float32), tl.zeros([M, D], tl.float32)
    start = 0
    while start < n_keys:
        j = start + tl.arange(0, N)[:, None]
        k = tl.load(k_ptr + b * kb + h * kh + j * kn + d, j < n_keys, 0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * 1.4426950408889634)
        s += tl.where(tl.trans(j) < n_keys, 0.0, float("-inf"))
        larger = tl.maximum(top, tl.max(s, 1, keep_dims=True))
        p, fix = tl.exp2(s - larger), tl.exp2(top - larger)
        v = tl.load(v_ptr + b * vb + h * vh + j * vn + d, j < n_keys, 0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * fix, input_precision="ieee")
        total = total * fix + tl.sum(p, 1, keep_dims=True)
        top = larger
        start += N
    sink = tl.load(sink_ptr + h) * 1.4426950408889634
    larger = tl.maximum(top, sink)
    fix = tl.exp2(top - larger)
    total = total * fix + tl.exp2(sink - larger)
    tl.store(out_ptr + ((b * n + i) * H + h) * D + d, (acc * fix / total).to(out_ptr.dtype.element_ty), i < n)
    tl.store(lse_ptr + bh * n + i, (larger + tl.log2(total)) * 0.6931471805599453, i < n)

def sink_attention(q, k, v, sink, scale):
    B, n, H, D = q.shape
    out, lse = torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty(B, H, n, dtype=torch.float32)
    attend[(triton.cdiv(n, 64) * B * H,)](q, k, v, sink, out, lse, n, k.shape[1], H, scale, *q.stride()[:3],
                                          *k.stride()[:3], *v.stride()[:3], D=D, M=64, N=16)
    return out, lse
""",
    ),
    "a program for several heads, all in fp32": (
        "08.3",
        """
@triton.jit
def step(q, k, v, inside, scale, m, l, acc):
    s = tl.where(inside, tl.dot(q, k.T, input_precision="ieee") * scale, float("-inf"))
    new = tl.maximum(m, tl.max(s, 1))
    p = tl.exp(s - new[:, None])
    return new, l * tl.exp(m - new) + tl.sum(p, 1), acc * tl.exp(m - new)[:, None] + tl.dot(
        p, v, input_precision="ieee")

@triton.jit
def heads_kernel(q_ptr, k_ptr, v_ptr, sink_ptr, out_ptr, lse_ptr, queries, keys, scale, qs: tl.constexpr,
                 ks: tl.constexpr, vs: tl.constexpr, H: tl.constexpr, D: tl.constexpr, B: tl.constexpr):
    batch, rows, d = tl.program_id(1).to(tl.int64), tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    for h in range(H):
        q = tl.load(q_ptr + batch * qs[0] + h * qs[2] + rows[:, None] * qs[1] + d[None, :], rows[:, None] < queries, 0)
        m, l = tl.full([B], 1.0, tl.float32) * tl.load(sink_ptr + h), tl.full([B], 1.0, tl.float32)
        acc = tl.zeros([B, D], tl.float32)
        for start in tl.range(0, keys, B, num_stages=2):
            j = start + tl.arange(0, B)
            k = tl.load(k_ptr + batch * ks[0] + h * ks[2] + j[:, None] * ks[1] + d[None, :], j[:, None] < keys, 0)
            v = tl.load(v_ptr + batch * vs[0] + h * vs[2] + j[:, None] * vs[1] + d[None, :], j[:, None] < keys, 0)
            k, v = k.to(tl.float32), v.to(tl.float32)
            m, l, acc = step(q.to(tl.float32), k, v, (j < keys)[None, :], scale, m, l, acc)
        at = ((batch * queries + rows[:, None]) * H + h) * D + d[None, :]
        tl.store(out_ptr + at, acc * (1 / l)[:, None], rows[:, None] < queries)
        tl.store(lse_ptr + (batch * H + h) * queries + rows, tl.log(l) + m, rows < queries)

def sink_attention(q, k, v, sink, scale):
    batch, queries, heads, head_dim = q.shape
    out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.zeros((batch, heads, queries), device=q.device)
    heads_kernel[(triton.cdiv(queries, 32), batch)](q, k, v, sink, out, lse, queries, k.shape[1], scale, q.stride(),
                                                    k.stride(), v.stride(), heads, head_dim, 32, num_warps=2)
    return out, lse
""",
    ),
    "whole tiles first, then those with a mask": (
        "08.4",
        """
@triton.jit
def capped(q, k, scale, cap):
    return cap * (2 * tl.sigmoid(2 / cap * scale * tl.dot(q, k, input_precision="ieee")) - 1)

@triton.jit
def two_loops(q_ptr, k_ptr, v_ptr, out_ptr, Q, K, H, scale, cap, D: tl.constexpr, B: tl.constexpr):
    h, b = tl.program_id(0), tl.program_id(2).to(tl.int64)
    i, d = tl.program_id(1) * B + tl.arange(0, B), tl.arange(0, D)
    n = tl.arange(0, B)
    q = tl.load(q_ptr + ((b * Q + i[:, None]) * H + h) * D + d[None, :], mask=i[:, None] < Q, other=0.0)
    k_ptrs = k_ptr + ((b * K + n[None, :]) * H + h) * D + d[:, None]
    v_ptrs = v_ptr + ((b * K + n[:, None]) * H + h) * D + d[None, :]
    m, l, acc = tl.full([B], -1e30, tl.float32), tl.zeros([B], tl.float32), tl.zeros([B, D], tl.float32)
    first_place = tl.program_id(1) * B + K - Q
    whole = tl.maximum((first_place + 1) // B * B, 0)
    for start in range(0, whole, B):
        s = capped(q, tl.load(k_ptrs + start * H * D), scale, cap)
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        acc = acc * tl.exp(m - new)[:, None]
        acc = tl.dot(p, tl.load(v_ptrs + start * H * D), acc, input_precision="ieee")
        l, m = l * tl.exp(m - new) + tl.sum(p, 1), new
    for start in range(whole, tl.minimum(first_place + B, K), B):
        k = tl.load(k_ptrs + start * H * D, mask=start + n[None, :] < K, other=0.0)
        seen = (start + n[None, :] <= i[:, None] + K - Q) & (start + n[None, :] < K)
        s = tl.where(seen, capped(q, k, scale, cap), float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        v = tl.load(v_ptrs + start * H * D, mask=start + n[:, None] < K, other=0.0)
        acc = tl.dot(p, v, acc * tl.exp(m - new)[:, None], input_precision="ieee")
        l, m = l * tl.exp(m - new) + tl.sum(p, 1), new
    out = tl.where(l[:, None] > 0, acc / l[:, None], 0.0)
    tl.store(out_ptr + ((b * Q + i[:, None]) * H + h) * D + d[None, :], out, mask=i[:, None] < Q)

def causal_attention(q, k, v, scale, cap):
    b, Q, H, D = q.shape
    out = torch.empty(b, Q, H, D, device=q.device)
    two_loops[(H, triton.cdiv(Q, 32), b)](q, k, v, out, Q, k.shape[1], H, scale, cap, D=D, B=32)
    return out
""",
    ),
    "tiles of 64 queries, backwards": (
        "08.4",
        """
@triton.jit
def backwards(q_ptr, k_ptr, v_ptr, out_ptr, Q, K, H: tl.constexpr, scale, cap, D: tl.constexpr, M: tl.constexpr,
              N: tl.constexpr):
    bh = tl.program_id(1)
    b, h = bh // H, bh % H
    rows = tl.program_id(0) * M + tl.arange(0, M)
    d = tl.arange(0, D)
    place = rows + (K - Q)
    q = tl.load(q_ptr + ((b * Q + rows[:, None]) * H + h) * D + d[None, :], rows[:, None] < Q, 0.0) * scale
    lse, out = tl.full([M], float("-inf"), tl.float32), tl.zeros([M, D], tl.float32)
    tiles = tl.cdiv(tl.minimum(K, tl.maximum(tl.max(place) + 1, 0)), N)
    for step in range(tiles):
        j = (tiles - 1 - step) * N + tl.arange(0, N)
        at = ((b * K + j[:, None]) * H + h) * D + d[None, :]
        k, v = tl.load(k_ptr + at, j[:, None] < K, 0.0), tl.load(v_ptr + at, j[:, None] < K, 0.0)
        e = tl.exp(-2 * tl.dot(q, tl.trans(k), input_precision="ieee") / cap)
        s = tl.where((j[None, :] <= place[:, None]) & (j[None, :] < K), cap * (1 - e) / (1 + e), -1e30)
        top = tl.maximum(tl.max(s, 1), -1e20)
        p = tl.exp(s - top[:, None])
        part = top + tl.log(tl.maximum(tl.sum(p, 1), 1e-30))
        seen_any = tl.sum(p, 1) > 0
        larger = tl.maximum(lse, part)
        both = tl.where(seen_any, larger + tl.log(tl.exp(lse - larger) + tl.exp(part - larger)), lse)
        keep = tl.where(lse == float("-inf"), 0.0, tl.exp(lse - tl.where(both == float("-inf"), 0.0, both)))
        out = out * keep[:, None] + tl.dot(tl.exp(s - tl.where(seen_any, both, 0.0)[:, None]), v,
                                           input_precision="ieee")
        lse = both
    tl.store(out_ptr + ((b * Q + rows[:, None]) * H + h) * D + d[None, :], out, rows[:, None] < Q)

def causal_attention(q, k, v, scale, cap):
    (b, Q, H, D), K = q.shape, k.shape[1]
    out = torch.empty_like(q)
    backwards[(triton.cdiv(Q, 64), b * H)](q, k, v, out, Q, K, H, scale, cap, D, 64, 32, num_warps=4)
    return out
""",
    ),
    "weights by sums, no matrix products": (
        "08.5",
        """
@triton.jit
def by_sums(q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, keys, scale, sb, sn, sh, G: tl.constexpr, H: tl.constexpr,
            D: tl.constexpr, P: tl.constexpr, N: tl.constexpr):
    pid = tl.program_id(0)
    b, h = pid // (H // G), pid % (H // G)
    g, d = tl.arange(0, P), tl.arange(0, D)
    q = tl.load(q_ptr + (b * H + h * G + g[:, None]) * D + d[None, :], g[:, None] < G, 0.0).to(tl.float32) * scale
    m, l, acc = tl.full([P], -1e30, tl.float32), tl.zeros([P], tl.float32), tl.zeros([P, D], tl.float32)
    for start in range(0, keys, N):
        j = start + tl.arange(0, N)
        k = tl.load(k_ptr + b * sb + h * sh + j[:, None] * sn + d[None, :], j[:, None] < keys, 0.0).to(tl.float32)
        v = tl.load(v_ptr + b * sb + h * sh + j[:, None] * sn + d[None, :], j[:, None] < keys, 0.0).to(tl.float32)
        s = tl.where(j[None, :] < keys, tl.sum(q[:, None, :] * k[None, :, :], axis=2), float("-inf"))
        new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - new[:, None])
        acc = acc * tl.exp(m - new)[:, None] + tl.sum(p[:, :, None] * v[None, :, :], axis=1)
        l = l * tl.exp(m - new) + tl.sum(p, axis=1)
        m = new
    tl.store(out_ptr + (b * H + h * G + g[:, None]) * D + d[None, :], acc / l[:, None], g[:, None] < G)
    tl.store(lse_ptr + b * H + h * G + g, m + tl.log(l), g < G)

def decode_step(q, k, v, scale):
    batch, heads, head_dim = q.shape
    group = heads // k.shape[2]
    out, lse = q.new_empty(q.shape), torch.empty((batch, heads), device=q.device)
    by_sums[(batch * k.shape[2],)](q, k, v, out, lse, k.shape[1], scale, *k.stride()[:3], group, heads, head_dim,
                                   triton.next_power_of_2(group), 16)
    return out, lse
""",
    ),
    "scores transposed, powers of two": (
        "08.5",
        """
@triton.jit
def turned(q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, keys, group, scale, k_b, k_n, k_h, v_b, v_n, v_h, D: tl.constexpr):
    h, b = tl.program_id(0), tl.program_id(1)
    g, d, n = tl.arange(0, 16), tl.arange(0, D), tl.arange(0, 64)
    head = (b * tl.num_programs(0) + h) * group + g
    q = tl.load(q_ptr + head[None, :] * D + d[:, None], mask=(g < group)[None, :], other=0.0)
    top = tl.full([16], float("-inf"), tl.float32)
    total = tl.zeros([16], tl.float32)
    acc = tl.zeros([D, 16], tl.float32)
    for start in range(0, keys, 64):
        inside = start + n < keys
        j = start + n
        k = tl.load(k_ptr + b * k_b + h * k_h + j[:, None] * k_n + d[None, :], mask=inside[:, None], other=0.0)
        v = tl.load(v_ptr + b * v_b + h * v_h + j[None, :] * v_n + d[:, None], mask=inside[None, :], other=0.0)
        s = tl.where(inside[:, None], tl.dot(k, q) * (scale * 1.4426950408889634), float("-inf"))
        larger = tl.maximum(top, tl.max(s, axis=0))
        p = tl.exp2(s - larger[None, :])
        fix = tl.exp2(top - larger)
        total = total * fix + tl.sum(p, axis=0)
        acc = tl.dot(v, p.to(tl.float16), acc * fix[None, :])
        top = larger
    tl.store(out_ptr + head[None, :] * D + d[:, None], (acc / total[None, :]).to(tl.float16), mask=(g < group)[None, :])
    tl.store(lse_ptr + head, (top + tl.log2(total)) * 0.6931471805599453, mask=g < group)

def decode_step(q, k, v, scale):
    out = torch.empty_like(q)
    lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
    kv_heads = k.shape[2]
    turned[(kv_heads, len(q))](q, k, v, out, lse, k.shape[1], q.shape[1] // kv_heads, scale, *k.stride()[:3],
                               *v.stride()[:3], D=q.shape[2])
    return out, lse
""",
    ),
    "one split after the other": (
        "08.6",
        """
@triton.jit
def one_by_one(parts, lses, sinks, out, merged, splits, batch_stride, D: tl.constexpr):
    h, b = tl.program_id(0), tl.program_id(1)
    row = b * tl.num_programs(0) + h
    d = tl.arange(0, D)
    m, l, acc = tl.load(sinks + h), 1.0, tl.zeros([D], tl.float32)
    for split in range(splits):
        lse = tl.load(lses + split * batch_stride + row)
        new = tl.maximum(m, lse)
        part = tl.load(parts + (split * batch_stride + row) * D + d)
        acc = acc * tl.exp(m - new) + part * tl.exp(lse - new)
        l = l * tl.exp(m - new) + tl.exp(lse - new)
        m = new
    tl.store(out + row * D + d, acc / l)
    tl.store(merged + row, m + tl.log(l))

def merge_parts(parts, lse, sink):
    out, merged = torch.empty_like(parts[0]), torch.empty_like(lse[0])
    one_by_one[(parts.shape[2], parts.shape[1])](parts, lse, sink, out, merged, len(parts), lse[0].numel(),
                                                 D=parts.shape[3], num_warps=1)
    return out, merged
""",
    ),
    "all heads of a sequence, powers of two": (
        "08.6",
        """
@triton.jit
def by_sequence(parts_ptr, lse_ptr, sink_ptr, out_ptr, merged_ptr, batch, heads: tl.constexpr, D: tl.constexpr,
                S: tl.constexpr, SPLITS: tl.constexpr):
    b, s, d = tl.program_id(0), tl.arange(0, SPLITS), tl.arange(0, D)[None, :]
    for h in range(heads):
        at = (s * batch + b) * heads + h
        sink = tl.load(sink_ptr + h)
        lse = tl.load(lse_ptr + at, s < S, float("-inf"))
        top = tl.maximum(tl.max(lse, 0), sink)
        total = tl.sum(tl.exp2((lse - top) * 1.4426950408889634), 0) + tl.exp2((sink - top) * 1.4426950408889634)
        share = tl.exp2((lse - top) * 1.4426950408889634 - tl.log2(total))
        parts = tl.load(parts_ptr + at[:, None] * D + d, s[:, None] < S, 0.0)
        tl.store(out_ptr + (b * heads + h) * D + tl.arange(0, D), tl.sum(parts * share[:, None], 0))
        tl.store(merged_ptr + b * heads + h, top + tl.log2(total) * 0.6931471805599453)

def merge_parts(parts, lse, sink):
    splits, batch, heads, head_dim = parts.shape
    out, merged = parts.new_empty(batch, heads, head_dim), parts.new_empty(batch, heads)
    by_sequence[(batch,)](parts, lse, sink, out, merged, batch, heads, head_dim, splits, triton.next_power_of_2(splits))
    return out, merged
""",
    ),
    "a staircase and a shift": (
        "08.7",
        """
BLOCK = 16

def show_wrong(loop, keys):
    tiles = keys // BLOCK
    down = torch.linspace(250, 0, tiles).repeat_interleave(BLOCK)
    return {"b": down, "d": torch.full((keys,), -299.0)}.get(loop)
""",
    ),
    "one planted score, random ones": (
        "08.7",
        """
def show_wrong(loop, keys):
    if loop in "ac":
        return None
    scores = torch.randn(keys).clamp(-3, 3)
    if loop == "d":
        return scores - 250
    scores[0] = 240.0
    return scores
""",
    ),
}

# ---------------------------------------------------------------- wrong, each with its hint

LOCAL = ("m_new = tl.maximum(m, tl.max(s, axis=1))", "m_new = tl.max(s, axis=1)")
LOCAL_KINDS = ("nan", "infinite", "overflow", "tail")
ALL_NONE = "def show_wrong(loop, keys):\n    return None\n"

WRONG = {  # name: task, changes to the solution or a whole answer, kind of finding, words that the hint has to hold
    "a float": ("08.1", [("side * (side + 1) // 2", "side * (side + 1) / 2")], "type", ["int", "//"]),
    "nonsense": ("08.1", [("(first + cap + softmax + second) * itemsize", "17")], "wrong", ["gives 17"]),
    "all keys converted": (
        "08.2",
        [("    q = q.float()", "    q, k = q.float(), k.float()")],
        "whole_tensor",
        ["_to_copy", "Slice k and v"],
    ),
    "the tile's own maximum, with a repair": (
        "08.2",
        [("torch.maximum(m, s.amax(dim=-1))", "s.amax(dim=-1)")],
        LOCAL_KINDS,
        ["must never go down"],
    ),
    "the first tile's maximum": (
        "08.2",
        [("m_new = torch.maximum(m, s.amax(dim=-1))", "m_new = torch.maximum(m, s.amax(dim=-1)) if start == 0 else m")],
        LOCAL_KINDS,
        ["has to be repaired for it"],
    ),
    "a running maximum from 0": (
        "08.2",
        [("m = sink[:, None].expand(heads, queries)", "m = torch.zeros(heads, queries)")],
        "slip",
        ["sink was taken to be 0"],
    ),
    "the sink beside the loop": (
        "08.2",
        [
            ("l = torch.ones(", "l = torch.zeros("),
            ("    return acc", "    l = l + sink[:, None].exp()\n    return acc"),
        ],
        "slip",
        ["m = sink, l = 1"],
    ),
    "the sink after the last tile, over the scores' maximum": (
        "08.2",
        [
            ("m = sink[:, None].expand(heads, queries)", "m = torch.full((heads, queries), float('-inf'))"),
            ("l = torch.ones(", "l = torch.zeros("),
            ("    return acc", "    l = l + torch.exp(sink[:, None] - m)\n    return acc"),
        ],
        ("infinite", "overflow"),
        ["sinks above all scores", "counts for the maximum too"],
    ),
    "products in 16 bits": (
        "08.2",
        [
            ("    q = q.float()", "    dtype = q.dtype"),
            ("k_tile = k[:, start:start + block].float()", "k_tile = k[:, start:start + block]"),
            ("p @ v_tile", "p.to(dtype).float() @ v_tile"),
            ("s = q @ k_tile.mT * scale", "s = (q @ k_tile.mT).float() * scale"),
        ],
        ("sixteen_bit", "wrong", "rounded_output"),
        ["16 bits"],
    ),
    "out alone": ("08.2", [(", m + torch.log(l)", "")], "count", ["out, lse"]),
    "the tile's own maximum in the kernel": ("08.3", [LOCAL], LOCAL_KINDS, ["must never go down"]),
    "the sink after the last tile in the kernel": (
        "08.3",
        [
            (
                "tl.zeros([BLOCK_M], tl.float32) + tl.load(sink_ptr + head)",
                'tl.full([BLOCK_M], float("-inf"), tl.float32)',
            ),
            ("l = tl.full([BLOCK_M], 1.0, tl.float32)", "l = tl.zeros([BLOCK_M], tl.float32)"),
            ("    out_row = (", "    l += tl.exp(tl.load(sink_ptr + head) - m)\n    out_row = ("),
        ],
        ("infinite", "overflow"),
        ["sinks above all scores", "counts for the maximum too"],
    ),
    "weights and sums in fp16": (
        "08.3",
        [
            ("acc = tl.zeros([BLOCK_M, D], tl.float32)", "acc = tl.zeros([BLOCK_M, D], tl.float16)"),
            ("acc = acc * repair[:, None] + tl.dot(", "acc = (acc * repair[:, None] + tl.dot("),
            ('v, input_precision="ieee")\n        m = ', 'v, input_precision="ieee")).to(tl.float16)\n        m = '),
        ],
        ("sixteen_bit", "rounded_output"),
        ["16 bits", "fp32"],
    ),
    "TF32": ("08.3", [(', input_precision="ieee"', "")], "tf32", ["ieee"]),
    "tiles of 16 queries": (
        "08.3",
        [("queries, 32)", "queries, 16)"), ("BLOCK_M=32", "BLOCK_M=16")],
        "bytes",
        ["32 queries"],
    ),
    "no skip": ("08.4", [("tl.minimum(last, keys)", "keys")], "bytes", ["last key that the last query"]),
    "the loop ends a key early": (
        "08.4",
        [("tl.minimum(last, keys)", "tl.minimum(last - 1, keys)")],
        (),
        ["64 queries at the end of 97 keys"],
    ),
    "masked, then capped": (
        "08.4",
        [
            ("        s = cap * (2 * tl.sigmoid(2 * s / cap) - 1)\n", ""),
            (
                'float("-inf"))\n        m_new',
                'float("-inf"))\n        s = cap * (2 * tl.sigmoid(2 * s / cap) - 1)\n        m_new',
            ),
        ],
        "slip",
        ["cap first, then mask"],
    ),
    "no guard for a row without keys": ("08.4", [("s - shift[:, None]", "s - m_new[:, None]")], "nan", ["sees no key"]),
    "a program per query head": (
        "08.5",
        [
            (
                "kv_head = tl.program_id(1).to(tl.int64), tl.program_id(0)",
                "kv_head = tl.program_id(1).to(tl.int64), tl.program_id(0) // group",
            ),
            ("used = slot < group", "used = slot == tl.program_id(0) % group"),
            ("decode_kernel[(kv_heads, batch)]", "decode_kernel[(heads, batch)]"),
        ],
        "bytes",
        ["for all query heads of the group"],
    ),
    "rows beyond the group stored": (
        "08.5",
        [(", mask=used)", ", mask=slot < 16)"), ("acc / l[:, None], mask=used[:, None])", "acc / l[:, None])")],
        ("out_of_bounds", "race"),
        ["mask"],
    ),
    "q scaled in fp16": (
        "08.5",
        [
            ("    cache = batch", "    q = (q * scale).to(tl.float16)\n    cache = batch"),
            ("tl.dot(q, k) * scale", "tl.dot(q, k)"),
        ],
        ("sixteen_bit", "wrong"),
        ["lse", "16"],
    ),
    "no maximum in the merge": (
        "08.6",
        [("m = tl.maximum(tl.max(lse), sink)", "m = 0.0")],
        ("nan", "infinite", "overflow"),
        ["largest log-sum-exp"],
    ),
    "the parts' maximum without the sink": (
        "08.6",
        [("m = tl.maximum(tl.max(lse), sink)", "m = tl.max(lse)")],
        "nan",
        ["sink"],
    ),
    "a sink for each row": (
        "08.6",
        [("sink_ptr + row % heads", "sink_ptr + row")],
        "out_of_bounds",
        ["sink[", "one number per head, the same for all sequences"],
    ),
    "every loop is right": ("08.7", ALL_NONE, "verdict", ["loop 'b' is not right"]),
    "small first, large last": (
        "08.7",
        [("scores[:BLOCK] = 200.0", "scores[-BLOCK:] = 200.0")],
        "verdict",
        ["loop 'b' gives", "When is that no number? 6 of 8"],
    ),
    "a maximum that lags is called wrong": (
        "08.7",
        [('if loop == "b":', 'if loop in "bc":')],
        "verdict",
        ["loop 'c' is right"],
    ),
    "two loops at once": (
        "08.7",
        [("        return scores\n", "        return scores - 300.0\n")],
        "verdict",
        ["so is loop 'd'"],
    ),
    "beyond the range": ("08.7", [("= 200.0", "= 400.0")], "verdict", ["between -300 and 300"]),
    "not far enough below": ("08.7", [("scores - 200.0", "scores - 80.0")], "verdict", ["loop 'd' gives"]),
    "a list": ("08.7", [("        return scores\n", "        return scores.tolist()\n")], "verdict", ["expected"]),
}

HEAD_DIM = "head_dim is 16, 32 or 64"
NOT_ONE = {("08.4", "causal_attention"): HEAD_DIM, ("08.5", "decode_step"): HEAD_DIM}
TILES = {"08.6": 32}  # 2 splits of 16


test_right, test_wrong, test_untouched, test_enough = answer_tests(SOLUTION, RIGHT, WRONG)
