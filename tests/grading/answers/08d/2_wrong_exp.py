# wrong, mistake: use exp2
import torch
from instruments.backend import tl, triton


@triton.jit
def merge_kernel(max_ptr, sum_ptr, acc_ptr, counts_ptr, out_ptr, splits, D: tl.constexpr, SPLITS: tl.constexpr):
    row = tl.program_id(0)
    part, d = tl.arange(0, SPLITS), tl.arange(0, D)
    inside = part < tl.load(counts_ptr + row)
    m = tl.load(max_ptr + row * splits + part, mask=inside, other=float("-inf"))
    l = tl.load(sum_ptr + row * splits + part, mask=inside, other=0.0)
    acc = tl.load(acc_ptr + (row * splits + part[:, None]) * D + d[None, :], mask=inside[:, None], other=0.0)
    top = tl.maximum(tl.max(m), -1e38)  # finite, so that -inf minus it is -inf and not NaN
    correction = tl.exp(m - top)
    row_sum = tl.sum(l * correction)
    out = tl.sum(acc * correction[:, None], axis=0) / tl.where(row_sum == 0.0, 1.0, row_sum)
    tl.store(out_ptr + row * D + d, out.to(tl.float16))


def merge_states(part_max, part_sum, part_acc, counts):
    rows, splits, head_dim = part_acc.shape
    out = torch.empty(rows, head_dim, dtype=torch.float16, device=part_acc.device)
    merge_kernel[(rows,)](
        part_max, part_sum, part_acc, counts, out, splits, D=head_dim, SPLITS=triton.next_power_of_2(splits)
    )
    return out
