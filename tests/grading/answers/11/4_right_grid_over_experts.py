# right
import torch
from instruments.backend import tl, triton


@triton.jit
def each(x, w, b, offsets, y, N, K, stride, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    e = tl.program_id(2)
    begin, end = tl.load(offsets + e), tl.load(offsets + e + 1)
    m = begin + tl.program_id(0) * BM + tl.arange(0, BM)
    if begin + tl.program_id(0) * BM < end:
        n = tl.program_id(1) * BN + tl.arange(0, BN)
        total = tl.zeros((BN, BM), tl.float32)
        for k0 in range(tl.cdiv(K, BK)):
            k = k0 * BK + tl.arange(0, BK)
            xs = tl.load(x + m[None, :].to(tl.int64) * stride + k[:, None], (m[None, :] < end) & (k[:, None] < K), 0.0)
            ws = tl.load(w + (e * N + n[:, None]) * K + k[None, :], (n < N)[:, None] & (k < K)[None, :], 0.0)
            total += tl.dot(ws, xs)
        total += tl.load(b + e * N + n, n < N, 0.0)[:, None]
        total = tl.where(total > 0, total * total, 0.0)
        tl.store(y + m[None, :] * N + n[:, None], total.to(y.dtype.element_ty), (m[None, :] < end) & (n[:, None] < N))


def grouped_linear(x, weight, bias, offsets):
    E, N, K = weight.shape
    y = x.new_empty(len(x), N)
    each[(triton.cdiv(len(x), 16), triton.cdiv(N, 32), E)](x, weight, bias, offsets, y, N, K, x.stride(0), 16, 32, 16)
    return y
