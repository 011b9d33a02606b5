# right
import torch
from instruments.backend import tl, triton


@triton.jit
def backwards(
    q_ptr, k_ptr, v_ptr, out_ptr, Q, K, H: tl.constexpr, scale, cap, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr
):
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
        out = out * keep[:, None] + tl.dot(
            tl.exp(s - tl.where(seen_any, both, 0.0)[:, None]), v, input_precision="ieee"
        )
        lse = both
    tl.store(out_ptr + ((b * Q + rows[:, None]) * H + h) * D + d[None, :], out, rows[:, None] < Q)


def causal_attention(q, k, v, scale, cap):
    (b, Q, H, D), K = q.shape, k.shape[1]
    out = torch.empty_like(q)
    backwards[(triton.cdiv(Q, 64), b * H)](q, k, v, out, Q, K, H, scale, cap, D, 64, 32, num_warps=4)
    return out
