# right
import torch
from instruments.backend import tl, triton


@triton.jit
def alone(experts_ptr, slots_ptr, owners_ptr, S, R, N, E, block, EP: tl.constexpr, B: tl.constexpr):
    e, i = tl.arange(0, EP), tl.arange(0, B)
    load = tl.zeros([EP], tl.int32)
    for s in range(0, S, B):
        x = tl.load(experts_ptr + s + i, s + i < S, -1)
        load += tl.sum((x[None, :] == e[:, None]).to(tl.int32), 1)
    tiles = tl.cdiv(load, block)
    stop = tl.cumsum(tiles, 0)
    at = (stop - tiles) * block
    for s in range(0, S, B):
        x = tl.load(experts_ptr + s + i, s + i < S, -1)
        one = (x[None, :] == e[:, None]).to(tl.int32)
        row = tl.sum(one * (at[:, None] + tl.cumsum(one, 1) - 1), 0)
        tl.store(slots_ptr + row, s + i, s + i < S)
        at += tl.sum(one, 1)
    for n in range(0, N, B):
        t = n + i
        who = tl.sum((t[None, :] >= stop[:, None]).to(tl.int32), 0)
        tl.store(owners_ptr + t, tl.where(t < tl.max(stop, 0), who, -1), t < N)


@triton.jit
def fill(slots_ptr, R, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(slots_ptr + i, tl.full([B], -1, tl.int32), i < R)


def align(experts, num_experts, block):
    S = experts.numel()
    N = (S + num_experts * (block - 1)) // block
    slots = experts.new_empty(N * block)
    owners = experts.new_empty(N)
    fill[(triton.cdiv(N * block, 1024),)](slots, N * block, 1024)
    alone[(1,)](experts, slots, owners, S, N * block, N, num_experts, block, triton.next_power_of_2(num_experts), 256)
    return slots, owners
