# wrong, mistake: The softmax is that of cap * tanh(score / cap).
import torch

from instruments.backend import tl, triton


@triton.jit
def capped(scores, cap):
    e = tl.exp(-2 * tl.abs(scores / cap))
    t = (1 - e) / (1 + e)
    return scores


@triton.jit
def capped_causal_kernel(
    scores_ptr, first_ptr, y_ptr, batch_stride, query_stride, key_stride, queries, keys, cap, BLOCK: tl.constexpr
):
    query = tl.program_id(0)
    batch = tl.program_id(1)
    first = tl.load(first_ptr + batch)
    end = tl.maximum(query + keys - queries + 1, 0)
    base = scores_ptr + batch * batch_stride + query * query_stride
    m = tl.full((BLOCK,), -1e30, tl.float32)
    l = tl.zeros((BLOCK,), tl.float32)
    for start in range(first, end, BLOCK):
        k = start + tl.arange(0, BLOCK)
        seen = k < end
        x = tl.where(seen, capped(tl.load(base + k * key_stride, mask=seen, other=0.0).to(tl.float32), cap), -1e30)
        new = tl.maximum(m, x)
        l = l * tl.exp(m - new) + tl.where(seen, tl.exp(x - new), 0.0)
        m = new
    top = tl.max(m, axis=0)
    total = tl.sum(l * tl.exp(m - top), axis=0)
    for start in range(0, keys, BLOCK):
        k = start + tl.arange(0, BLOCK)
        seen = (k >= first) & (k < end)
        x = capped(tl.load(base + k * key_stride, mask=seen, other=0.0).to(tl.float32), cap)
        y = tl.where(seen, tl.exp(x - top) / total, 0.0)
        tl.store(y_ptr + (batch * queries + query) * keys + k, y.to(y_ptr.dtype.element_ty), mask=k < keys)


def capped_causal_softmax(scores, first, cap):
    batch, queries, keys = scores.shape
    y = torch.empty((batch, queries, keys), dtype=scores.dtype, device=scores.device)
    capped_causal_kernel[(queries, batch)](scores, first, y, *scores.stride(), queries, keys, float(cap), 64)
    return y
