# wrong, mistake: rounded to 16 bits before y was added
import torch
from instruments.backend import tl, triton


@triton.jit
def scaled_add_kernel(x_ptr, y_ptr, out_ptr, alpha, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, (alpha * x).to(x_ptr.dtype.element_ty) + y, mask=mask)


def scaled_add(x, y, alpha):
    out = torch.empty_like(y)
    size = y.numel()
    scaled_add_kernel[(triton.cdiv(size, 1024),)](x, y, out, alpha, size, BLOCK=1024)
    return out
