# wrong, race: in an earlier launch
import torch
from instruments.backend import tl, triton


@triton.jit
def count_kernel(
    experts_ptr, counts_ptr, slots_ptr, total, rows, num_experts, BLOCK: tl.constexpr, BLOCK_E: tl.constexpr
):
    slot, e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK_E)
    expert = tl.load(experts_ptr + slot, mask=slot < total, other=-1)
    mine = (expert[:, None] == e[None, :]).to(tl.int32)  # [BLOCK, BLOCK_E]
    tl.store(counts_ptr + tl.program_id(0) * num_experts + e, tl.sum(mine, axis=0), mask=e < num_experts)
    for start in range(tl.program_id(0) * BLOCK, rows, tl.num_programs(0) * BLOCK):
        row = start + tl.arange(0, BLOCK)
        tl.store(slots_ptr + row, -1, mask=row < rows)


@triton.jit
def begin_kernel(
    counts_ptr, owners_ptr, programs, tiles, num_experts, block, BLOCK: tl.constexpr, BLOCK_E: tl.constexpr
):
    e = tl.arange(0, BLOCK_E)
    real = e < num_experts
    load = tl.zeros([BLOCK_E], tl.int32)
    for p in range(programs):
        load += tl.load(counts_ptr + p * num_experts + e, mask=real, other=0)
    many = (load + block - 1) // block  # tiles of each expert
    end = tl.cumsum(many, axis=0)
    place = (end - many) * block  # where each expert begins
    for p in range(programs):  # and where each program places its slots
        count = tl.load(counts_ptr + p * num_experts + e, mask=real, other=0)
        tl.store(counts_ptr + p * num_experts + e, place, mask=real)
        place += count
    used = tl.sum(many, axis=0)
    for start in range(0, tiles, BLOCK):
        tile = start + tl.arange(0, BLOCK)
        owner = tl.sum((end[None, :] <= tile[:, None]).to(tl.int32), axis=1)  # experts that end before this tile
        tl.store(owners_ptr + tile, tl.where(tile < used, owner, -1), mask=tile < tiles)


@triton.jit
def place_kernel(
    experts_ptr, places_ptr, slots_ptr, total, num_experts, rows, BLOCK: tl.constexpr, BLOCK_E: tl.constexpr
):
    slot, e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK_E)
    expert = tl.load(experts_ptr + slot, mask=slot < total, other=-1)
    mine = (expert[:, None] == e[None, :]).to(tl.int32)  # [BLOCK, BLOCK_E]
    before = tl.cumsum(mine, axis=0) - mine  # earlier slots of the same expert in this tile
    place = tl.load(places_ptr + tl.program_id(0) * num_experts + e, mask=e < num_experts, other=0)
    row = tl.sum(mine * (place[None, :] + before), axis=1)
    for start in range(tl.program_id(0) * BLOCK, rows, tl.num_programs(0) * BLOCK):
        every = start + tl.arange(0, BLOCK)
        tl.store(slots_ptr + every, -1, mask=every < rows)
    tl.store(slots_ptr + row, slot, mask=slot < total)


def align(experts, num_experts, block):
    total, BLOCK = experts.numel(), 128
    tiles = (total + num_experts * (block - 1)) // block
    slots = torch.empty(tiles * block, dtype=torch.int32, device=experts.device)
    owners = torch.empty(tiles, dtype=torch.int32, device=experts.device)
    programs, BLOCK_E = triton.cdiv(total, BLOCK), triton.next_power_of_2(num_experts)
    counts = torch.empty(programs, num_experts, dtype=torch.int32, device=experts.device)
    count_kernel[(programs,)](experts, counts, slots, total, tiles * block, num_experts, BLOCK, BLOCK_E)
    begin_kernel[(1,)](counts, owners, programs, tiles, num_experts, block, BLOCK, BLOCK_E)
    place_kernel[(programs,)](experts, counts, slots, total, num_experts, tiles * block, BLOCK, BLOCK_E)
    return slots, owners
