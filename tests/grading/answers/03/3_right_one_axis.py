# right
import torch
from instruments.backend import tl, triton


@triton.jit
def one_axis_kernel(x, w, y, M, N, K, xs, xk, ws, wk, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    i = (tl.program_id(0) // tiles_n) * BM + tl.arange(0, BM)[:, None]
    j = (tl.program_id(0) % tiles_n) * BN + tl.arange(0, BN)[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for block in range(tl.cdiv(K, BK)):
        k = block * BK + tl.arange(0, BK)[None, :]
        a = tl.load(x + i * xs + k * xk, (i < M) & (k < K), 0.0)
        b = tl.load(w + j * ws + k * wk, (j < N) & (k < K), 0.0)
        total += tl.dot(a, tl.trans(b), input_precision="ieee")
    j = tl.trans(j)
    tl.store(y + i * N + j, total, (i < M) & (j < N))


def linear(x, w):
    y = x.new_empty((x.shape[0], w.shape[0]), dtype=torch.float32)
    M, N = y.shape
    grid = (triton.cdiv(M, 64) * triton.cdiv(N, 32),)
    one_axis_kernel[grid](x, w, y, M, N, x.shape[1], *x.stride(), *w.stride(), 64, 32, 16)
    return y
