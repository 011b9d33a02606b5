# wrong, mistake: lacks n * d**2
import torch
from instruments.backend import tl, triton


@triton.jit
def statistics_kernel(x_ptr, mean_ptr, scale_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mean = tl.zeros([BLOCK], dtype=tl.float32)  # a mean for each element of the tile
    deviations = tl.zeros([BLOCK], dtype=tl.float32)  # and its sum of squared deviations
    steps = 0.0
    for start in range(0, cols, BLOCK):
        inside = start + columns < cols
        x = tl.load(x_ptr + row * x_row_stride + start + columns, mask=inside, other=0.0).to(tl.float32)
        steps += 1.0
        delta = tl.where(inside, x - mean, 0.0)  # a masked element changes nothing
        mean += delta / steps
        deviations += delta * delta * ((steps - 1.0) / steps)
    count = tl.maximum(tl.cdiv(cols - columns, BLOCK), 0).to(tl.float32)
    row_mean = tl.sum(mean * count) / cols
    away = mean - row_mean
    variance = tl.sum(deviations) / cols
    tl.store(mean_ptr + row, row_mean)
    tl.store(scale_ptr + row, tl.rsqrt(variance + eps))


def statistics(x, eps):
    rows, cols = x.shape
    mean = torch.empty(rows, dtype=torch.float32, device=x.device)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    BLOCK = min(4096, triton.next_power_of_2(cols))
    statistics_kernel[(rows,)](x, mean, scale, x.stride(0), cols, eps, BLOCK=BLOCK, num_warps=8)
    return mean, scale
