# wrong, traffic: tiles of 32 queries
import torch
from instruments.backend import tl, triton


@triton.jit
def sink_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    sink_ptr,
    out_ptr,
    lse_ptr,
    queries,
    keys,
    heads,
    scale,
    q_batch,
    q_row,
    q_head,
    k_batch,
    k_row,
    k_head,
    v_batch,
    v_row,
    v_head,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    batch, head = tl.program_id(1).to(tl.int64) // heads, tl.program_id(1) % heads
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    col, d = tl.arange(0, BLOCK_N), tl.arange(0, D)
    within = row[:, None] < queries
    q = tl.load(q_ptr + batch * q_batch + head * q_head + row[:, None] * q_row + d[None, :], mask=within, other=0.0)
    k_ptrs = k_ptr + batch * k_batch + head * k_head + d[:, None]  # read transposed: [D, BLOCK_N]
    v_ptrs = v_ptr + batch * v_batch + head * v_head + d[None, :]  # [BLOCK_N, D]
    m = tl.zeros([BLOCK_M], tl.float32) + tl.load(sink_ptr + head)  # the state after the sink
    l = tl.full([BLOCK_M], 1.0, tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for start in range(0, keys, BLOCK_N):
        key = start + col
        inside = key < keys
        k = tl.load(k_ptrs + key[None, :] * k_row, mask=inside[None, :], other=0.0)
        v = tl.load(v_ptrs + key[:, None] * v_row, mask=inside[:, None], other=0.0)
        s = tl.dot(q, k, input_precision="ieee") * scale  # [BLOCK_M, BLOCK_N]
        s = tl.where(inside[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - m_new[:, None])
        factor = tl.exp(m - m_new)
        l = l * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    out_row = (batch * queries + row[:, None]) * heads + head  # out is [batch, queries, heads, D]
    tl.store(out_ptr + out_row * D + d[None, :], acc / l[:, None], mask=within)
    tl.store(lse_ptr + tl.program_id(1) * queries + row, m + tl.log(l), mask=row < queries)


def sink_attention(q, k, v, sink, scale):
    (batch, queries, heads, head_dim), keys = q.shape, k.shape[1]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(batch, heads, queries, dtype=torch.float32, device=q.device)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    grid = (triton.cdiv(queries, 16), batch * heads)
    sink_attention_kernel[grid](
        q, k, v, sink, out, lse, queries, keys, heads, scale, *strides, D=head_dim, BLOCK_M=16, BLOCK_N=32
    )
    return out, lse
