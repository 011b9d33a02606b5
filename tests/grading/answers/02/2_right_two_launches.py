# right
import torch
from instruments.backend import tl, triton


@triton.jit
def add_short_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=offsets < m, other=0.0).to(tl.float32)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add_short(x, y):
    n, m = x.numel(), y.numel()
    out = torch.empty(n, dtype=torch.float32, device=x.device)
    add_short_kernel[(triton.cdiv(m, 1024),)](x[:m], y, out[:m], m, m, BLOCK=1024)
    if n > m:
        add_short_kernel[(triton.cdiv(n - m, 1024),)](x[m:], y, out[m:], n - m, 0, BLOCK=1024)
    return out
