# right
import torch
from instruments.backend import tl, triton


@triton.jit
def tiles_kernel(x_ptr, a_ptr, b_ptr, y_ptr, stride, rows, cols, limit, M: tl.constexpr, N: tl.constexpr):
    r = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    c = tl.program_id(1) * N + tl.arange(0, N)[None, :]
    ok = (r < rows) & (c < cols)
    z = tl.load(x_ptr + r * stride + c, ok).to(tl.float32) * tl.load(a_ptr + c, c < cols) + tl.load(b_ptr + c, c < cols)
    z = (tl.abs(z) + z) * 0.5
    tl.store(y_ptr + r * cols + c, tl.minimum(limit, z * z), ok)


def fused_chain(x, scale, shift, limit):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(rows, 4), triton.cdiv(cols, 128))
    tiles_kernel[grid](x, scale, shift, y, x.stride(0), rows, cols, limit, 4, 128)
    return y
