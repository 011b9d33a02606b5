# wrong, mistake: Take the absolute value
import torch
from instruments.backend import tl, triton


@triton.jit
def wide_norm_kernel(x_ptr, weight_ptr, y_ptr, largest_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * x_row_stride
    y_row = y_ptr + row * cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + columns, mask=columns < cols, other=0.0).to(tl.float32)
        squares += x * x
    peaks = tl.zeros([BLOCK], dtype=tl.float32)
    scale = tl.rsqrt(tl.sum(squares) / cols + eps)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < cols
        x = tl.load(x_row + columns, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
        y = x * scale * (1 + weight)
        peaks = tl.maximum(peaks, y)
        tl.store(y_row + columns, y, mask=inside)
    tl.store(largest_ptr + row, tl.max(peaks))


def wide_norm(x, weight, eps, out_dtype):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=out_dtype, device=x.device)
    largest = torch.empty(rows, dtype=torch.float32, device=x.device)
    BLOCK = min(4096, triton.next_power_of_2(cols))
    wide_norm_kernel[(rows,)](x, weight, y, largest, x.stride(0), cols, eps, BLOCK=BLOCK, num_warps=8)
    return y, largest
