# right
import torch
from instruments.backend import tl, triton


@triton.jit
def by_sums(x_ptr, w_ptr, s_ptr, y_ptr, M: tl.constexpr, N, G, stride, R: tl.constexpr, P: tl.constexpr):
    n, i, m = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, 16), tl.arange(0, P)
    ok = n < N
    y = tl.zeros([R, P], tl.float32)
    for g in range(G):
        w = tl.load(w_ptr + n[:, None].to(tl.int64) * stride + g * 16 + i[None, :], ok[:, None], 0).to(tl.int32)
        s = tl.load(s_ptr + n * G + g, ok, 0.0).to(tl.float32)
        low, high = ((w & 0xF) - 8).to(tl.float32) * s[:, None], ((w >> 4) - 8).to(tl.float32) * s[:, None]
        for t in range(M):
            at = x_ptr + (t * G + g) * 32 + i
            part = tl.sum(low * tl.load(at).to(tl.float32)[None, :], 1)
            part += tl.sum(high * tl.load(at + 16).to(tl.float32)[None, :], 1)
            y += tl.where(m[None, :] == t, part[:, None], 0.0)
    tl.store(y_ptr + m[None, :] * N + n[:, None], y, ok[:, None] & (m < M)[None, :])


def q4_linear(x, packed, scales):
    M, N = x.shape[0], packed.shape[0]
    y = x.new_empty((M, N), dtype=torch.float32)
    by_sums[(triton.cdiv(N, 32),)](
        x, packed, scales, y, M, N, x.shape[1] // 32, packed.stride(0), 32, triton.next_power_of_2(M)
    )
    return y
