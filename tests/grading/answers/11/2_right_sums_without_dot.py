# right
import torch
from instruments.backend import tl, triton


@triton.jit
def by_sums(
    x_ptr,
    w_ptr,
    b_ptr,
    e_ptr,
    g_ptr,
    T,
    H,
    stride,
    scale,
    E: tl.constexpr,
    K: tl.constexpr,
    EP: tl.constexpr,
    KP: tl.constexpr,
):
    t, e, k = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, EP), tl.arange(0, KP)
    logits = tl.zeros([16, EP], tl.float32)
    for start in tl.range(0, H, 8):
        h = start + tl.arange(0, 8)
        x = tl.load(x_ptr + t[:, None] * stride + h[None, :], (t < T)[:, None] & (h < H)[None, :], 0.0).to(tl.float32)
        w = tl.load(w_ptr + e[:, None] * H + h[None, :], (e < E)[:, None] & (h < H)[None, :], 0.0).to(tl.float32)
        logits += tl.sum(x[:, None, :] * w[None, :, :], axis=2)
    score = 1 / (1 + tl.exp(-logits))
    bias = tl.load(b_ptr + e, e < E, 0.0)
    left = tl.where((e < E)[None, :], score + bias[None, :], -float("inf"))
    experts, gates = tl.zeros([16, KP], tl.int32), tl.zeros([16, KP], tl.float32)
    for i in range(K):
        top = tl.max(left, axis=1)
        first = tl.min(tl.where(left == top[:, None], e[None, :], EP), axis=1)
        mine = e[None, :] == first[:, None]
        experts = tl.where(k[None, :] == i, first[:, None], experts)
        gates = tl.where(k[None, :] == i, tl.sum(tl.where(mine, score, 0.0), axis=1)[:, None], gates)
        left = tl.where(mine, -float("inf"), left)
    gates *= scale / tl.sum(gates, axis=1)[:, None]
    at, mask = t[:, None] * K + k[None, :], (t < T)[:, None] & (k < K)[None, :]
    tl.store(e_ptr + at, experts, mask)
    tl.store(g_ptr + at, gates, mask)


def route(x, router, bias, top_k, scale):
    (T, H), E = x.shape, router.shape[0]
    experts = x.new_empty((T, top_k), dtype=torch.int32)
    gates = x.new_empty((T, top_k), dtype=torch.float32)
    by_sums[((T + 15) // 16,)](
        x,
        router,
        bias,
        experts,
        gates,
        T,
        H,
        x.stride(0),
        scale,
        E,
        top_k,
        triton.next_power_of_2(E),
        triton.next_power_of_2(top_k),
    )
    return experts, gates
