# wrong, traffic: y is stored once and never read
import torch

from instruments.backend import tl, triton


@triton.jit
def layer_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, M, N, K, x_stride, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    acc = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    for start in range(0, K, 16):
        k = start + tl.arange(0, 16)
        x = tl.load(x_ptr + row * x_stride + k[None, :], mask=(row < M) & (k[None, :] < K), other=0.0)
        weight = tl.load(weight_ptr + col * K + k[:, None], mask=(col < N) & (k[:, None] < K), other=0.0)
        acc += tl.dot(x, weight)
    y = acc
    tl.store(y_ptr + row * N + col, y, mask=(row < M) & (col < N))


@triton.jit
def activate_kernel(z_ptr, bias_ptr, y_ptr, size, N, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(z_ptr + at, mask=at < size, other=0.0)
    z = tl.maximum(z + tl.load(bias_ptr + at % N, mask=at < size, other=0.0), 0.0)
    tl.store(y_ptr + at, (scale * z * z).to(tl.float16), mask=at < size)


def squared_relu_linear(x, weight, bias, scale):
    (M, K), N = x.shape, weight.shape[0]
    y = torch.empty(M, N, dtype=torch.float16, device=x.device)
    z = torch.empty(M, N, dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    layer_kernel[grid](x, weight, bias, z, M, N, K, x.stride(0), scale, BLOCK=32)
    activate_kernel[(triton.cdiv(M * N, 64),)](z, bias, y, M * N, N, scale, BLOCK=64)
    return y
