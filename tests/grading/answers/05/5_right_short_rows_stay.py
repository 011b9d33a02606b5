# right
import torch
from instruments.backend import tl, triton


@triton.jit
def keep(x_ptr, stream_ptr, weight_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    at = tl.program_id(0) * cols + c
    total = tl.load(x_ptr + at, c < cols, 0).to(tl.float32) + tl.load(stream_ptr + at, c < cols, 0)
    tl.store(stream_ptr + at, total, c < cols)
    scale = tl.rsqrt(tl.sum(total * total) / cols + eps)
    tl.store(y_ptr + at, total * scale * (1 + tl.load(weight_ptr + c, c < cols, 0)), c < cols)


@triton.jit
def walk(x_ptr, stream_ptr, weight_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0) * cols
    energy = 0.0
    for at in range(0, cols, BLOCK):
        c = at + tl.arange(0, BLOCK)
        total = tl.load(x_ptr + start + c, c < cols, 0).to(tl.float32) + tl.load(stream_ptr + start + c, c < cols, 0)
        tl.store(stream_ptr + start + c, total, c < cols)
        energy += tl.sum(total * total)
    scale = 1 / tl.sqrt(energy / cols + eps)
    for at in range(0, cols, BLOCK):
        c = at + tl.arange(0, BLOCK)
        total = tl.load(stream_ptr + start + c, c < cols, 0) * scale
        tl.store(y_ptr + start + c, total + total * tl.load(weight_ptr + c, c < cols, 0), c < cols)


def add_gemma_norm(x, residual, weight, eps):
    y, cols = torch.empty_like(x), x.shape[1]
    kernel, block = (keep, triton.next_power_of_2(cols)) if cols <= 4096 else (walk, 4096)
    kernel[(len(x),)](x, residual, weight, y, cols, eps, BLOCK=block)
    return y
