# right
import torch
from instruments.backend import tl, triton


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
