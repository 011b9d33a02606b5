# wrong, values: mask the loads of k and v
import torch
from instruments.backend import tl, triton


@triton.jit
def paged_kernel(
    q_ptr,
    pool_ptr,
    table_ptr,
    lengths_ptr,
    out_ptr,
    heads,
    slots,
    scale,
    PAGE: tl.constexpr,
    D: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    batch = tl.program_id(0)
    head, d = tl.arange(0, 16), tl.arange(0, D)
    rows = (batch * heads + head[:, None]) * D + d[None, :]
    used = head[:, None] < heads
    q = tl.load(q_ptr + rows, mask=used, other=0.0)
    length = tl.load(lengths_ptr + batch)
    m = tl.full([16], -1e38, tl.float32)
    l = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, D], tl.float32)
    for start in range(0, length, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        inside = key < length
        page = tl.load(table_ptr + batch * slots + key // PAGE, mask=inside, other=0).to(tl.int64)
        row = page * 2 * PAGE + key % PAGE  # of the keys; the values lie PAGE rows behind them
        tile = pool_ptr + row[:, None] * D + d[None, :]
        k = tl.load(tile)
        v = tl.load(tile + PAGE * D)
        s = tl.where(inside[None, :], tl.dot(q, k.T) * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - m_new[:, None])
        correction = tl.exp(m - m_new)
        l = l * correction + tl.sum(p, axis=1)
        acc = acc * correction[:, None] + tl.dot(p.to(v.dtype), v)
        m = m_new
    out = acc / tl.where(l == 0.0, 1.0, l)[:, None]
    tl.store(out_ptr + rows, out.to(tl.float16), mask=used)


def paged_decode(q, pool, table, lengths, scale):
    batch, heads, head_dim = q.shape
    out = torch.empty_like(q)
    paged_kernel[(batch,)](
        q, pool, table, lengths, out, heads, table.shape[1], scale, PAGE=pool.shape[2], D=head_dim, BLOCK_N=32
    )
    return out
