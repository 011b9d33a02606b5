# right
import torch
from instruments.backend import tl, triton


@triton.jit
def by_sequence(
    parts_ptr,
    lse_ptr,
    sink_ptr,
    out_ptr,
    merged_ptr,
    batch,
    heads: tl.constexpr,
    D: tl.constexpr,
    S: tl.constexpr,
    SPLITS: tl.constexpr,
):
    b, s, d = tl.program_id(0), tl.arange(0, SPLITS), tl.arange(0, D)[None, :]
    for h in range(heads):
        at = (s * batch + b) * heads + h
        sink = tl.load(sink_ptr + h)
        lse = tl.load(lse_ptr + at, s < S, float("-inf"))
        top = tl.maximum(tl.max(lse, 0), sink)
        total = tl.sum(tl.exp2((lse - top) * 1.4426950408889634), 0) + tl.exp2((sink - top) * 1.4426950408889634)
        share = tl.exp2((lse - top) * 1.4426950408889634 - tl.log2(total))
        parts = tl.load(parts_ptr + at[:, None] * D + d, s[:, None] < S, 0.0)
        tl.store(out_ptr + (b * heads + h) * D + tl.arange(0, D), tl.sum(parts * share[:, None], 0))
        tl.store(merged_ptr + b * heads + h, top + tl.log2(total) * 0.6931471805599453)


def merge_parts(parts, lse, sink):
    splits, batch, heads, head_dim = parts.shape
    out, merged = parts.new_empty(batch, heads, head_dim), parts.new_empty(batch, heads)
    by_sequence[(batch,)](parts, lse, sink, out, merged, batch, heads, head_dim, splits, triton.next_power_of_2(splits))
    return out, merged
