# wrong, mistake: masked-out splits were counted
import torch
from instruments.backend import tl, triton


@triton.jit
def merge_kernel(
    parts_ptr, lse_ptr, sink_ptr, out_ptr, merged_ptr, splits, rows, heads, D: tl.constexpr, SPLITS: tl.constexpr
):
    row = tl.program_id(0)  # a head of a sequence
    split, d = tl.arange(0, SPLITS), tl.arange(0, D)
    inside = split < splits
    sink = tl.load(sink_ptr + row % heads)
    lse = tl.load(lse_ptr + split * rows + row, mask=inside, other=0.0)
    m = tl.maximum(tl.max(lse), sink)  # finite, for the sink is
    weights = tl.exp(lse - m)  # 0 where a split saw no key
    total = tl.sum(weights) + tl.exp(sink - m)
    parts = tl.load(parts_ptr + (split[:, None] * rows + row) * D + d[None, :], mask=inside[:, None], other=0.0)
    tl.store(out_ptr + row * D + d, tl.sum(weights[:, None] * parts, axis=0) / total)
    tl.store(merged_ptr + row, m + tl.log(total))


def merge_parts(parts, lse, sink):
    splits, batch, heads, head_dim = parts.shape
    out = torch.empty(batch, heads, head_dim, dtype=torch.float32, device=parts.device)
    merged = torch.empty(batch, heads, dtype=torch.float32, device=parts.device)
    merge_kernel[(batch * heads,)](
        parts, lse, sink, out, merged, splits, batch * heads, heads, D=head_dim, SPLITS=triton.next_power_of_2(splits)
    )
    return out, merged
