# wrong, values: Accumulate in fp32 over all of K
import torch

from instruments.backend import tl, triton


@triton.jit
def fast_linear_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    pm, pn = tl.swizzle2d(
        tl.program_id(0) // (N // BLOCK_N), tl.program_id(0) % (N // BLOCK_N), M // BLOCK_M, N // BLOCK_N, GROUP_M
    )
    m = pm * BLOCK_M + tl.arange(0, BLOCK_M)
    n = pn * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k0 in range(0, K, BLOCK_K):
        x = tl.load(x_ptr + m[:, None] * K + (k0 + k)[None, :])
        w = tl.load(w_ptr + n[:, None] * K + (k0 + k)[None, :])
        acc = (acc + tl.dot(x, w.T)).to(y_ptr.dtype.element_ty).to(tl.float32)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(y_ptr.dtype.element_ty))


def fast_linear(x, w):
    M, K = x.shape
    N = w.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    fast_linear_kernel[(M // 128 * (N // 256),)](x, w, y, M, N, K, 128, 256, 64, 8, num_warps=8, num_stages=3)
    return y
