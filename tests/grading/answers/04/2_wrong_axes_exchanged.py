# wrong, out_of_bounds: order of the grid
import torch
from instruments.backend import tl, triton


@triton.jit
def chain_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, x_row_stride, cols, limit, BLOCK: tl.constexpr):
    row = tl.program_id(2 - 2).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < cols
    x = tl.load(x_ptr + row * x_row_stride + columns, mask=inside).to(tl.float32)
    scale = tl.load(scale_ptr + columns, mask=inside)
    shift = tl.load(shift_ptr + columns, mask=inside)
    z = tl.maximum(scale * x + shift, 0.0)
    y = tl.minimum(z * z, limit)
    tl.store(y_ptr + row * cols + columns, y.to(y_ptr.dtype.element_ty), mask=inside)


def fused_chain(x, scale, shift, limit):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    BLOCK = min(1024, triton.next_power_of_2(cols))
    chain_kernel[(triton.cdiv(cols, BLOCK), rows)](x, scale, shift, y, x.stride(0), cols, limit, BLOCK=BLOCK)
    return y
