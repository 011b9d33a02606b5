# right
import torch
from instruments.backend import tl, triton


@triton.jit
def step(q, k, v, inside, scale, m, l, acc):
    s = tl.where(inside, tl.dot(q, k.T, input_precision="ieee") * scale, float("-inf"))
    new = tl.maximum(m, tl.max(s, 1))
    p = tl.exp(s - new[:, None])
    return (
        new,
        l * tl.exp(m - new) + tl.sum(p, 1),
        acc * tl.exp(m - new)[:, None] + tl.dot(p, v, input_precision="ieee"),
    )


@triton.jit
def heads_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    sink_ptr,
    out_ptr,
    lse_ptr,
    queries,
    keys,
    scale,
    qs: tl.constexpr,
    ks: tl.constexpr,
    vs: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    B: tl.constexpr,
):
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
    heads_kernel[(triton.cdiv(queries, 32), batch)](
        q,
        k,
        v,
        sink,
        out,
        lse,
        queries,
        k.shape[1],
        scale,
        q.stride(),
        k.stride(),
        v.stride(),
        heads,
        head_dim,
        32,
        num_warps=2,
    )
    return out, lse
