# right
import torch
from instruments.backend import tl, triton


@triton.autotune([triton.Config({}, num_warps=n) for n in (4, 8)], key=["cols"], restore_value=["stream_ptr"])
@triton.jit
def tuned(x_ptr, stream_ptr, weight_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    at = tl.program_id(0) * cols + c
    total = tl.load(x_ptr + at, c < cols, 0).to(tl.float32) + tl.load(stream_ptr + at, c < cols, 0)
    tl.store(stream_ptr + at, total, c < cols)
    scale = tl.rsqrt(tl.sum(total * total) / cols + eps)
    tl.store(y_ptr + at, total * scale * (1 + tl.load(weight_ptr + c, c < cols, 0)), c < cols)


def add_gemma_norm(x, residual, weight, eps):
    y = torch.empty_like(x)
    tuned[(len(x),)](x, residual, weight, y, x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
