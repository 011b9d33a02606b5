# wrong, traffic: Load the row once
import torch
from instruments.backend import tl, triton


@triton.jit
def gemma_norm_kernel(x_ptr, weight_ptr, y_ptr, largest_ptr, x_row_stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside, other=0.0).to(tl.float32)
    norm = x * scale * (1 + weight)
    largest = tl.max(tl.abs(norm))
    y = norm * tl.where(largest > 0, 1 / largest, 0.0)
    tl.store(y_ptr + row * cols + columns, y, mask=inside)
    tl.store(largest_ptr + row, largest)


def gemma_norm(x, weight, eps):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    largest = torch.empty(rows, dtype=torch.float32, device=x.device)
    BLOCK = triton.next_power_of_2(cols)
    warps = min(16, max(1, BLOCK // 512))
    gemma_norm_kernel[(rows,)](x, weight, y, largest, x.stride(0), cols, eps, BLOCK=BLOCK, num_warps=warps)
    return y, largest
