# right
import torch
from instruments.backend import tl, triton


@triton.jit
def tile(y, rows, gates, shared, out, H, ys, ss, K: tl.constexpr, KP: tl.constexpr, B: tl.constexpr):
    t, k, c = tl.program_id(0), tl.arange(0, KP), tl.program_id(1) * B + tl.arange(0, B)
    row = tl.load(rows + t * K + k, mask=k < K, other=-1)
    gate = tl.load(gates + t * K + k, mask=row >= 0, other=0.0)
    mask = (row >= 0)[:, None] & (c < H)[None, :]
    picked = tl.load(y + row[:, None].to(tl.int64) * ys + c[None, :], mask=mask, other=0.0).to(tl.float32)
    s = tl.load(shared + t * ss + c, mask=c < H, other=0.0).to(tl.float32)
    tl.store(out + t * H + c, s + tl.sum(picked * gate[:, None], axis=0), mask=c < H)


def combine(y, rows, gates, shared):
    out = shared.new_empty(shared.shape)
    (T, K), H = rows.shape, shared.shape[1]
    tile[(T, triton.cdiv(H, 128))](
        y, rows, gates, shared, out, H, y.stride(0), shared.stride(0), K, triton.next_power_of_2(K), 128
    )
    return out
