# right
import torch
from instruments.backend import tl, triton


@triton.jit
def counts(experts_ptr, part_ptr, load_ptr, S, B: tl.constexpr, EP: tl.constexpr):
    p, e = tl.program_id(0), tl.arange(0, EP)
    s = p * B + tl.arange(0, B)
    x = tl.load(experts_ptr + s, s < S, EP)
    n = tl.sum((x[:, None] == e[None, :]).to(tl.int32), 0)
    tl.store(part_ptr + p * EP + e, n)
    tl.atomic_add(load_ptr + e, n, mask=n > 0)


@triton.jit
def begins(part_ptr, load_ptr, slots_ptr, owners_ptr, P, N, E, block, EP: tl.constexpr, B: tl.constexpr):
    me, e, i = tl.program_id(0), tl.arange(0, EP), tl.arange(0, B)
    load = tl.load(load_ptr + e)
    tiles = (load + block - 1) // block
    first = tl.sum(tl.where(e < me, tiles, 0), 0)
    mine, n = tl.sum(tl.where(e == me, load, 0), 0), tl.sum(tl.where(e == me, tiles, 0), 0)
    place = first * block
    for p in range(P):
        here = tl.load(part_ptr + p * EP + me)
        tl.store(part_ptr + p * EP + me, place)
        place += here
    last = first + n
    if me == E - 1:
        last = N
    for r in range(first * block + mine, last * block, B):
        tl.store(slots_ptr + r + i, -1, mask=r + i < last * block)
    for t in range(first, last, B):
        tl.store(owners_ptr + t + i, tl.where(t + i < first + n, me, -1), mask=t + i < last)


@triton.jit
def scatter(experts_ptr, part_ptr, slots_ptr, S, B: tl.constexpr, EP: tl.constexpr):
    p, e = tl.program_id(0), tl.arange(0, EP)
    s = p * B + tl.arange(0, B)
    x = tl.load(experts_ptr + s, s < S, EP)
    hit = x[:, None] == e[None, :]
    n = tl.cumsum(hit.to(tl.int32), 0) - 1 + tl.load(part_ptr + p * EP + e)[None, :]
    tl.store(slots_ptr + n, s[:, None] + n * 0, mask=hit & (s < S)[:, None])


def align(experts, num_experts, block):
    S, B, EP = experts.numel(), 256, triton.next_power_of_2(num_experts)
    N = (S + num_experts * (block - 1)) // block
    slots, owners = (torch.empty((n,), dtype=torch.int32, device=experts.device) for n in (N * block, N))
    P = triton.cdiv(S, B)
    part = torch.empty((P, EP), dtype=torch.int32, device=experts.device)
    load = torch.zeros(EP, dtype=torch.int32, device=experts.device)
    counts[(P,)](experts, part, load, S, B, EP)
    begins[(num_experts,)](part, load, slots, owners, P, N, num_experts, block, EP, 64)
    scatter[(P,)](experts, part, slots, S, B, EP)
    return slots, owners
