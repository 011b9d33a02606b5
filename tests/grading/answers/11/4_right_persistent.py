# right
import torch
from instruments.backend import tl, triton


@triton.jit
def walk(x_ptr, w_ptr, b_ptr, o_ptr, y_ptr, E, N, K, stride, BM: tl.constexpr, BN: tl.constexpr):
    wide = tl.cdiv(N, BN)
    passed = 0
    mine = tl.program_id(0)
    start = tl.load(o_ptr)
    for e in range(E):
        end = tl.load(o_ptr + e + 1)
        tiles = tl.cdiv(end - start, BM) * wide
        while mine < passed + tiles:
            here = mine - passed
            rows = start + here // wide * BM + tl.arange(0, BM)
            cols = here % wide * BN + tl.arange(0, BN)
            y = tl.zeros([BM, BN], tl.float32) + tl.load(b_ptr + e * N + cols, mask=cols < N, other=0.0)[None, :]
            for k in range(0, K, 32):
                ks = k + tl.arange(0, 32)
                a = tl.load(
                    x_ptr + rows[:, None] * stride + ks[None, :],
                    mask=(rows < end)[:, None] & (ks < K)[None, :],
                    other=0.0,
                )
                b = tl.load(
                    w_ptr + e * N * K + cols[:, None] * K + ks[None, :],
                    mask=(cols < N)[:, None] & (ks < K)[None, :],
                    other=0.0,
                )
                y = tl.dot(a, tl.trans(b), y)
            y = tl.maximum(y, 0)
            tl.store(y_ptr + rows[:, None] * N + cols[None, :], y * y, mask=(rows < end)[:, None] & (cols < N)[None, :])
            mine += tl.num_programs(0)
        passed += tiles
        start = end


def grouped_linear(x, weight, bias, offsets):
    y = torch.empty((x.shape[0], weight.shape[1]), device=x.device, dtype=x.dtype)
    walk[(20,)](x, weight, bias, offsets, y, *weight.shape, x.stride(0), BM=64, BN=64)
    return y
