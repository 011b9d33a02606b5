# right
import torch
from instruments.backend import tl, triton


@triton.jit
def striding_kernel(x_ptr, y_ptr, out_ptr, alpha, size, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, size, tl.num_programs(0) * BLOCK):
        here = start + tl.arange(0, BLOCK)
        product = tl.load(x_ptr + here, here < size).to(tl.float32) * alpha
        tl.store(out_ptr + here, product + tl.load(y_ptr + here, here < size), here < size)


def scaled_add(x, y, alpha):
    out = y.new_empty(y.shape)
    striding_kernel[(5,)](x.view(-1), y.view(-1), out.view(-1), alpha, out.numel(), 512)
    return out
