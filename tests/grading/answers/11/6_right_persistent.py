# right
import torch
from instruments.backend import tl, triton


@triton.jit
def walk(dy, x, offsets, dw, db, N, K, stride, tiles_n, tiles_k, total, T: tl.constexpr, R: tl.constexpr):
    for number in range(tl.program_id(0), total, tl.num_programs(0)):
        e, tile = number // (tiles_n * tiles_k), number % (tiles_n * tiles_k)
        n, k = tile // tiles_k * T + tl.arange(0, T)[:, None], tile % tiles_k * T + tl.arange(0, T)[None, :]
        acc, ones = tl.zeros([T, T], tl.float32), tl.zeros([T, 1], tl.float32)
        row, end = tl.load(offsets + e), tl.load(offsets + e + 1)
        while row < end:
            r = row + tl.arange(0, R)
            a = tl.load(dy + r[None, :] * N + n, (r[None, :] < end) & (n < N), 0.0)
            acc += tl.dot(a, tl.load(x + r[:, None] * stride + k, (r[:, None] < end) & (k < K), 0.0))
            ones += tl.sum(a.to(tl.float32), 1, keep_dims=True)
            row += R
        tl.store(dw + e * N * K + n * K + k, acc, (n < N) & (k < K))
        tl.store(db + e * N + n, ones, (n < N) & (tile % tiles_k == 0))


def expert_gradients(dy, x, offsets):
    E, (N, K) = offsets.shape[0] - 1, (dy.shape[1], x.shape[1])
    dw = torch.empty((E, N, K), dtype=torch.float32, device=dy.device)
    db = dw.new_empty((E, N))
    tiles = triton.cdiv(N, 64), triton.cdiv(K, 64)
    total = E * tiles[0] * tiles[1]
    walk[(min(total, 40),)](dy, x, offsets, dw, db, N, K, x.stride(0), *tiles, total, T=64, R=16)
    return dw, db
