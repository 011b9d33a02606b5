# wrong, mistake: the diagonal is in the wrong place
import torch
from instruments.backend import tl, triton


@triton.jit
def causal_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, queries, keys, heads, scale, cap, D: tl.constexpr, BLOCK: tl.constexpr
):
    batch, head = tl.program_id(1).to(tl.int64) // heads, tl.program_id(1) % heads
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    col, d = tl.arange(0, BLOCK), tl.arange(0, D)
    at = ((batch * queries + row[:, None]) * heads + head) * D + d[None, :]
    q = tl.load(q_ptr + at, mask=row[:, None] < queries, other=0.0)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, D], tl.float32)
    place = row
    last = (tl.program_id(0) + 1) * BLOCK
    for start in range(0, tl.minimum(last, keys), BLOCK):
        key = start + col
        inside = key < keys
        k = tl.load(
            k_ptr + ((batch * keys + key[None, :]) * heads + head) * D + d[:, None], mask=inside[None, :], other=0.0
        )
        v = tl.load(
            v_ptr + ((batch * keys + key[:, None]) * heads + head) * D + d[None, :], mask=inside[:, None], other=0.0
        )
        s = tl.dot(q, k, input_precision="ieee") * scale
        s = cap * (2 * tl.sigmoid(2 * s / cap) - 1)
        s = tl.where((key[None, :] <= place[:, None]) & inside[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp(s - shift[:, None])
        factor = tl.exp(m - shift)
        l = l * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p, v, input_precision="ieee")
        m = m_new
    out = acc / tl.where(l == 0, 1.0, l)[:, None]
    tl.store(out_ptr + at, out, mask=row[:, None] < queries)


def causal_attention(q, k, v, scale, cap):
    (batch, queries, heads, head_dim), keys = q.shape, k.shape[1]
    out = torch.empty_like(q)
    grid = (triton.cdiv(queries, 32), batch * heads)
    causal_attention_kernel[grid](q, k, v, out, queries, keys, heads, scale, cap, D=head_dim, BLOCK=32)
    return out
