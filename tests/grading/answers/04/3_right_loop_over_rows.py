# right
import torch
from instruments.backend import tl, triton


@triton.jit
def columns_kernel(x_ptr, bias_ptr, y_ptr, stride, rows, cols, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bias = tl.load(bias_ptr + c, c < cols, 0)
    for row in range(rows):
        z = tl.load(x_ptr + row * stride + c, c < cols, 0).to(tl.float32) + bias
        u = 0.7978845608028654 * (z + 0.044715 * z * z * z)
        tl.store(y_ptr + row * cols + c, z / (1 + tl.exp(-2 * u)), c < cols)


def bias_gelu(x, bias):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    columns_kernel[(triton.cdiv(x.shape[1], 128),)](x, bias, y, x.stride(0), *x.shape, BLOCK=128)
    return y
