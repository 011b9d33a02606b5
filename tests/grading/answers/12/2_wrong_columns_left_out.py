# wrong, unwritten: Store all columns of every bag
import torch

from instruments.backend import tl, triton


@triton.jit
def bag_kernel(table_ptr, indices_ptr, offsets_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    bag = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    first = tl.load(offsets_ptr + bag)
    last = tl.load(offsets_ptr + bag + 1)
    acc = tl.zeros((BLOCK,), tl.float32)
    for i in range(first, last):
        row = tl.load(indices_ptr + i)
        acc += tl.load(table_ptr + row * cols + c, mask=c < cols, other=0.0).to(tl.float32)
    mean = acc / tl.maximum(last - first, 1).to(tl.float32)
    tl.store(y_ptr + bag * cols + c, mean.to(y_ptr.dtype.element_ty), mask=c < cols)


def mean_bag(table, indices, offsets):
    bags, cols = offsets.numel() - 1, table.shape[1]
    y = torch.empty((bags, cols), dtype=table.dtype, device=table.device)
    bag_kernel[(bags,)](table, indices, offsets, y, cols, 256)
    return y
