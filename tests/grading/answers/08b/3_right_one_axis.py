# right
import torch
from instruments.backend import tl, triton


@triton.jit
def tile_of(ptr, batch, length, place, head, heads: tl.constexpr, d):
    return ptr + ((batch * length + place[:, None]) * heads + head) * d.shape[0] + d[None, :]


@triton.jit
def product(a, b):
    return tl.dot(a, tl.trans(b), input_precision="ieee")


@triton.jit
def one_axis(
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
    heads: tl.constexpr,
    scale,
    cap,
    D: tl.constexpr,
    B: tl.constexpr,
):
    tiles = tl.cdiv(keys, B)
    tile, head = tl.program_id(0) % tiles, tl.program_id(0) // tiles % heads
    batch = (tl.program_id(0) // tiles // heads).to(tl.int64)
    d, key = tl.arange(0, D), tile * B + tl.arange(0, B)
    k = tl.load(tile_of(k_ptr, batch, keys, key, head, heads, d), mask=key[:, None] < keys, other=0.0)
    v = tl.load(tile_of(v_ptr, batch, keys, key, head, heads, d), mask=key[:, None] < keys, other=0.0)
    dk, dv, start = tl.zeros_like(k), tl.zeros_like(v), 0
    while start < queries:
        row = start + tl.arange(0, 16)
        q = tl.load(tile_of(q_ptr, batch, queries, row, head, heads, d), mask=row[:, None] < queries, other=0.0)
        dout = tl.load(tile_of(dout_ptr, batch, queries, row, head, heads, d), mask=row[:, None] < queries, other=0.0)
        line = (batch * heads + head) * queries + row
        lse = tl.load(lse_ptr + line, mask=row < queries, other=0.0)
        e = tl.exp(-2 * scale / cap * product(k, q))
        s = cap * (1 - e) / (1 + e)
        p = tl.where(row[None, :] < queries, tl.exp(s - lse[None, :]), 0.0)
        ds = p * (product(v, dout) - tl.load(delta_ptr + line, mask=row < queries, other=0.0)[None, :])
        ds *= scale * 4 * e / ((1 + e) * (1 + e))
        dv += tl.dot(p, dout, input_precision="ieee")
        dk += tl.dot(ds, q, input_precision="ieee")
        start += 16
    tl.store(tile_of(dk_ptr, batch, keys, key, head, heads, d), dk, mask=key[:, None] < keys)
    tl.store(tile_of(dv_ptr, batch, keys, key, head, heads, d), dv, mask=key[:, None] < keys)


def key_gradients(q, k, v, dout, lse, delta, scale, cap):
    batch, keys, heads, head_dim = k.shape
    dk, dv = torch.empty_like(k), torch.empty_like(k)
    one_axis[(triton.cdiv(keys, 32) * batch * heads,)](
        q, k, v, dout, lse, delta, dk, dv, q.shape[1], keys, heads, scale, cap, head_dim, 32
    )
    return dk, dv
