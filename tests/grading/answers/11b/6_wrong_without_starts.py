# wrong, unwritten: Between them they fill all rows
import torch
from instruments.backend import tl, triton


@triton.jit
def packed(x, experts, place, starts, sent, local, H, xs, per_rank, K: tl.constexpr, B: tl.constexpr):
    token, col = tl.program_id(0).to(tl.int64), tl.arange(0, B)
    values = tl.load(x + token * xs + col, mask=col < H, other=0.0)
    for k in tl.static_range(K):
        slot = token * K + k
        expert = tl.load(experts + slot)
        rank = expert // per_rank
        row = tl.load(place + slot).to(tl.int64)
        tl.store(sent + row * H + col, values, mask=col < H)
        tl.store(local + row, expert - rank * per_rank)


def pack(x, experts, place, starts, per_rank):
    (tokens, top_k), hidden = experts.shape, x.shape[1]
    sent = torch.empty((tokens * top_k, hidden), dtype=x.dtype, device=x.device)
    local = torch.empty(tokens * top_k, dtype=torch.int32, device=x.device)
    packed[(tokens,)](
        x, experts, place, starts, sent, local, hidden, x.stride(0), per_rank, top_k, triton.next_power_of_2(hidden)
    )
    return sent, local
