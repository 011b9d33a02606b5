# right
import torch
from instruments.backend import tl, triton


@triton.jit
def logits_of(s_ptr, offsets, seen, cap):
    s = tl.load(s_ptr + offsets, mask=seen, other=0.0).to(tl.float32)
    return tl.where(seen, cap * (1 - 2 * tl.sigmoid(-2 * s / cap)), -1e30)


@triton.jit
def pairs(s_ptr, first_ptr, y_ptr, bs, qs, ks, queries, keys, cap, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    batch = tl.program_id(1)
    query = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    begin = tl.load(first_ptr + batch)
    last = tl.where(query < queries, query + keys - queries, -1)
    m = tl.full([ROWS, 1], -1e29, tl.float32)
    l = tl.full([ROWS, 1], 1e-37, tl.float32)
    for tile in range(tl.cdiv(keys, BLOCK)):
        key = (tile * BLOCK + tl.arange(0, BLOCK))[None, :]
        logits = logits_of(s_ptr, batch * bs + query * qs + key * ks, (key >= begin) & (key <= last), cap)
        higher = tl.maximum(m, tl.max(logits, axis=1, keep_dims=True))
        l = l * tl.exp(m - higher) + tl.sum(tl.exp(logits - higher), axis=1, keep_dims=True)
        m = higher
    for tile in range(tl.cdiv(keys, BLOCK)):
        key = (tile * BLOCK + tl.arange(0, BLOCK))[None, :]
        logits = logits_of(s_ptr, batch * bs + query * qs + key * ks, (key >= begin) & (key <= last), cap)
        y = (tl.exp(logits - m) / l).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + (batch * queries + query) * keys + key, y, mask=(key < keys) & (query < queries))


def capped_causal_softmax(scores, first, cap):
    b, q, k = scores.shape
    y = torch.empty((b, q, k), dtype=scores.dtype, device=scores.device)
    strides = dict(zip(("bs", "qs", "ks"), scores.stride()))
    pairs[(triton.cdiv(q, 2), b)](scores, first, y, **strides, queries=q, keys=k, cap=cap, ROWS=2, BLOCK=128)
    return y
