# wrong, traffic: Read x once
import torch
from instruments.backend import tl, triton


@triton.jit
def statistics_kernel(x_ptr, mean_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        inside = start + columns < cols
        total += tl.load(x_ptr + row * x_row_stride + start + columns, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(total) / cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        inside = start + columns < cols
        x = tl.load(x_ptr + row * x_row_stride + start + columns, mask=inside, other=0.0).to(tl.float32)
        centered = tl.where(inside, x - mean, 0.0)
        squares += centered * centered
    tl.store(mean_ptr + row, mean)
    tl.store(scale_ptr + row, tl.rsqrt(tl.sum(squares) / cols + eps))


def statistics(x, eps):
    rows, cols = x.shape
    mean = torch.empty(rows, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    BLOCK = min(4096, triton.next_power_of_2(cols))
    statistics_kernel[(rows,)](x, mean, scale, x.stride(0), cols, eps, BLOCK=BLOCK, num_warps=8)
    return mean, scale
