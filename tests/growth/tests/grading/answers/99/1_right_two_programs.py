# right
import torch
from instruments.backend import tl, triton


@triton.jit
def thrice_kernel(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, size, tl.num_programs(0) * BLOCK):
        o = start + tl.arange(0, BLOCK)
        tl.store(y_ptr + o, 3 * tl.load(x_ptr + o, mask=o < size), mask=o < size)


def thrice(x):
    y = torch.empty_like(x)
    thrice_kernel[(2,)](x, y, x.numel(), BLOCK=128)
    return y
