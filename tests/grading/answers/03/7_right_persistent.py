# right
import torch
from instruments.backend import tl, triton


@triton.jit
def striding_kernel(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    for tile in range(tl.program_id(0), (M // BM) * (N // BN), tl.num_programs(0)):
        i = tile % (M // BM) * BM + tl.arange(0, BM)
        j = tile // (M // BM) * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)
            total = tl.dot(tl.load(x + i[:, None] * K + k), tl.load(w + j * K + k[:, None]), total)
        tl.store(y + i[:, None] * N + j, total.to(y.dtype.element_ty))


def fast_linear(x, w):
    M, N = x.shape[0], w.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    striding_kernel[(20,)](x, w, y, M, N, x.shape[1], BM=256, BN=128, BK=32, num_warps=8)
    return y
