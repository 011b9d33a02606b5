# right
import torch
from instruments.backend import tl, triton


@triton.jit
def walk(x_ptr, a_ptr, b_ptr, y_ptr, stride, rows, cols, limit, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    a, b = tl.load(a_ptr + c, c < cols), tl.load(b_ptr + c, c < cols)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        z = tl.maximum(tl.load(x_ptr + row * stride + c, c < cols).to(tl.float32) * a + b, 0)
        tl.store(y_ptr + row * cols + c, tl.minimum(z * z, limit).to(y_ptr.dtype.element_ty), c < cols)


def fused_chain(x, scale, shift, limit):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    walk[(2,)](x, scale, shift, y, x.stride(0), *x.shape, limit, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
