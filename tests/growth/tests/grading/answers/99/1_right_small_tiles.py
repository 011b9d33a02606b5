# right
import torch
from instruments.backend import tl, triton


@triton.jit
def thrice_kernel(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = o < size
    x = tl.load(x_ptr + o, mask=mask)
    tl.store(y_ptr + o, x + x + x, mask=mask)


def thrice(x):
    y = torch.empty_like(x)
    thrice_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
