# right
import torch
from instruments.backend import tl, triton


def backward_tiles(q, k, v, sink, out, lse, dout, scale, block):
    Q, G = q.to(torch.float32), dout.to(torch.float32)
    delta = torch.einsum("hqd,hqd->hq", G, out.to(torch.float32))
    dq, dk, dv = torch.zeros(q.shape, device=q.device), torch.zeros_like(k), torch.zeros_like(v)
    for end in range(k.shape[1], 0, -block):
        start = max(0, end - block)
        K, V = k[:, start:end].to(torch.float32), v[:, start:end].to(torch.float32)
        weights = (torch.einsum("hqd,hkd->hqk", Q, K) * scale - lse.unsqueeze(-1)).exp()
        back = weights * scale * (torch.einsum("hqd,hkd->hqk", G, V) - delta.unsqueeze(-1))
        dq += torch.einsum("hqk,hkd->hqd", back, K)
        dk[:, start:end] = torch.einsum("hqk,hqd->hkd", back, Q)
        dv[:, start:end] = torch.einsum("hqk,hqd->hkd", weights, G)
    return dq.to(q.dtype), dk, dv, (sink[:, None] - lse).exp().mul(delta).sum(1).neg()
