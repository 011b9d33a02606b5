# wrong, out_of_bounds: x.stride(0)
import torch
from instruments.backend import tl, triton


@triton.jit
def row_sum_max_kernel(x_ptr, sums_ptr, largest_ptr, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    largest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        mask = col < cols
        x = tl.load(x_ptr + row * row_stride + col, mask=mask, other=0.0).to(tl.float32)
        total += x
        largest = tl.maximum(largest, tl.where(mask, x, float("-inf")))
    tl.store(sums_ptr + row, tl.sum(total))
    tl.store(largest_ptr + row, tl.max(largest))


def row_sum_max(x):
    rows, cols = x.shape
    sums = torch.empty(rows, dtype=torch.float32, device=x.device)
    largest = torch.empty_like(sums)
    row_sum_max_kernel[(rows,)](x, sums, largest, cols, x.shape[1], BLOCK=2048, num_warps=8)
    return sums, largest
