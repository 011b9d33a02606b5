# right
import torch
from instruments.backend import tl, triton


@triton.jit
def k(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = start + tl.arange(0, BLOCK)
        y = tl.where(i < m, tl.load(y_ptr + i, i < m).to(tl.float32), 0.0)
        tl.store(out_ptr + i, tl.load(x_ptr + i, i < n).to(tl.float32) + y, i < n)


def add_short(x, y):
    out = x.new_empty(x.shape, dtype=torch.float32)
    k[(3,)](x, y, out, len(x), len(y), 256)
    return out
