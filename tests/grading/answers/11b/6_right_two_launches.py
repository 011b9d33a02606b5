# right
import torch
from instruments.backend import tl, triton


@triton.jit
def rows_of(experts, place, starts, rows, local, slots, per_rank, B: tl.constexpr):
    slot = tl.program_id(0) * B + tl.arange(0, B)
    expert = tl.load(experts + slot, mask=slot < slots, other=0)
    rank = expert // per_rank
    row = tl.load(starts + rank, mask=slot < slots, other=0) + tl.load(place + slot, mask=slot < slots, other=0)
    tl.store(rows + slot, row, mask=slot < slots)
    tl.store(local + row, expert - rank * per_rank, mask=slot < slots)


@triton.jit
def copy(x, rows, sent, T, H, xs, K: tl.constexpr, B: tl.constexpr):
    for token in range(tl.program_id(0), T, tl.num_programs(0)):
        for start in range(0, H, B):
            col = start + tl.arange(0, B)
            values = tl.load(x + token * xs + col, mask=col < H)
            for k in tl.static_range(K):
                row = tl.load(rows + token * K + k).to(tl.int64)
                tl.store(sent + row * H + col, values, mask=col < H)


def pack(x, experts, place, starts, per_rank):
    (T, K), H = experts.shape, x.shape[1]
    sent = torch.empty(T * K, H, dtype=x.dtype, device=x.device)
    rows, local = torch.empty_like(experts).view(-1), torch.empty(T * K, dtype=torch.int32, device=x.device)
    rows_of[(triton.cdiv(T * K, 64),)](experts, place, starts, rows, local, T * K, per_rank, 64)
    copy[(min(T, 100),)](x, rows, sent, T, H, x.stride(0), K, 128)
    return sent, local
