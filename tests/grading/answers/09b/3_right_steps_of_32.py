# right
import torch
from instruments.backend import tl, triton


@triton.jit
def steps(x_ptr, w_ptr, xs_ptr, ws_ptr, b_ptr, y_ptr, M, N, K, xr, wr, xsr, groups, BM: tl.constexpr, BN: tl.constexpr):
    across = tl.cdiv(N, BN)
    m = tl.program_id(0) // across * BM + tl.arange(0, BM)
    stripe = tl.program_id(0) % across
    n, k = stripe * BN + tl.arange(0, BN), tl.arange(0, 32)
    x_at = x_ptr + m.to(tl.int64)[:, None] * xr + k[None, :]
    w_at = w_ptr + n.to(tl.int64)[:, None] * wr + k[None, :]
    acc = tl.broadcast_to(tl.load(b_ptr + n, n < N, 0.0)[None, :], (BM, BN))
    for step in range(tl.cdiv(K, 32)):
        rest = K - step * 32
        x = tl.load(x_at + step * 32, (m < M)[:, None] & (k < rest)[None, :], 0.0)
        w = tl.load(w_at + step * 32, (n < N)[:, None] & (k < rest)[None, :], 0.0)
        xs = tl.load(xs_ptr + step // 2 * xsr + m, m < M, 0.0)
        acc += (xs * tl.load(ws_ptr + stripe * groups + step // 2))[:, None] * tl.dot(x, tl.trans(w))
    tl.store(
        y_ptr + m.to(tl.int64)[:, None] * N + n[None, :],
        acc.to(y_ptr.dtype.element_ty),
        (m < M)[:, None] & (n < N)[None, :],
    )


def scaled_linear(x, w, x_scale, w_scale, bias):
    y = x.new_empty((x.shape[0], w.shape[0]), dtype=torch.bfloat16)
    (M, N), K = y.shape, x.shape[1]
    grid = (triton.cdiv(M, 64) * triton.cdiv(N, 32),)
    steps[grid](
        x,
        w,
        x_scale,
        w_scale,
        bias,
        y,
        M,
        N,
        K,
        x.stride(0),
        w.stride(0),
        x_scale.stride(0),
        w_scale.shape[1],
        BM=64,
        BN=32,
    )
    return y
