# right
import torch
from instruments.backend import tl, triton


@triton.jit
def walk(x_ptr, gain_ptr, y_ptr, largest_ptr, stride, rows, cols, eps, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    gain = tl.load(gain_ptr + columns, mask=inside, other=0.0)
    row = tl.program_id(0)
    while row < rows:
        x = tl.load(x_ptr + row * stride + columns, mask=inside, other=0.0)
        x = x.to(tl.float32)
        mean = tl.sum(x * x) / cols
        scale = tl.math.rsqrt(mean + eps)
        largest = tl.max(tl.abs(x * gain))  # of the norm without its scale, which the division takes out of y
        tl.store(largest_ptr + row, largest * scale)
        tl.store(y_ptr + row * cols + columns, x * gain / tl.where(largest == 0, 1.0, largest), mask=inside)
        row += tl.num_programs(0)


def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y = torch.empty((rows, cols), device=x.device)
    largest = torch.empty((rows,), device=x.device)
    walk[(min(2, rows),)](x, weight + 1, y, largest, x.stride(0), rows, cols, eps, BLOCK=triton.next_power_of_2(cols))
    return [y, largest]
