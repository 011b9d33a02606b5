# wrong, values: round their product once
import torch

from instruments.backend import tl, triton


@triton.jit
def norm_swiglu_kernel(
    x_ptr,
    gate_ptr,
    up_ptr,
    y_ptr,
    M,
    N,
    K,
    x_stride,
    eps,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    g = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    u = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    sq = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        kk = k + ks
        a = tl.load(
            x_ptr + rows[:, None] * x_stride + kk[None, :], mask=(rows[:, None] < M) & (kk[None, :] < K), other=0.0
        )
        wmask = (cols[None, :] < N) & (kk[:, None] < K)
        woff = cols[None, :] * K + kk[:, None]
        g = tl.dot(a, tl.load(gate_ptr + woff, mask=wmask, other=0.0), g)
        u = tl.dot(a, tl.load(up_ptr + woff, mask=wmask, other=0.0), u)
        af = a.to(tl.float32)
        sq += tl.sum(af * af, axis=1)
    r = 1.0 / tl.sqrt(sq / K + eps)
    g = g * r[:, None]
    u = u * r[:, None]
    y = g / (1.0 + tl.exp(-g)) * u.to(tl.float16)
    tl.store(
        y_ptr + rows[:, None] * N + cols[None, :], y.to(tl.float16), mask=(rows[:, None] < M) & (cols[None, :] < N)
    )


def norm_swiglu(x, gate, up, eps):
    M, K = x.shape
    N = gate.shape[0]
    y = torch.empty((M, N), dtype=torch.float16, device=x.device)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    norm_swiglu_kernel[grid](x, gate, up, y, M, N, K, x.stride(0), eps, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    return y
