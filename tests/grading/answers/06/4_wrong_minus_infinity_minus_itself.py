# wrong, values: Whole tiles are -inf here
import torch

from instruments.backend import tl, triton


@triton.jit
def sink_softmax_kernel(x_ptr, sink_ptr, y_ptr, x_row_stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = -float("inf")
    l = 0.0
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row_stride + c, mask=c < cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(m, tl.max(x, axis=0))
        l = l * tl.exp(m - new) + tl.sum(tl.exp(x - new), axis=0)
        m = new
    l += tl.exp(tl.load(sink_ptr + row) - m)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_row_stride + c, mask=c < cols, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + row * cols + c, tl.exp(x - m) / l, mask=c < cols)


def sink_softmax(x, sink, out_dtype):
    y = torch.empty(x.shape, dtype=out_dtype, device=x.device)
    sink_softmax_kernel[(x.shape[0],)](x, sink, y, x.stride(0), x.shape[1], 1024)
    return y
