# wrong, traffic: 128 x 128 at least
import torch
from instruments.backend import tl, triton


@triton.jit
def fast_linear_kernel(
    x_ptr, w_ptr, y_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    tiles_n = N // BLOCK_N
    row = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + row[:, None] * K + k[None, :]
    w_ptrs = w_ptr + col[None, :] * K + k[:, None]
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(x_ptrs + start), tl.load(w_ptrs + start), acc)
    tl.store(y_ptr + row[:, None] * N + col[None, :], acc.to(y_ptr.dtype.element_ty))


def fast_linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)
    fast_linear_kernel[((M // 64) * (N // 64),)](x, w, y, M, N, K, 64, 64, 64, num_warps=8)
    return y
