# right
import torch
from instruments.backend import tl, triton


@triton.jit
def guarded(s_ptr, first_ptr, y_ptr, batch_stride, query_stride, key_stride, queries, keys, cap, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    batch, query = program // queries, program % queries
    s_ptr += batch.to(tl.int64) * batch_stride + query * query_stride
    first = tl.load(first_ptr + batch)
    m = tl.full([1], float("-inf"), tl.float32)
    l = tl.zeros([1], tl.float32)
    for start in range(0, keys, BLOCK):
        key = start + tl.arange(0, BLOCK)
        seen = (key >= first) & (key + queries <= query + keys)
        s = tl.load(s_ptr + key * key_stride, mask=seen, other=0).to(tl.float32)
        s = tl.where(seen, cap - 2 * cap / (tl.exp(2 * s / cap) + 1), float("-inf"))
        m_new = tl.maximum(m, tl.max(s, axis=0))
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)
        l = l * tl.exp(m - shift) + tl.sum(tl.exp(s - shift), axis=0)
        m = m_new
    shift = tl.where(m == float("-inf"), 0.0, m)
    scale = 1 / tl.maximum(l, 1e-30)
    for start in range(0, keys, BLOCK):
        key = start + tl.arange(0, BLOCK)
        seen = (key >= first) & (key + queries <= query + keys)
        s = tl.load(s_ptr + key * key_stride, mask=seen, other=0).to(tl.float32)
        s = tl.where(seen, cap - 2 * cap / (tl.exp(2 * s / cap) + 1), float("-inf"))
        tl.store(y_ptr + program.to(tl.int64) * keys + key, tl.exp(s - shift) * scale, mask=key < keys)


def capped_causal_softmax(scores, first, cap):
    batch, queries, keys = scores.shape
    y = torch.zeros(scores.shape, dtype=scores.dtype, device=scores.device)
    guarded[(batch * queries,)](scores, first, y, *scores.stride(), queries, keys, cap, 64)
    return y
