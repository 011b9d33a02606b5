# wrong, mistake: the sink was left out of the sum
import torch
from instruments.backend import tl, triton


@triton.jit
def sink_softmax_kernel(x_ptr, sink_ptr, y_ptr, x_row_stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # int64: row * stride may pass 2^31
    x_row = x_ptr + row * x_row_stride
    y_row = y_ptr + row * cols
    m = tl.load(sink_ptr + row)  # the sink is the first logit of the row,
    l = 0.0  # and exp(sink - m) is 1
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + columns, mask=columns < cols, other=float("-inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x))
        l = l * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new))
        m = m_new
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < cols
        x = tl.load(x_row + columns, mask=inside, other=float("-inf")).to(tl.float32)
        tl.store(y_row + columns, tl.exp(x - m) / l, mask=inside)  # cast to y's dtype by the store


def sink_softmax(x, sink, out_dtype):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    BLOCK = min(4096, triton.next_power_of_2(cols))
    sink_softmax_kernel[(rows,)](x, sink, y, x.stride(0), cols, BLOCK=BLOCK, num_warps=8)
    return y
