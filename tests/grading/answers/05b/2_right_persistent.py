# right
import torch
from instruments.backend import tl, triton


@triton.jit
def walk(x_ptr, y_ptr, mean_ptr, scale_ptr, stride, rows, cols, eps, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    while row < rows:
        x = tl.load(x_ptr + row * stride + columns, mask=columns < cols, other=0.0).to(tl.float32)
        mean = tl.sum(x) / cols
        away = x - mean
        squares = tl.sum(tl.where(columns < cols, away * away, 0.0))
        scale = tl.rsqrt(squares / cols + eps)
        tl.store(y_ptr + row * cols + columns, away * scale, mask=columns < cols)
        tl.store(mean_ptr + row, mean)
        tl.store(scale_ptr + row, scale)
        row += tl.num_programs(0)


def normalise(x, eps):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    mean, scale = (torch.empty(rows, device=x.device) for _ in range(2))
    walk[(min(3, rows),)](x, y, mean, scale, x.stride(0), rows, cols, eps, BLOCK=triton.next_power_of_2(cols))
    return [y, mean, scale]
