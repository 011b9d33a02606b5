# right
import torch
from instruments.backend import tl, triton


@triton.jit
def per_element(x_ptr, sink_ptr, y_ptr, stride, cols, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, WIDTH)
    m = tl.full([WIDTH], -1e38, tl.float32)
    l = tl.zeros([WIDTH], tl.float32)
    for tile in tl.range(tl.cdiv(cols, WIDTH)):
        at = tile * WIDTH + c
        x = tl.load(x_ptr + row * stride + at, at < cols, -float("inf")).to(tl.float32)
        higher = tl.maximum(m, x)
        l = l * tl.exp2((m - higher) * 1.4426950408889634) + tl.exp2((x - higher) * 1.4426950408889634)
        m = higher
    sink = tl.load(sink_ptr + row)
    top = tl.maximum(tl.max(m, axis=0), sink)
    total = tl.sum(l * tl.exp(m - top), axis=0) + tl.exp(sink - top)
    for tile in tl.range(tl.cdiv(cols, WIDTH)):
        at = tile * WIDTH + c
        x = tl.load(x_ptr + row * stride + at, at < cols, 0).to(tl.float32)
        tl.store(y_ptr + row * cols + at, (tl.exp(x - top) * (1.0 / total)).to(y_ptr.dtype.element_ty), at < cols)


def sink_softmax(x, sink, out_dtype):
    y = x.new_empty(x.shape, dtype=out_dtype)
    per_element[(len(x),)](x, sink, y, x.stride(0), x.shape[1], WIDTH=1024)
    return y
