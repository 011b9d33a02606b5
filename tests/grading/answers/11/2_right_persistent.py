# right
import torch
from instruments.backend import tl, triton


@triton.jit
def persistent(x, router, bias, experts, gates, tokens, hidden, many, stride, scale, k: tl.constexpr, W: tl.constexpr):
    e = tl.arange(0, W)
    for tile in range(tl.program_id(0), tl.cdiv(tokens, 32), tl.num_programs(0)):
        t = (tile * 32 + tl.arange(0, 32)).to(tl.int64)
        z = tl.zeros((W, 32), dtype=tl.float32)  # the logits, transposed
        for h0 in range(0, tl.cdiv(hidden, 32)):
            h = h0 * 32 + tl.arange(0, 32)
            a = tl.load(
                x + t[None, :] * stride + h[:, None], mask=(t < tokens)[None, :] & (h < hidden)[:, None], other=0
            )
            w = tl.load(
                router + e[:, None] * hidden + h[None, :], mask=(e[:, None] < many) & (h[None, :] < hidden), other=0
            )
            z += tl.dot(w, a)
        score = tl.sigmoid(z)
        b = tl.load(bias + e, mask=e < many, other=-1e30)
        free = tl.where(e < many, 1, 0)[:, None] + tl.zeros((W, 32), tl.int32)
        total = tl.zeros((32,), tl.float32)
        for i in tl.static_range(k):
            best = tl.argmax(tl.where(free == 1, score + b[:, None], -1e30), axis=0)
            hit = e[:, None] == best[None, :]
            g = tl.sum(tl.where(hit, score, 0.0), axis=0)
            total += g
            free = tl.where(hit, 0, free)
            tl.store(experts + t * k + i, best, mask=t < tokens)
        free = tl.where((e < many)[:, None], 1, free * 0)
        for i in tl.static_range(k):
            best = tl.argmax(tl.where(free == 1, score + b[:, None], -1e30), axis=0)
            hit = e[:, None] == best[None, :]
            tl.store(gates + t * k + i, scale * tl.sum(tl.where(hit, score, 0.0), axis=0) / total, mask=t < tokens)
            free = tl.where(hit, 0, free)


def route(x, router, bias, top_k, scale):
    experts = torch.zeros((x.shape[0], top_k), dtype=torch.int32, device=x.device)
    gates = torch.empty_like(experts, dtype=torch.float32)
    persistent[(min(132, triton.cdiv(x.shape[0], 32)),)](
        x,
        router,
        bias,
        experts,
        gates,
        *x.shape,
        len(router),
        x.stride(0),
        scale,
        k=top_k,
        W=max(16, triton.next_power_of_2(len(router))),
    )
    return experts, gates
