# wrong, traffic: tiles of 32 keys
import torch
from instruments.backend import tl, triton


@triton.jit
def key_gradients_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    dout_ptr,
    lse_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
    queries,
    keys,
    heads,
    scale,
    cap,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
):
    batch, head = tl.program_id(1).to(tl.int64) // heads, tl.program_id(1) % heads
    key, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, D)
    at = ((batch * keys + key[:, None]) * heads + head) * D + d[None, :]
    inside = key[:, None] < keys
    k = tl.load(k_ptr + at, mask=inside, other=0.0)
    v = tl.load(v_ptr + at, mask=inside, other=0.0)
    dk = tl.zeros([BLOCK, D], tl.float32)
    dv = tl.zeros([BLOCK, D], tl.float32)
    for start in range(0, queries, BLOCK):
        row = start + tl.arange(0, BLOCK)
        within = row < queries
        q_at = (batch * queries + row) * heads * D + head * D
        q = tl.load(q_ptr + q_at[:, None] + d[None, :], mask=within[:, None], other=0.0)
        dout = tl.load(dout_ptr + q_at[:, None] + d[None, :], mask=within[:, None], other=0.0)
        lse = tl.load(lse_ptr + tl.program_id(1) * queries + row, mask=within, other=0.0)
        delta = tl.load(delta_ptr + tl.program_id(1) * queries + row, mask=within, other=0.0)
        s = tl.dot(k, q.T, input_precision="ieee") * scale  # transposed: [keys, queries]
        s = cap * (2 * tl.sigmoid(2 * s / cap) - 1)
        p = tl.exp(s - lse[None, :])
        dv += tl.dot(p, dout, input_precision="ieee")  # dout is 0 beyond the last query
        dp = tl.dot(v, dout.T, input_precision="ieee")
        ds = p * (dp - delta[None, :]) * (1 - (s / cap) * (s / cap))
        dk += tl.dot(ds, q, input_precision="ieee") * scale
    tl.store(dk_ptr + at, dk, mask=inside)
    tl.store(dv_ptr + at, dv, mask=inside)


def key_gradients(q, k, v, dout, lse, delta, scale, cap):
    (batch, queries, heads, head_dim), keys = q.shape, k.shape[1]
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    key_gradients_kernel[(triton.cdiv(keys, 16), batch * heads)](
        q, k, v, dout, lse, delta, dk, dv, queries, keys, heads, scale, cap, D=head_dim, BLOCK=16
    )
    return dk, dv
