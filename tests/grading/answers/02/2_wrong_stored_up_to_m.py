# wrong, unwritten: as long as x
import torch
from instruments.backend import tl, triton


@triton.jit
def add_short_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=offsets < m, other=0.0).to(tl.float32)
    tl.store(out_ptr + offsets, x + y, mask=offsets < m)


def add_short(x, y):
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    BLOCK = 1024
    add_short_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), y.numel(), BLOCK)
    return out
