# right
import torch
from instruments.backend import tl, triton


@triton.jit
def square_kernel(x, w, y, N, K, BLOCK: tl.constexpr, DEEP: tl.constexpr):
    i = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[:, None]
    j = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for block in range(K // DEEP):
        k = block * DEEP + tl.arange(0, DEEP)[None, :]
        total += tl.dot(tl.load(x + i * K + k), tl.load(w + j * K + k).T)
    tl.store(y + i * N + j.T, total.to(y.dtype.element_ty))


def fast_linear(x, w):
    y = x.new_empty(x.shape[0], w.shape[0])
    M, N = y.shape
    square_kernel[(N // 128, M // 128)](x, w, y, N, x.shape[1], 128, 64, num_warps=8, num_stages=4)
    return y
