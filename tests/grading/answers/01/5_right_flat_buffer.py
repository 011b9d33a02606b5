# right
import torch
from instruments.backend import tl, triton


@triton.jit
def scaled_add_kernel(x_ptr, y_ptr, out_ptr, alpha, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, alpha * x + tl.load(y_ptr + offsets, mask=mask), mask=mask)


def scaled_add(x, y, alpha):
    flat = torch.empty(y.numel(), dtype=torch.float32, device=y.device)
    scaled_add_kernel[(triton.cdiv(flat.numel(), 2048),)](x.view(-1), y.view(-1), flat, alpha, flat.numel(), BLOCK=2048)
    return flat.view(y.shape)
