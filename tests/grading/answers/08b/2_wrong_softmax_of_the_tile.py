# wrong, values
import torch
from instruments.backend import tl, triton


def backward_tiles(q, k, v, sink, out, lse, dout, scale, block):
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    q, dout = q.float(), dout.float()
    dq = torch.zeros_like(q)  # fp32 while it is added to
    delta = (dout * out).sum(dim=-1)  # [heads, queries]
    for start in range(0, k.shape[1], block):
        tile = slice(start, start + block)
        k_tile, v_tile = k[:, tile].float(), v[:, tile].float()
        p = torch.softmax(q @ k_tile.mT * scale, dim=-1)  # the forward's weights, once more
        dp = dout @ v_tile.mT
        ds = p * (dp - delta[..., None])
        dv[:, tile] = p.mT @ dout
        dk[:, tile] = ds.mT @ q * scale
        dq += ds @ k_tile * scale  # every tile of keys adds to dq
    dsink = -(torch.exp(sink[:, None] - lse) * delta).sum(dim=-1)
    return dq.half(), dk, dv, dsink
