# right
import torch
from instruments.backend import tl, triton


@triton.jit
def statistics_kernel(x_ptr, mean_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    """Welford's update in each lane over its own columns; the lanes are merged once, at the end."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    count = tl.zeros([BLOCK], tl.float32)
    mean = tl.zeros([BLOCK], tl.float32)
    deviations = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        inside = start + lanes < cols
        x = tl.load(x_ptr + row * x_row_stride + start + lanes, mask=inside, other=0.0).to(tl.float32)
        count += tl.where(inside, 1.0, 0.0)
        apart = x - mean
        mean += tl.where(inside, apart / tl.maximum(count, 1.0), 0.0)
        deviations += tl.where(inside, apart * (x - mean), 0.0)
    row_mean = tl.sum(mean * count) / cols
    between = mean - row_mean
    tl.store(mean_ptr + row, row_mean)
    tl.store(scale_ptr + row, tl.rsqrt(tl.sum(deviations + count * between * between) / cols + eps))


def statistics(x, eps):
    rows, cols = x.shape
    mean = torch.empty(rows, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    statistics_kernel[(rows,)](x, mean, scale, x.stride(0), cols, eps, BLOCK=1024)
    return mean, scale
