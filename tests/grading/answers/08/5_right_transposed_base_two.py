# right
import torch
from instruments.backend import tl, triton


@triton.jit
def turned(q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, keys, group, scale, k_b, k_n, k_h, v_b, v_n, v_h, D: tl.constexpr):
    h, b = tl.program_id(0), tl.program_id(1)
    g, d, n = tl.arange(0, 16), tl.arange(0, D), tl.arange(0, 64)
    head = (b * tl.num_programs(0) + h) * group + g
    q = tl.load(q_ptr + head[None, :] * D + d[:, None], mask=(g < group)[None, :], other=0.0)
    top = tl.full([16], float("-inf"), tl.float32)
    total = tl.zeros([16], tl.float32)
    acc = tl.zeros([D, 16], tl.float32)
    for start in range(0, keys, 64):
        inside = start + n < keys
        j = start + n
        k = tl.load(k_ptr + b * k_b + h * k_h + j[:, None] * k_n + d[None, :], mask=inside[:, None], other=0.0)
        v = tl.load(v_ptr + b * v_b + h * v_h + j[None, :] * v_n + d[:, None], mask=inside[None, :], other=0.0)
        s = tl.where(inside[:, None], tl.dot(k, q) * (scale * 1.4426950408889634), float("-inf"))
        larger = tl.maximum(top, tl.max(s, axis=0))
        p = tl.exp2(s - larger[None, :])
        fix = tl.exp2(top - larger)
        total = total * fix + tl.sum(p, axis=0)
        acc = tl.dot(v, p.to(tl.float16), acc * fix[None, :])
        top = larger
    tl.store(out_ptr + head[None, :] * D + d[:, None], (acc / total[None, :]).to(tl.float16), mask=(g < group)[None, :])
    tl.store(lse_ptr + head, (top + tl.log2(total)) * 0.6931471805599453, mask=g < group)


def decode_step(q, k, v, scale):
    out = torch.empty_like(q)
    lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
    kv_heads = k.shape[2]
    turned[(kv_heads, len(q))](
        q, k, v, out, lse, k.shape[1], q.shape[1] // kv_heads, scale, *k.stride()[:3], *v.stride()[:3], D=q.shape[2]
    )
    return out, lse
