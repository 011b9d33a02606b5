# wrong, mistake: rounded to 16 bits
import torch
from instruments.backend import tl, triton


@triton.jit
def add_gemma_norm_kernel(x_ptr, residual_ptr, weight_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < cols
        x = tl.load(x_ptr + row * cols + columns, mask=inside, other=0.0).to(tl.float32)
        total = x + tl.load(residual_ptr + row * cols + columns, mask=inside, other=0.0)
        total = total.to(tl.bfloat16).to(tl.float32)
        tl.store(residual_ptr + row * cols + columns, total, mask=inside)
        squares += total * total
    scale = tl.rsqrt(tl.sum(squares) / cols + eps)
    for start in range(0, cols, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < cols
        total = tl.load(residual_ptr + row * cols + columns, mask=inside, other=0.0)
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
        tl.store(y_ptr + row * cols + columns, total * scale * (1 + weight), mask=inside)


def add_gemma_norm(x, residual, weight, eps):
    rows, cols = x.shape
    y = torch.empty_like(x)
    BLOCK = min(2048, triton.next_power_of_2(cols))
    add_gemma_norm_kernel[(rows,)](x, residual, weight, y, cols, eps, BLOCK=BLOCK)
    return y
