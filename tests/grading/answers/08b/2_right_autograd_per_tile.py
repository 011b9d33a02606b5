# right
import torch
from instruments.backend import tl, triton


def backward_tiles(q, k, v, sink, out, lse, dout, scale, block):
    dout, delta = dout.float(), (dout.float() * out.float()).sum(-1)
    dq, parts = torch.zeros(q.shape, device=q.device), []
    for keys, vals in zip(k.split(block, 1), v.split(block, 1)):
        a, b = (x.float().requires_grad_() for x in (q, keys))
        with torch.enable_grad():
            scores = torch.bmm(a, b.transpose(1, 2)) * scale
        p = torch.exp(scores.detach() - lse[:, :, None])
        dp = torch.bmm(dout, vals.float().transpose(1, 2))
        da, db = torch.autograd.grad(scores, (a, b), p * (dp - delta[..., None]))
        dq += da
        parts.append((db.half(), torch.bmm(p.transpose(1, 2), dout).half()))
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    for number, (a, b) in enumerate(parts):
        dk[:, number * block : (number + 1) * block], dv[:, number * block : (number + 1) * block] = a, b
    weight = torch.exp(sink[:, None] - lse)
    return dq.half(), dk, dv, -(weight * delta).sum(dim=1)
