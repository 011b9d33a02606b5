# wrong, mistake: 0 where z = acc + bias is negative
import torch

from instruments.backend import tl, triton


@triton.jit
def squared_relu_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    M,
    N,
    K,
    x_stride,
    scale,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    tiles_n = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    r = (pid // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = (pid % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        kk = start + tl.arange(0, BLOCK_K)
        xt = tl.load(x_ptr + r[:, None] * x_stride + kk[None, :], mask=(r[:, None] < M) & (kk[None, :] < K), other=0.0)
        wt = tl.load(weight_ptr + c[None, :] * K + kk[:, None], mask=(c[None, :] < N) & (kk[:, None] < K), other=0.0)
        acc += tl.dot(xt, wt)
    b = tl.load(bias_ptr + c, mask=c < N, other=0.0)
    z = acc + b[None, :]
    out = scale * (z * z)
    tl.store(
        y_ptr + r[:, None] * N + c[None, :], out.to(y_ptr.dtype.element_ty), mask=(r[:, None] < M) & (c[None, :] < N)
    )


def squared_relu_linear(x, weight, bias, scale):
    M, K = x.shape
    N = weight.shape[0]
    y = torch.empty((M, N), dtype=torch.float16, device=x.device)
    BM, BN, BK = 64, 64, 32
    grid = (triton.cdiv(M, BM) * triton.cdiv(N, BN),)
    squared_relu_kernel[grid](x, weight, bias, y, M, N, K, x.stride(0), scale, BM, BN, BK)
    return y
