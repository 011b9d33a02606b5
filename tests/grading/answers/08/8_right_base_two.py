# right
import torch
from instruments.backend import tl, triton


@triton.jit
def in_base_two(q_ptr, k_ptr, v_ptr, o_ptr, N, H, W, scale, D: tl.constexpr, B: tl.constexpr):
    h, b = tl.program_id(0) % H, (tl.program_id(0) // H).to(tl.int64)
    first = tl.program_id(1) * B
    i, d = first + tl.arange(0, B), tl.arange(0, D)
    base = b * N * H + h
    q = tl.load(q_ptr + (base + i[:, None] * H) * D + d, mask=i[:, None] < N, other=0.0)
    m, l, acc = tl.full([B], float("-inf"), tl.float32), tl.zeros([B], tl.float32), tl.zeros([B, D], tl.float32)
    start = tl.maximum(first + 1 - W, 0) // B * B
    while start < first + B and start < N:
        j = start + tl.arange(0, B)
        at = (base + j[:, None] * H) * D + d
        s = (
            tl.dot(q, tl.load(k_ptr + at, mask=j[:, None] < N, other=0.0).T, input_precision="ieee")
            * scale
            * 1.4426950408889634
        )
        s = tl.where((j[None, :] <= i[:, None]) & (i[:, None] - j[None, :] < W), s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        shift = tl.where(new == float("-inf"), 0.0, new)
        p, factor = tl.exp2(s - shift[:, None]), tl.exp2(m - shift)
        v = tl.load(v_ptr + at, mask=j[:, None] < N, other=0.0)
        acc = acc * factor[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        l, m = l * factor + tl.sum(p, 1), new
        start += B
    tl.store(o_ptr + (base + i[:, None] * H) * D + d, acc / l[:, None], mask=i[:, None] < N)


def window_attention(q, k, v, scale, window):
    b, N, H, D = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    in_base_two[(b * H, triton.cdiv(N, 32))](q, k, v, out, N, H, window, scale, D=D, B=32)
    return out
