# right
import torch
from instruments.backend import tl, triton


@triton.jit
def own_tanh(x_ptr, bias_ptr, y_ptr, stride, rows, cols, M: tl.constexpr, N: tl.constexpr):
    r = (tl.program_id(1) * M + tl.arange(0, M)[:, None]).to(tl.int64)
    c = tl.program_id(0) * N + tl.arange(0, N)[None, :]
    ok = (r < rows) & (c < cols)
    z = tl.load(x_ptr + r * stride + c, ok, 0).to(tl.float32) + tl.load(bias_ptr + c, c < cols, 0)
    e = tl.exp(-2 * 0.7978845608028654 * tl.abs(z + 0.044715 * z * z * z))
    half = tl.where(z >= 0, 1 / (1 + e), e / (1 + e))
    tl.store(y_ptr + r * cols + c, z * half, ok)


def bias_gelu(x, bias):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    own_tanh[lambda meta: (triton.cdiv(x.shape[1], meta["N"]), triton.cdiv(x.shape[0], meta["M"]))](
        x, bias, y, x.stride(0), *x.shape, M=32, N=32
    )
    return y
