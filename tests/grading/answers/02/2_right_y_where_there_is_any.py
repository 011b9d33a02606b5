# right
import torch
from instruments.backend import tl, triton


@triton.jit
def k(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=7.0).to(tl.float32)
    if tl.program_id(0) * BLOCK < m:
        x += tl.load(y_ptr + i, mask=i < m, other=0.0)
    tl.store(out_ptr + i, x, mask=i < n)


def add_short(x, y):
    out = torch.empty_like(x, dtype=torch.float32)
    k[((x.numel() + 511) // 512,)](x, y, out, x.numel(), y.numel(), BLOCK=512)
    return out
