# wrong, out_of_bounds
import torch
from instruments.backend import tl, triton


@triton.jit
def decode_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    keys,
    kv_heads,
    group,
    scale,
    batch_stride,
    key_stride,
    head_stride,
    D: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    batch, kv_head = tl.program_id(1).to(tl.int64), tl.program_id(0)
    slot = tl.arange(0, 16)  # tl.dot takes 16 rows; the group has as many or fewer
    col, d = tl.arange(0, BLOCK_N), tl.arange(0, D)
    head = kv_head * group + slot
    row = batch * kv_heads * group + head  # of q, out and lse
    used = slot < group
    q = tl.load(q_ptr + row[:, None] * D + d[None, :], mask=used[:, None], other=0.0)
    cache = batch * batch_stride + kv_head * head_stride
    m = tl.full([16], float("-inf"), tl.float32)
    l = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, D], tl.float32)
    for start in range(0, keys, BLOCK_N):
        key = start + col
        inside = key < keys
        k = tl.load(k_ptr + cache + key[None, :] * key_stride + d[:, None], mask=inside[None, :], other=0.0)
        v = tl.load(v_ptr + cache + key[:, None] * key_stride + d[None, :], mask=inside[:, None], other=0.0)
        s = tl.dot(q, k) * scale  # [16, BLOCK_N]
        s = tl.where(inside[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - m_new[:, None])
        factor = tl.exp(m - m_new)
        l = l * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None] + tl.dot(p.to(v.dtype), v)
        m = m_new
    tl.store(out_ptr + row[:, None] * D + d[None, :], acc / l[:, None])
    tl.store(lse_ptr + row, m + tl.log(l), mask=slot < 16)


def decode_step(q, k, v, scale):
    (batch, heads, head_dim), (_, keys, kv_heads, _) = q.shape, k.shape
    out = torch.empty_like(q)
    lse = torch.empty(batch, heads, dtype=torch.float32, device=q.device)
    decode_kernel[(kv_heads, batch)](
        q, k, v, out, lse, keys, kv_heads, heads // kv_heads, scale, *k.stride()[:3], D=head_dim, BLOCK_N=32
    )
    return out, lse
