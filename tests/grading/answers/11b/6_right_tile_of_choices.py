# right
import torch
from instruments.backend import tl, triton


@triton.jit
def tile(x, experts, place, starts, sent, local, H, xs, per_rank, K: tl.constexpr, KP: tl.constexpr, B: tl.constexpr):
    token, k, col = tl.program_id(0), tl.arange(0, KP), tl.program_id(1) * B + tl.arange(0, B)
    here = k < K
    expert = tl.load(experts + token * K + k, mask=here, other=0)
    first = tl.load(starts + expert // per_rank, mask=here, other=0)
    row = first + tl.load(place + token * K + k, mask=here, other=0)
    values = tl.load(x + token.to(tl.int64) * xs + col, mask=col < H, other=0.0)
    at = row[:, None].to(tl.int64) * H + col[None, :]
    tl.store(sent + at, tl.broadcast_to(values[None, :], (KP, B)), mask=here[:, None] & (col < H)[None, :])
    if tl.program_id(1) == 0:
        tl.store(local + row, expert % per_rank, mask=here)


def pack(x, experts, place, starts, per_rank):
    (T, K), H = experts.shape, x.shape[1]
    sent, local = x.new_empty(T * K, H), experts.new_empty(T * K)
    tile[(T, triton.cdiv(H, 128))](
        x, experts, place, starts, sent, local, H, x.stride(0), per_rank, K, triton.next_power_of_2(K), 128
    )
    return sent, local
