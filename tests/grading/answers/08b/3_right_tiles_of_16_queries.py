# right
import torch
from instruments.backend import tl, triton


@triton.jit
def walk(
    q_ptr,
    k_ptr,
    v_ptr,
    g_ptr,
    lse_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
    Q,
    K,
    H,
    scale,
    cap,
    D: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
):
    h, b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    j, d = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, D)
    at = ((b * K + j[:, None]) * H + h) * D + d[None, :]
    k, v = tl.load(k_ptr + at, j[:, None] < K, 0.0), tl.load(v_ptr + at, j[:, None] < K, 0.0)
    dk, dv = tl.zeros([N, D], tl.float32), tl.zeros([N, D], tl.float32)
    for start in range(0, Q, M):
        i = start + tl.arange(0, M)
        ok = i < Q
        q = tl.load(q_ptr + ((b * Q + i[:, None]) * H + h) * D + d[None, :], ok[:, None], 0.0)
        g = tl.load(g_ptr + ((b * Q + i[:, None]) * H + h) * D + d[None, :], ok[:, None], 0.0)
        lse = tl.load(lse_ptr + (b * H + h) * Q + i, ok, float("inf"))
        delta = tl.load(delta_ptr + (b * H + h) * Q + i, ok, 0.0)
        t = 2 * tl.sigmoid(tl.dot(k, tl.trans(q), input_precision="ieee") * (2 * scale / cap)) - 1
        p = tl.exp(cap * t - lse[None, :])
        ds = p * (tl.dot(v, tl.trans(g), input_precision="ieee") - delta[None, :]) * (1 - t) * (1 + t)
        dv = tl.dot(p, g, dv, input_precision="ieee")
        dk = tl.dot(ds, q, dk, input_precision="ieee")
    tl.store(dk_ptr + at, dk * scale, j[:, None] < K)
    tl.store(dv_ptr + at, dv, j[:, None] < K)


def key_gradients(q, k, v, dout, lse, delta, scale, cap):
    (b, Q, H, D), K = q.shape, k.shape[1]
    dk, dv = torch.zeros(k.shape, device=k.device), torch.zeros(k.shape, device=k.device)
    walk[(triton.cdiv(K, 32), H, b)](q, k, v, dout, lse, delta, dk, dv, Q, K, H, scale, cap, D=D, M=16, N=32)
    return [dk, dv]
