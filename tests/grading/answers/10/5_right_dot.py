# right
import torch

from instruments.backend import tl, triton


@triton.jit
def dot_kernel(w_ptr, x_ptr, y_ptr, N, K, T, stride):
    n, k, t = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, 64), tl.arange(0, 16)
    total = tl.zeros([16, 16], tl.float32)
    for start in range(0, K, 64):
        at = start + k
        w = tl.load(w_ptr + n[:, None] * stride + at[None, :], mask=(n[:, None] < N) & (at[None, :] < K), other=0.0)
        x = tl.load(x_ptr + t[None, :] * K + at[:, None], mask=(t[None, :] < T) & (at[:, None] < K), other=0.0)
        total = tl.dot(w, x, total)
    tl.store(y_ptr + n[:, None] * T + t[None, :], total.to(tl.float16), mask=(n[:, None] < N) & (t[None, :] < T))


def skinny(weight, x):
    rows, columns = weight.shape
    y = torch.empty((rows, x.shape[0]), dtype=torch.float16, device=x.device)
    dot_kernel[(triton.cdiv(rows, 16),)](weight, x, y, rows, columns, x.shape[0], weight.stride(0))
    return y
