# right
import torch
from instruments.backend import tl, triton


@triton.jit
def square(a):
    return a * a


@triton.jit
def stream(x_ptr, gain_ptr, y_ptr, most_ptr, row_stride, cols, eps, WIDTH: tl.constexpr):
    row, total = tl.program_id(0).to(tl.int64), 0.0
    for tile in range(tl.cdiv(cols, WIDTH)):
        c = tile * WIDTH + tl.arange(0, WIDTH)
        x = tl.load(x_ptr + row * row_stride + c, mask=c < cols, other=0.0)
        total += tl.sum(square(x.to(tl.float32)), axis=0)
    low, high = 0.0, 0.0
    scale = 1.0 / tl.sqrt_rn(total / cols + eps)
    for tile in range(tl.cdiv(cols, WIDTH)):
        c = tile * WIDTH + tl.arange(0, WIDTH)
        x = tl.load(x_ptr + row * row_stride + c, mask=c < cols, other=0.0).to(tl.float32)
        gain = tl.load(gain_ptr + c, mask=c < cols, other=0.0)
        y = x * gain * scale
        low, high = tl.minimum(low, tl.min(y)), tl.maximum(high, tl.max(y))
        tl.store(y_ptr + row * cols + c, y.to(y_ptr.dtype.element_ty), mask=c < cols)
    tl.store(most_ptr + row, tl.maximum(high, -low))


def wide_norm(x, weight, eps, out_dtype):
    gain = weight.clone().add_(1.0)
    y = x.new_empty(x.shape, dtype=out_dtype)
    most = x.new_empty(len(x), dtype=torch.float32)
    stream[(len(x), 1, 1)](x, gain, y, most, row_stride=x.stride(0), cols=x.shape[1], eps=eps, WIDTH=2048)
    return y, most
