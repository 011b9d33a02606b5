"""Exercise 08b: right answers in several styles pass, and each plausible wrong one fails with the hint made for it."""

from grading_tools import answer_tests, answers

EXERCISE = "08b_attention_backward"
SOLUTION = answers(EXERCISE)

# ---------------------------------------------------------------- right, in another style

RIGHT = {
    "one formula each": (
        "08b.1",
        """
def kept_fused(batch, heads, kv_heads, sequence, head_dim, itemsize):
    return batch * sequence * (2 * (heads + kv_heads) * head_dim * itemsize + 4 * heads)

def kept_materialised(batch, heads, kv_heads, sequence, head_dim, itemsize):
    return batch * sequence * itemsize * (heads * (head_dim + sequence) + 2 * kv_heads * head_dim)

def backward_flops(batch, heads, queries, keys, head_dim):
    return 10 * batch * heads * queries * keys * head_dim
""",
    ),
    "tensor by tensor": (
        "08b.1",
        """
from math import prod

def kept_materialised(batch, heads, kv_heads, sequence, head_dim, itemsize):
    q, k, weights = (heads, head_dim), (kv_heads, head_dim), (heads, sequence)
    return sum(prod(shape) * batch * sequence * itemsize for shape in (q, k, k, weights))

def kept_fused(batch, heads, kv_heads, sequence, head_dim, itemsize):
    shapes = [(heads, head_dim, itemsize)] * 2 + [(kv_heads, head_dim, itemsize)] * 2 + [(heads, 4)]
    return sum(batch * sequence * prod(shape) for shape in shapes)

def backward_flops(batch, heads, queries, keys, head_dim):
    return sum(batch * heads * queries * keys * head_dim * 2 for _ in ("s", "dp", "dv", "dk", "dq"))
""",
    ),
    "backwards, by einsum": (
        "08b.2",
        """
def backward_tiles(q, k, v, sink, out, lse, dout, scale, block):
    Q, G = q.to(torch.float32), dout.to(torch.float32)
    delta = torch.einsum("hqd,hqd->hq", G, out.to(torch.float32))
    dq, dk, dv = torch.zeros(q.shape, device=q.device), torch.zeros_like(k), torch.zeros_like(v)
    for end in range(k.shape[1], 0, -block):
        start = max(0, end - block)
        K, V = k[:, start:end].to(torch.float32), v[:, start:end].to(torch.float32)
        weights = (torch.einsum("hqd,hkd->hqk", Q, K) * scale - lse.unsqueeze(-1)).exp()
        back = weights * scale * (torch.einsum("hqd,hkd->hqk", G, V) - delta.unsqueeze(-1))
        dq += torch.einsum("hqk,hkd->hqd", back, K)
        dk[:, start:end] = torch.einsum("hqk,hqd->hkd", back, Q)
        dv[:, start:end] = torch.einsum("hqk,hqd->hkd", weights, G)
    return dq.to(q.dtype), dk, dv, (sink[:, None] - lse).exp().mul(delta).sum(1).neg()
""",
    ),
    "by autograd, a tile at a time": (
        "08b.2",
        """
def backward_tiles(q, k, v, sink, out, lse, dout, scale, block):
    dout, delta = dout.float(), (dout.float() * out.float()).sum(-1)
    dq, parts = torch.zeros(q.shape), []
    for keys, vals in zip(k.split(block, 1), v.split(block, 1)):
        a, b = (x.float().requires_grad_() for x in (q, keys))
        with torch.enable_grad():
            scores = torch.bmm(a, b.transpose(1, 2)) * scale
        p = torch.exp(scores.detach() - lse[:, :, None])
        dp = torch.bmm(dout, vals.float().transpose(1, 2))
        da, db = torch.autograd.grad(scores, (a, b), p * (dp - delta[..., None]))
        dq += da
        parts.append((db.half(), torch.bmm(p.transpose(1, 2), dout).half()))
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    for number, (a, b) in enumerate(parts):
        dk[:, number * block:(number + 1) * block], dv[:, number * block:(number + 1) * block] = a, b
    weight = torch.exp(sink[:, None] - lse)
    return dq.half(), dk, dv, -(weight * delta).sum(dim=1)
""",
    ),
    "the derivative from tanh, tiles of 16 queries": (
        "08b.3",
        """
@triton.jit
def walk(q_ptr, k_ptr, v_ptr, g_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, Q, K, H, scale, cap, D: tl.constexpr,
         M: tl.constexpr, N: tl.constexpr):
    h, b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    j, d = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, D)
    at = ((b * K + j[:, None]) * H + h) * D + d[None, :]
    k, v = tl.load(k_ptr + at, j[:, None] < K, 0.0), tl.load(v_ptr + at, j[:, None] < K, 0.0)
    dk, dv = tl.zeros([N, D], tl.float32), tl.zeros([N, D], tl.float32)
    for start in range(0, Q, M):
        i = start + tl.arange(0, M)
        ok = i < Q
        q = tl.load(q_ptr + ((b * Q + i[:, None]) * H + h) * D + d[None, :], ok[:, None], 0.0)
        g = tl.load(g_ptr + ((b * Q + i[:, None]) * H + h) * D + d[None, :], ok[:, None], 0.0)
        lse = tl.load(lse_ptr + (b * H + h) * Q + i, ok, float("inf"))
        delta = tl.load(delta_ptr + (b * H + h) * Q + i, ok, 0.0)
        t = 2 * tl.sigmoid(tl.dot(k, tl.trans(q), input_precision="ieee") * (2 * scale / cap)) - 1
        p = tl.exp(cap * t - lse[None, :])
        ds = p * (tl.dot(v, tl.trans(g), input_precision="ieee") - delta[None, :]) * (1 - t) * (1 + t)
        dv = tl.dot(p, g, dv, input_precision="ieee")
        dk = tl.dot(ds, q, dk, input_precision="ieee")
    tl.store(dk_ptr + at, dk * scale, j[:, None] < K)
    tl.store(dv_ptr + at, dv, j[:, None] < K)

def key_gradients(q, k, v, dout, lse, delta, scale, cap):
    (b, Q, H, D), K = q.shape, k.shape[1]
    dk, dv = torch.zeros(k.shape, device=k.device), torch.zeros(k.shape, device=k.device)
    walk[(triton.cdiv(K, 32), H, b)](q, k, v, dout, lse, delta, dk, dv, Q, K, H, scale, cap, D=D, M=16, N=32)
    return [dk, dv]
""",
    ),
    "one axis, a step of its own": (
        "08b.3",
        """
@triton.jit
def tile_of(ptr, batch, length, place, head, heads: tl.constexpr, d):
    return ptr + ((batch * length + place[:, None]) * heads + head) * d.shape[0] + d[None, :]

@triton.jit
def product(a, b):
    return tl.dot(a, tl.trans(b), input_precision="ieee")

@triton.jit
def one_axis(q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, queries, keys, heads: tl.constexpr,
             scale, cap, D: tl.constexpr, B: tl.constexpr):
    tiles = tl.cdiv(keys, B)
    tile, head = tl.program_id(0) % tiles, tl.program_id(0) // tiles % heads
    batch = (tl.program_id(0) // tiles // heads).to(tl.int64)
    d, key = tl.arange(0, D), tile * B + tl.arange(0, B)
    k = tl.load(tile_of(k_ptr, batch, keys, key, head, heads, d), mask=key[:, None] < keys, other=0.0)
    v = tl.load(tile_of(v_ptr, batch, keys, key, head, heads, d), mask=key[:, None] < keys, other=0.0)
    dk, dv, start = tl.zeros_like(k), tl.zeros_like(v), 0
    while start < queries:
        row = start + tl.arange(0, 16)
        q = tl.load(tile_of(q_ptr, batch, queries, row, head, heads, d), mask=row[:, None] < queries, other=0.0)
        dout = tl.load(tile_of(dout_ptr, batch, queries, row, head, heads, d), mask=row[:, None] < queries, other=0.0)
        line = (batch * heads + head) * queries + row
        lse = tl.load(lse_ptr + line, mask=row < queries, other=0.0)
        e = tl.exp(-2 * scale / cap * product(k, q))
        s = cap * (1 - e) / (1 + e)
        p = tl.where(row[None, :] < queries, tl.exp(s - lse[None, :]), 0.0)
        ds = p * (product(v, dout) - tl.load(delta_ptr + line, mask=row < queries, other=0.0)[None, :])
        ds *= scale * 4 * e / ((1 + e) * (1 + e))
        dv += tl.dot(p, dout, input_precision="ieee")
        dk += tl.dot(ds, q, input_precision="ieee")
        start += 16
    tl.store(tile_of(dk_ptr, batch, keys, key, head, heads, d), dk, mask=key[:, None] < keys)
    tl.store(tile_of(dv_ptr, batch, keys, key, head, heads, d), dv, mask=key[:, None] < keys)

def key_gradients(q, k, v, dout, lse, delta, scale, cap):
    batch, keys, heads, head_dim = k.shape
    dk, dv = torch.empty_like(k), torch.empty_like(k)
    one_axis[(triton.cdiv(keys, 32) * batch * heads,)](q, k, v, dout, lse, delta, dk, dv, q.shape[1], keys, heads,
                                                       scale, cap, head_dim, 32)
    return dk, dv
""",
    ),
}

# ---------------------------------------------------------------- wrong, each with its hint

WRONG = {  # name: task, changes to the solution or a whole answer, kind of finding, words that the hint has to hold
    "a matrix of gradients kept too": (
        "08b.1",
        [("return (q + k + v + weights)", "return 17 + (q + k + v + weights)")],
        "wrong",
        [],
    ),
    "gradients added up in fp16": (
        "08b.2",
        [("dq = torch.zeros_like(q) ", "dq = torch.zeros_like(q).half() ")],
        (),
        ["dq"],
    ),
    "softmax of the tile": (
        "08b.2",
        [("torch.exp(q @ k_tile.mT * scale - lse[..., None])", "torch.softmax(q @ k_tile.mT * scale, dim=-1)")],
        (),
        [],
    ),
    "tiles of 16 keys": (
        "08b.3",
        [("cdiv(keys, 32)", "cdiv(keys, 16)"), ("BLOCK=32", "BLOCK=16")],
        "bytes",
        ["32 keys"],
    ),
    "TF32": ("08b.3", [(', input_precision="ieee"', "")], "tf32", ["ieee"]),
}

NOT_ONE = {("08b.3", "key_gradients"): "head_dim is 16, 32 or 64"}


test_right, test_wrong, test_untouched, test_enough = answer_tests(SOLUTION, RIGHT, WRONG)
