# wrong, values: then round once
import torch

from instruments.backend import tl, triton


@triton.jit
def bag_kernel(table_ptr, indices_ptr, offsets_ptr, weights_ptr, y_ptr, cols, padding, BLOCK: tl.constexpr):
    bag = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    first = tl.load(offsets_ptr + bag)
    end = tl.load(offsets_ptr + bag + 1)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    divisor = 0.0
    for at in range(first, end):
        index = tl.load(indices_ptr + at)
        counts = index != padding
        weight = tl.load(weights_ptr + at, mask=counts, other=0.0)
        row = tl.load(table_ptr + index * cols + col, mask=counts & (col < cols), other=0.0)
        total += weight * row.to(tl.float32)
        divisor += weight
    total = total.to(y_ptr.dtype.element_ty)
    mean = total / tl.where(divisor > 0, divisor, 1.0)  # zeros stay zeros
    tl.store(y_ptr + bag * cols + col, mean.to(y_ptr.dtype.element_ty), mask=col < cols)


def mean_bag(table, indices, offsets, weights, padding):
    bags, cols = offsets.shape[0] - 1, table.shape[1]
    y = torch.empty(bags, cols, dtype=table.dtype, device=table.device)
    BLOCK = triton.next_power_of_2(cols)
    bag_kernel[(bags,)](table, indices, offsets, weights, y, cols, padding, BLOCK=BLOCK)
    return y
