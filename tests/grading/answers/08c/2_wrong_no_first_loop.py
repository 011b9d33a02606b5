# wrong, mistake: left out or counted twice
import torch
from instruments.backend import tl, triton
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def diagonal_first(q, k, v, o, N, scale, D: tl.constexpr, T: tl.constexpr):
    head, row = tl.program_id(1) * N, tl.program_id(0) * T
    i = tl.arange(0, T)
    queries = q.load([head + row, 0])
    s = tl.dot(queries, tl.trans(k.load([head + row, 0]))) * scale
    s = tl.where(i[None, :] <= i[:, None], s, float("-inf"))
    m = tl.max(s, 1)
    p = tl.exp(s - m[:, None])
    l = tl.sum(p, 1)
    acc = tl.dot(p.to(queries.dtype), v.load([head + row, 0]))
    for at in range(0, 0, T):
        s = tl.dot(queries, tl.trans(k.load([head + at, 0]))) * scale
        new = tl.maximum(m, tl.max(s, 1))
        p, factor = tl.exp(s - new[:, None]), tl.exp(m - new)
        l = l * factor + tl.sum(p, 1)
        acc = acc * factor[:, None] + tl.dot(p.to(queries.dtype), v.load([head + at, 0]))
        m = new
    o.store([head + row, 0], (acc / l[:, None]).to(queries.dtype))


def causal_two_loops(q, k, v, scale):
    heads, N, D = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    views = [TensorDescriptor.from_tensor(x.view(-1, D), [64, D]) for x in (q, k, v, out)]
    diagonal_first[(N // 64, heads)](*views, N, scale, D=D, T=64)
    return out
