# right
import torch
from instruments.backend import tl, triton


@triton.jit
def k(x_ptr, out_ptr, rows, cols, row_stride, T: tl.constexpr):
    per_row = tl.cdiv(cols, T)
    r = tl.program_id(0) // per_row * T + tl.arange(0, T)
    c = tl.program_id(0) % per_row * T + tl.arange(0, T)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    tile = tl.load(x_ptr + r[:, None] * row_stride + c[None, :], mask=inside, other=0.0)
    tl.store(out_ptr + c[:, None] * rows + r[None, :], tl.trans(tile), mask=tl.trans(inside))


def transpose(x):
    out = x.new_empty(x.shape[::-1])
    k[(triton.cdiv(x.shape[0], 32) * triton.cdiv(x.shape[1], 32),)](x, out, *x.shape, x.stride(0), 32)
    return out
