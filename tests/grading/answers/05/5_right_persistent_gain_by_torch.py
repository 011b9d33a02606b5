# right
import torch
from instruments.backend import tl, triton


@triton.jit
def walk_rows(x_ptr, stream_ptr, gain_ptr, y_ptr, rows, cols, eps, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    gain = tl.load(gain_ptr + c, mask=c < cols, other=0.0)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        at = row.to(tl.int64) * cols + c
        total = tl.load(stream_ptr + at, mask=c < cols, other=0.0) + tl.load(x_ptr + at, mask=c < cols, other=0.0)
        tl.store(stream_ptr + at, total, mask=c < cols)
        scale = tl.rsqrt(tl.sum(total * total) / cols + eps)
        tl.store(y_ptr + at, (scale * total * gain).to(y_ptr.dtype.element_ty), mask=c < cols)


def add_gemma_norm(x, residual, weight, eps):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    walk_rows[(min(3, len(x)),)](
        x, residual, torch.ones_like(weight) + weight, y, *x.shape, eps, BLOCK=triton.next_power_of_2(x.shape[1])
    )
    return y
