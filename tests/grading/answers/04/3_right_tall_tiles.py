# right
import torch
from instruments.backend import tl, triton


@triton.jit
def half_one_plus_tanh(u):
    return 1 / (1 + tl.exp2(u * -2.8853900817779268))


@triton.jit
def tall(x_ptr, bias_ptr, y_ptr, stride, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLS + tl.arange(0, COLS)
    ok = (r < rows)[:, None] & (c < cols)[None, :]
    x = tl.load(x_ptr + r[:, None].to(tl.int64) * stride + c[None, :], mask=ok, other=0.0)
    z = x.to(tl.float32) + tl.load(bias_ptr + c, mask=c < cols, other=0.0)[None, :]
    y = z * half_one_plus_tanh(0.7978845608028654 * z * (1 + 0.044715 * z * z))
    tl.store(y_ptr + r[:, None].to(tl.int64) * cols + c[None, :], y.to(y_ptr.dtype.element_ty), mask=ok)


def bias_gelu(x, bias):
    rows, cols = x.shape
    y = x.new_empty((rows, cols))
    tall[(triton.cdiv(rows, 64), triton.cdiv(cols, 64))](x, bias, y, x.stride(0), rows, cols, ROWS=64, COLS=64)
    return y
