# right
import torch

from instruments.backend import tl, triton


@triton.jit
def tokens_kernel(w_ptr, x_ptr, y_ptr, N, K, T, stride):
    n, k, t = tl.program_id(0) * 4 + tl.arange(0, 4), tl.arange(0, 64), tl.arange(0, 4)
    total = tl.zeros([4, 4], tl.float32)
    for step in range(tl.cdiv(K, 64)):
        at = step * 64 + k
        w = tl.load(w_ptr + n[:, None] * stride + at[None, :], mask=(n[:, None] < N) & (at[None, :] < K), other=0)
        x = tl.load(x_ptr + t[:, None] * K + at[None, :], mask=(t[:, None] < T) & (at[None, :] < K), other=0)
        total += tl.sum(w.to(tl.float32)[:, None, :] * x.to(tl.float32)[None, :, :], axis=2)
    tl.store(y_ptr + n[:, None] * T + t[None, :], total.to(tl.float16), mask=(n[:, None] < N) & (t[None, :] < T))


def skinny(weight, x):
    y = weight.new_empty(weight.shape[0], x.shape[0])
    tokens_kernel[(triton.cdiv(len(y), 4),)](weight, x, y, len(y), x.shape[1], len(x), weight.stride(0))
    return y
