# wrong, values: Subtract the running max
import torch
from instruments.backend import tl, triton
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def two_loops_kernel(q, k, v, out, sequence, scale, D: tl.constexpr, TILE: tl.constexpr):
    head = tl.program_id(1)
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    base = head * sequence
    row = base + tile * TILE
    qt = q.load([row, 0])
    m = tl.full((TILE,), 0.0, tl.float32)
    l = tl.zeros((TILE,), tl.float32)
    acc = tl.zeros((TILE, D), tl.float32)
    for start in tl.range(base, row, TILE, num_stages=3):
        kt = k.load([start, 0])
        s = tl.dot(qt, kt.T)
        mn = m * 0
        p = tl.exp2(s * scale - mn[:, None])
        a = tl.exp2(m - mn)
        l = l * a + tl.sum(p, 1)
        vt = v.load([start, 0])
        acc = tl.dot(p.to(vt.dtype), vt, acc * a[:, None])
        m = mn
    kt = k.load([row, 0])
    s = tl.dot(qt, kt.T)
    i = tl.arange(0, TILE)
    s = tl.where(i[:, None] >= i[None, :], s, float("-inf"))
    mn = m * 0
    p = tl.exp2(s * scale - mn[:, None])
    a = tl.exp2(m - mn)
    l = l * a + tl.sum(p, 1)
    vt = v.load([row, 0])
    acc = tl.dot(p.to(vt.dtype), vt, acc * a[:, None])
    out.store([row, 0], (acc / l[:, None]).to(qt.dtype))


def causal_two_loops(q, k, v, scale):
    heads, sequence, d = q.shape
    out = torch.empty_like(q)
    desc = [TensorDescriptor.from_tensor(t.view(-1, d), [64, d]) for t in (q, k, v, out)]
    two_loops_kernel[(sequence // 64, heads)](*desc, sequence, scale * 1.4426950408889634, D=d, TILE=64, num_warps=4)
    return out
