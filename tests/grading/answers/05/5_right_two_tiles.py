# right
import torch
from instruments.backend import tl, triton


@triton.jit
def fused(x_ptr, stream_ptr, weight_ptr, y_ptr, cols: tl.constexpr, eps: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * cols + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < cols
    stream = tl.load(stream_ptr + offsets, inside, 0.0)
    stream += tl.load(x_ptr + offsets, inside, 0.0)
    tl.store(stream_ptr + offsets, stream, inside)
    y = stream / tl.sqrt(tl.sum(stream * stream, 0) / cols + eps)
    y = tl.fma(y, tl.load(weight_ptr + tl.arange(0, BLOCK), inside, 0.0), y)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), inside)


def add_gemma_norm(x, residual, weight, eps):
    y = torch.zeros_like(x)
    fused[x.shape[:1]](x, residual, weight, y, x.shape[1], eps, triton.next_power_of_2(x.shape[1]))
    return y
