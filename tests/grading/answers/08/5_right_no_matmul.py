# right
import torch
from instruments.backend import tl, triton


@triton.jit
def by_sums(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    keys,
    scale,
    sb,
    sn,
    sh,
    G: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    N: tl.constexpr,
):
    pid = tl.program_id(0)
    b, h = pid // (H // G), pid % (H // G)
    g, d = tl.arange(0, P), tl.arange(0, D)
    q = tl.load(q_ptr + (b * H + h * G + g[:, None]) * D + d[None, :], g[:, None] < G, 0.0).to(tl.float32) * scale
    m, l, acc = tl.full([P], -1e30, tl.float32), tl.zeros([P], tl.float32), tl.zeros([P, D], tl.float32)
    for start in range(0, keys, N):
        j = start + tl.arange(0, N)
        k = tl.load(k_ptr + b * sb + h * sh + j[:, None] * sn + d[None, :], j[:, None] < keys, 0.0).to(tl.float32)
        v = tl.load(v_ptr + b * sb + h * sh + j[:, None] * sn + d[None, :], j[:, None] < keys, 0.0).to(tl.float32)
        s = tl.where(j[None, :] < keys, tl.sum(q[:, None, :] * k[None, :, :], axis=2), float("-inf"))
        new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - new[:, None])
        acc = acc * tl.exp(m - new)[:, None] + tl.sum(p[:, :, None] * v[None, :, :], axis=1)
        l = l * tl.exp(m - new) + tl.sum(p, axis=1)
        m = new
    tl.store(out_ptr + (b * H + h * G + g[:, None]) * D + d[None, :], acc / l[:, None], g[:, None] < G)
    tl.store(lse_ptr + b * H + h * G + g, m + tl.log(l), g < G)


def decode_step(q, k, v, scale):
    batch, heads, head_dim = q.shape
    group = heads // k.shape[2]
    out, lse = q.new_empty(q.shape), torch.empty((batch, heads), device=q.device)
    by_sums[(batch * k.shape[2],)](
        q, k, v, out, lse, k.shape[1], scale, *k.stride()[:3], group, heads, head_dim, triton.next_power_of_2(group), 16
    )
    return out, lse
