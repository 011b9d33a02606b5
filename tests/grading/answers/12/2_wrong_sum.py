# wrong, mistake: Divide by the number of indices
import torch

from instruments.backend import tl, triton


@triton.jit
def bag_kernel(table_ptr, indices_ptr, offsets_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    bag = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    first = tl.load(offsets_ptr + bag)
    end = tl.load(offsets_ptr + bag + 1)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for at in range(first, end):
        index = tl.load(indices_ptr + at)
        total += tl.load(table_ptr + index * cols + col, mask=col < cols, other=0.0).to(tl.float32)
    mean = total  # zeros stay zeros
    tl.store(y_ptr + bag * cols + col, mean.to(y_ptr.dtype.element_ty), mask=col < cols)


def mean_bag(table, indices, offsets):
    bags, cols = offsets.shape[0] - 1, table.shape[1]
    y = torch.empty(bags, cols, dtype=table.dtype, device=table.device)
    bag_kernel[(bags,)](table, indices, offsets, y, cols, BLOCK=triton.next_power_of_2(cols))
    return y
