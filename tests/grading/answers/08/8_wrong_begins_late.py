# wrong, values: the first key of the first query
import torch

from instruments.backend import tl, triton


@triton.jit
def window_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, sequence, heads, window, scale, D: tl.constexpr, BLOCK: tl.constexpr
):
    qt = tl.program_id(0)
    h = tl.program_id(1) % heads
    b = tl.program_id(1) // heads
    i = qt * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    row = heads * D
    base = b * sequence * row + h * D
    q = tl.load(q_ptr + base + i[:, None] * row + d[None, :], mask=i[:, None] < sequence, other=0.0)
    m = tl.full((BLOCK,), -1e38, tl.float32)
    l = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, D), tl.float32)
    lowest = tl.maximum((qt + 1) * BLOCK - window, 0)
    for start in range(lowest // 32 * 32, tl.minimum((qt + 1) * BLOCK, sequence), 32):
        j = start + tl.arange(0, 32)
        inside = j[:, None] < sequence
        k = tl.load(k_ptr + base + j[:, None] * row + d[None, :], mask=inside, other=0.0)
        v = tl.load(v_ptr + base + j[:, None] * row + d[None, :], mask=inside, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        ok = (j[None, :] <= i[:, None]) & (j[None, :] > i[:, None] - window)
        s = tl.where(ok, s, -1e38)
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.where(ok, tl.exp(s - new[:, None]), 0.0)
        c = tl.exp(m - new)
        l = c * l + tl.sum(p, 1)
        acc = acc * c[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = new
    tl.store(
        out_ptr + base + i[:, None] * row + d[None, :],
        (acc / l[:, None]).to(out_ptr.dtype.element_ty),
        mask=i[:, None] < sequence,
    )


def window_attention(q, k, v, scale, window):
    B, S, H, D = q.shape
    out = torch.empty_like(q)
    window_attention_kernel[(triton.cdiv(S, 32), B * H)](q, k, v, out, S, H, window, scale, D, 32)
    return out
