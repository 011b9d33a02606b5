# right
import torch
from instruments.backend import tl, triton


@triton.jit
def serial(maxima, sums, accs, counts, out, splits, D: tl.constexpr):
    row = tl.program_id(0)
    d = tl.arange(0, D)
    m, l, acc = -1e38, 0.0, tl.zeros([D], tl.float32)
    for part in range(tl.load(counts + row)):
        at = row * splits + part
        its_max = tl.load(maxima + at)
        new = tl.maximum(m, its_max)
        old, other = tl.exp2(m - new), tl.exp2(its_max - new)
        acc = acc * old + tl.load(accs + at * D + d) * other
        l = l * old + tl.load(sums + at) * other
        m = new
    if l > 0:
        acc = acc / l
    tl.store(out + row * D + d, acc)


def merge_states(part_max, part_sum, part_acc, counts):
    rows, splits, head_dim = part_acc.shape
    out = torch.empty((rows, head_dim), dtype=torch.float16, device=part_acc.device)
    serial[(rows,)](part_max, part_sum, part_acc, counts, out, splits, D=head_dim)
    return out
