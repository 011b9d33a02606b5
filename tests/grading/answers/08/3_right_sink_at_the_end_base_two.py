# right
import torch
from instruments.backend import tl, triton


@triton.jit
def attend(
    q_ptr,
    k_ptr,
    v_ptr,
    sink_ptr,
    out_ptr,
    lse_ptr,
    n,
    n_keys,
    H,
    scale,
    qb,
    qn,
    qh,
    kb,
    kn,
    kh,
    vb,
    vn,
    vh,
    D: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
):
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
    attend[(triton.cdiv(n, 64) * B * H,)](
        q,
        k,
        v,
        sink,
        out,
        lse,
        n,
        k.shape[1],
        H,
        scale,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        D=D,
        M=64,
        N=16,
    )
    return out, lse
