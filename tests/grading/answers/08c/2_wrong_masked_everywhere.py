# wrong, compile: only the tile on the diagonal needs a mask
import torch
from instruments.backend import tl, triton
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def one_loop(q, k, v, o, N, scale, D: tl.constexpr, T: tl.constexpr):
    head, row = tl.program_id(1) * N, tl.program_id(0) * T
    i, j = row + tl.arange(0, T)[:, None], tl.arange(0, T)[None, :]
    queries = q.load([head + row, 0])
    m, l = tl.full([T], float("-inf"), tl.float32), tl.zeros([T], tl.float32)
    acc = tl.zeros([T, D], tl.float32)
    for at in range(0, row + T, T):
        s = tl.dot(queries, tl.trans(k.load([head + at, 0]))) * scale
        s = tl.where(at + j <= i, s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p, factor = tl.exp(s - new[:, None]), tl.exp(m - new)
        l = l * factor + tl.sum(p, 1)
        acc = tl.dot(p.to(queries.dtype), v.load([head + at, 0]), acc * factor[:, None])
        m = new
    o.store([head + row, 0], (acc / l[:, None]).to(queries.dtype))


def causal_two_loops(q, k, v, scale):
    heads, N, D = q.shape
    out = torch.empty_like(q)
    views = [TensorDescriptor.from_tensor(x.view(-1, D), [64, D]) for x in (q, k, v, out)]
    one_loop[(N // 64, heads)](*views, N, scale, D=D, T=64)
    return out
