# wrong, values: the fp32 bias
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
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        kk = k + ks
        a = tl.load(
            x_ptr + rows[:, None].to(tl.int64) * x_stride + kk[None, :],
            mask=(rows[:, None] < M) & (kk[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            weight_ptr + cols[None, :].to(tl.int64) * K + kk[:, None],
            mask=(cols[None, :] < N) & (kk[:, None] < K),
            other=0.0,
        )
        acc = tl.dot(a, b, acc)
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float16)
    z = tl.maximum(acc + bias[None, :], 0.0)
    y = scale * z * z
    tl.store(
        y_ptr + rows[:, None].to(tl.int64) * N + cols[None, :],
        y.to(tl.float16),
        mask=(rows[:, None] < M) & (cols[None, :] < N),
    )


def squared_relu_linear(x, weight, bias, scale):
    M, K = x.shape
    N = weight.shape[0]
    y = torch.empty((M, N), dtype=torch.float16, device=x.device)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    squared_relu_kernel[grid](
        x, weight, bias, y, M, N, K, x.stride(0), scale, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, num_warps=4, num_stages=4
    )
    return y
