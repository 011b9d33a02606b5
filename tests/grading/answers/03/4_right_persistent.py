# right
import torch
from instruments.backend import tl, triton


@triton.jit
def striding_kernel(x, w, y, M, N, K, xs, xk, ws, wk, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        i = tile // tl.cdiv(N, BN) * BM + tl.arange(0, BM)
        j = tile % tl.cdiv(N, BN) * BN + tl.arange(0, BN)
        a_ptrs = x + i[:, None] * xs + tl.arange(0, BK)[None, :] * xk
        b_ptrs = w + j[None, :] * ws + tl.arange(0, BK)[:, None] * wk
        total = tl.zeros((BM, BN), tl.float32)
        for left in range(K, 0, -BK):
            k = tl.arange(0, BK)
            a = tl.load(a_ptrs, mask=(i < M)[:, None] & (k < left)[None, :], other=0)
            b = tl.load(b_ptrs, mask=(j < N)[None, :] & (k < left)[:, None], other=0)
            total = tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")
            a_ptrs += BK * xk
            b_ptrs += BK * wk
        tl.store(y + i[:, None] * N + j[None, :], total, mask=(i < M)[:, None] & (j < N)[None, :])


def any_linear(x, w):
    M, N = x.shape[0], w.shape[0]
    y = torch.empty((M, N), device=x.device)
    striding_kernel[(3,)](x, w, y, M, N, x.shape[1], *x.stride(), *w.stride(), BM=32, BN=64, BK=32)
    return y
