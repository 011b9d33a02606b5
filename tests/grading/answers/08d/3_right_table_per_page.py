# right
import torch
from instruments.backend import tl, triton


@triton.jit
def by_page(q, pool, table, lengths, out, heads, slots, scale, PAGE: tl.constexpr, D: tl.constexpr):
    b = tl.program_id(0)
    h, d, r = tl.arange(0, 16)[:, None], tl.arange(0, D)[None, :], tl.arange(0, PAGE)[:, None]
    at = (b * heads + h) * D + d
    tile = tl.load(q + at, mask=h < heads, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([16, 1], -1e38, tl.float32)
    l = tl.zeros([16, 1], tl.float32)
    acc = tl.zeros([16, D], tl.float32)
    for slot in range(tl.cdiv(length, PAGE)):
        page = tl.load(table + b * slots + slot).to(tl.int64)
        keys = pool + (page * 2 * PAGE + r) * D + d
        inside = slot * PAGE + r < length
        k = tl.load(keys, mask=inside, other=0.0)
        v = tl.load(keys + PAGE * D, mask=inside, other=0.0)
        s = tl.dot(tile, tl.trans(k)) * (scale * 1.4426950408889634)
        s = tl.where(slot * PAGE + tl.arange(0, PAGE)[None, :] < length, s, float("-inf"))
        new = tl.maximum(m, tl.max(s, axis=1, keep_dims=True))
        p, c = tl.exp2(s - new), tl.exp2(m - new)
        l = l * c + tl.sum(p, axis=1, keep_dims=True)
        acc = tl.dot(p.to(tl.float16), v, acc * c)
        m = new
    tl.store(out + at, acc / tl.maximum(l, 1e-30), mask=h < heads)


def paged_decode(q, pool, table, lengths, scale):
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    by_page[(len(q),)](
        q, pool, table, lengths, out, q.shape[1], table.shape[1], scale, PAGE=pool.shape[2], D=q.shape[2]
    )
    return out
