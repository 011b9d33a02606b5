# right
import torch
from instruments.backend import tl, triton


@triton.jit
def from_the_diagonal(q_ptr, k_ptr, v_ptr, o_ptr, N, H, W, scale, D: tl.constexpr, B: tl.constexpr):
    tile, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    i, n, d = tile * B + tl.arange(0, B), tl.arange(0, B), tl.arange(0, D)
    ptrs = ((b * N + i[:, None]) * H + h) * D + d[None, :]
    q = tl.load(q_ptr + ptrs, mask=i[:, None] < N, other=0.0)
    m, l, acc = tl.full([B], float("-inf"), tl.float32), tl.zeros([B], tl.float32), tl.zeros([B, D], tl.float32)
    lowest = tl.maximum(tile * B - W + 1, 0) // B
    for back in range(0, tile - lowest + 1):  # the diagonal first: every query attends to its own key
        j = (tile - back) * B + n
        at = ((b * N + j[:, None]) * H + h) * D + d[None, :]
        k = tl.load(k_ptr + at, mask=j[:, None] < N, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where((j[None, :] <= i[:, None]) & (j[None, :] + W > i[:, None]), s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        v = tl.load(v_ptr + at, mask=j[:, None] < N, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * tl.exp(m - new)[:, None], input_precision="ieee")
        l, m = l * tl.exp(m - new) + tl.sum(p, 1), new
    tl.store(o_ptr + ptrs, acc / l[:, None], mask=i[:, None] < N)


def window_attention(q, k, v, scale, window):
    b, N, H, D = q.shape
    out = torch.empty_like(q)
    from_the_diagonal[(triton.cdiv(N, 32), H, b)](q, k, v, out, N, H, window, scale, D=D, B=32)
    return out
