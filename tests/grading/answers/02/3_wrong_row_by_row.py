# wrong, traffic: neighboring addresses
import torch
from instruments.backend import tl, triton


@triton.jit
def k(x_ptr, out_ptr, rows, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        tl.store(out_ptr + col * rows + row, tl.load(x_ptr + row * row_stride + col, mask=col < cols), mask=col < cols)


def transpose(x):
    out = x.new_empty(x.shape[::-1])
    k[(x.shape[0],)](x, out, *x.shape, x.stride(0), 128)
    return out
