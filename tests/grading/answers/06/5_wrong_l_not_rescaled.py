# wrong, mistake: l was measured from m_old
import torch
from instruments.backend import tl, triton


@triton.jit
def capped(scores, cap):
    s = scores.to(tl.float32)
    return cap * (2 * tl.sigmoid(2 * s / cap) - 1)  # cap * tanh(s / cap)


@triton.jit
def capped_causal_kernel(
    scores_ptr, first_ptr, y_ptr, batch_stride, query_stride, key_stride, queries, keys, cap, BLOCK: tl.constexpr
):
    query, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    scores_row = scores_ptr + batch * batch_stride + query.to(tl.int64) * query_stride
    y_row = y_ptr + (batch * queries + query) * keys
    first = tl.load(first_ptr + batch)
    end = query + keys - queries + 1
    m = float("-inf")
    l = 0.0
    for start in range(first, end, BLOCK):
        key = start + tl.arange(0, BLOCK)
        seen = key < end
        logits = tl.where(
            seen, capped(tl.load(scores_row + key.to(tl.int64) * key_stride, mask=seen, other=0.0), cap), float("-inf")
        )
        m_new = tl.maximum(m, tl.max(logits))
        l = l + tl.sum(tl.exp(logits - m_new))
        m = m_new
    for start in range(0, keys, BLOCK):
        key = start + tl.arange(0, BLOCK)
        seen = (key >= first) & (key < end)
        logits = tl.where(
            seen, capped(tl.load(scores_row + key.to(tl.int64) * key_stride, mask=seen, other=0.0), cap), float("-inf")
        )
        tl.store(y_row + key, tl.where(seen, tl.exp(logits - m) / l, 0.0), mask=key < keys)


def capped_causal_softmax(scores, first, cap):
    batch, queries, keys = scores.shape
    y = torch.empty(batch, queries, keys, dtype=scores.dtype, device=scores.device)
    capped_causal_kernel[(queries, batch)](scores, first, y, *scores.stride(), queries, keys, cap, BLOCK=128)
    return y
