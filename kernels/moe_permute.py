"""Sort the slots of a mixture of experts by expert: each (token, choice) gets a row, the rows of an expert together.

Minimum traffic of the permutation: experts read once, rows and tokens written once, 12 bytes a slot; of moving the
rows, `gather_rows`: x read once and written top_k times. The sort is a counting sort in two launches (histogram, prefix
sum, scatter: Knuth, 1973): programs count the experts of their share of the slots; then each adds up what the programs
before it have counted, and hands out rows in the order of its slots. So it is stable, and the same in every run: no
atomics. Few slots are one program's, which counts them itself: one launch. The host reads nothing back, so all of it
can be in a CUDA graph.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.arguments import check_tensor, wants_grad
from kernels.moe_combine import combine
from kernels.moe_rows import Permutation, blocks_of, check_permuted, gather_rows_forward
from kernels.rows import Device, device_of

MAX_EXPERTS = 1024
ONE_PROGRAM = 1024  # slots, at most
TILE = 8192  # slots by experts of a step


def permute_reference(experts: torch.Tensor, num_experts: int, capacity: int | None = None) -> Permutation:
    """What `permute` computes, in plain PyTorch."""
    top_k = experts.shape[1]
    chosen = experts.flatten().long()
    counts = torch.bincount(chosen[(chosen >= 0) & (chosen < num_experts)], minlength=num_experts)
    kept = counts if capacity is None else counts.clamp(max=capacity)
    offsets = torch.cat([kept.new_zeros(1), kept.cumsum(0)])
    rows, tokens = torch.full_like(chosen, -1), torch.full_like(chosen, -1)
    for expert in range(num_experts):
        slot = (chosen == expert).nonzero().flatten()[: int(kept[expert])]  # in the order of the tokens
        row = torch.arange(len(slot), device=chosen.device) + offsets[expert]
        rows[slot], tokens[row] = row, slot // top_k
    return Permutation(offsets.int(), tokens.int(), rows.int().view(experts.shape), counts.int(), capacity)


def expert_capacity(tokens: int, top_k: int, num_experts: int, factor: float) -> int:
    """Rows that each expert has for a capacity factor: factor times an equal share of the slots, rounded up; at least
    one."""
    return max(1, math.ceil(factor * tokens * top_k / num_experts))


@triton.jit
def chosen_in_tile(experts_ptr, start, last, BLOCK: tl.constexpr, BLOCK_E: tl.constexpr):
    """[BLOCK, BLOCK_E] int32: 1 where a slot from start, before last, chose an expert."""
    slot = start + tl.arange(0, BLOCK)[:, None]  # [BLOCK, 1]
    chosen = tl.load(experts_ptr + slot, mask=slot < last, other=-1)
    return (chosen == tl.arange(0, BLOCK_E)[None, :]).to(tl.int32)


@triton.jit
def count_slots(experts_ptr, first, last, BLOCK: tl.constexpr, BLOCK_E: tl.constexpr):
    """[1, BLOCK_E] int32: how many of the slots from first, before last, chose each expert."""
    counts = tl.zeros([1, BLOCK_E], dtype=tl.int32)
    for start in tl.range(first, last, BLOCK):
        counts += tl.sum(chosen_in_tile(experts_ptr, start, last, BLOCK, BLOCK_E), axis=0, keep_dims=True)
    return counts


@triton.jit
def count_kernel(experts_ptr, part_ptr, slots, share, BLOCK: tl.constexpr, BLOCK_E: tl.constexpr):
    """part [programs, BLOCK_E] int32: how many of a program's share of experts [slots] chose each expert."""
    first = tl.program_id(0) * share
    counts = count_slots(experts_ptr, first, tl.minimum(first + share, slots), BLOCK, BLOCK_E)
    tl.store(part_ptr + tl.program_id(0) * BLOCK_E + tl.arange(0, BLOCK_E)[None, :], counts)


@triton.jit
def place_kernel(
    experts_ptr,
    part_ptr,
    offsets_ptr,
    tokens_ptr,
    rows_ptr,
    counts_ptr,
    slots,
    share,
    programs,
    capacity,
    EXPERTS: tl.constexpr,
    TOP_K: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Rows for a program's share of experts [slots]: rows and tokens [slots], and by the first program offsets
    [EXPERTS + 1] and counts [EXPERTS], all int32. part: as count_kernel leaves it; None for one program."""
    program = tl.program_id(0)
    first = program * share
    last = tl.minimum(first + share, slots)
    expert = tl.arange(0, BLOCK_E)[None, :]  # [1, BLOCK_E], BLOCK_E >= EXPERTS
    taken = tl.zeros([1, BLOCK_E], dtype=tl.int32)  # of each expert's rows, by the slots before
    if part_ptr is None:
        counts = count_slots(experts_ptr, first, last, BLOCK, BLOCK_E)
    else:
        counts = taken
        for start in tl.range(0, programs, BLOCK_P):
            other = start + tl.arange(0, BLOCK_P)[:, None]  # [BLOCK_P, 1]
            part = tl.load(part_ptr + other * BLOCK_E + expert, mask=other < programs, other=0)
            counts += tl.sum(part, axis=0, keep_dims=True)
            taken += tl.sum(tl.where(other < program, part, 0), axis=0, keep_dims=True)
    kept = tl.minimum(counts, capacity)
    ends = tl.cumsum(kept, axis=1)
    total = tl.sum(kept)
    if program == 0:
        tl.store(offsets_ptr, 0)
        tl.store(offsets_ptr + 1 + expert, ends, mask=expert < EXPERTS)
        tl.store(counts_ptr + expert, counts, mask=expert < EXPERTS)
    for start in tl.range(first, last, BLOCK):
        chosen = chosen_in_tile(experts_ptr, start, last, BLOCK, BLOCK_E)  # [BLOCK, BLOCK_E]
        rank = taken + tl.cumsum(chosen, axis=0)  # from 1: the slot's place among those of its expert
        found = (chosen == 1) & (rank <= capacity)
        row = tl.sum(tl.where(found, ends - kept + rank, 0), axis=1) - 1  # [BLOCK]: -1 where there is none
        taken += tl.sum(chosen, axis=0, keep_dims=True)
        slot = start + tl.arange(0, BLOCK)
        tl.store(rows_ptr + slot, row, mask=slot < last)
        tl.store(tokens_ptr + row, slot // TOP_K, mask=row >= 0)
        tl.store(tokens_ptr + slot, -1, mask=(slot < last) & (slot >= total))  # rows that nobody gets


@dataclass(frozen=True)
class Plan:
    """programs, each with `share` slots; config: of place_kernel, and of count_kernel but for BLOCK_P."""

    programs: int
    share: int
    config: dict


@cache
def plan(slots: int, num_experts: int, gpu: Device) -> Plan:
    """One program for few slots, else at most one a multiprocessor, whose parts every program reads."""
    block_e = triton.next_power_of_2(num_experts)
    programs = 1 if slots <= ONE_PROGRAM else gpu.sms
    block = max(16, min(TILE // block_e, triton.next_power_of_2(triton.cdiv(slots, programs))))
    share = triton.cdiv(slots, programs * block) * block
    block_p = max(1, min(triton.next_power_of_2(programs), TILE // block_e))
    config = {"BLOCK_P": block_p, "BLOCK": block, "BLOCK_E": block_e, "num_warps": 8}
    return Plan(triton.cdiv(slots, share), share, config)


def permute(experts: torch.Tensor, num_experts: int, capacity: int | None = None) -> Permutation:
    """Sort the slots by expert, those of one expert in the order of the tokens.

    experts: [tokens, top_k] int32, as `route` gives them; a number outside 0 to num_experts - 1 chooses no expert.
    num_experts: 1 to 1,024. capacity: rows that an expert has at most; its later slots are dropped. None: all are kept.
    Returns a Permutation. Raises ValueError naming the argument.
    """
    check_tensor("experts", experts, dtypes=(torch.int32,))
    if experts.dim() != 2 or not experts.shape[1]:
        raise ValueError(f"experts: got shape {tuple(experts.shape)}, expected (tokens, top_k)")
    if not isinstance(num_experts, int) or not 1 <= num_experts <= MAX_EXPERTS:
        raise ValueError(f"num_experts: got {num_experts!r}, expected a whole number from 1 to {MAX_EXPERTS}")
    if capacity is not None and (not isinstance(capacity, int) or capacity < 1):
        raise ValueError(f"capacity: got {capacity!r}, expected None or a whole number of at least 1")
    experts = experts.contiguous()
    slots, top_k = experts.numel(), experts.shape[1]
    made = {"dtype": torch.int32, "device": experts.device}
    if not slots:
        none = torch.zeros(num_experts + 1, **made)
        return Permutation(none, experts.flatten(), experts, none[1:], capacity)
    chosen = plan(slots, num_experts, device_of(experts.device))
    counts, offsets = torch.empty(num_experts, **made), torch.empty(num_experts + 1, **made)
    tokens, rows, part = torch.empty(slots, **made), torch.empty_like(experts), None
    grid = (chosen.programs,)
    if chosen.programs > 1:
        part = torch.empty((chosen.programs, chosen.config["BLOCK_E"]), **made)
        config = {name: value for name, value in chosen.config.items() if name != "BLOCK_P"}
        count_kernel[grid](experts, part, slots, chosen.share, **config)
    limit = slots if capacity is None else min(capacity, slots)
    sizes = (slots, chosen.share, chosen.programs, limit, num_experts, top_k)
    place_kernel[grid](experts, part, offsets, tokens, rows, counts, *sizes, **chosen.config)
    return Permutation(offsets, tokens, rows, counts, capacity)


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, permutation):
        ctx.permutation = permutation
        return gather_rows_forward(x, permutation)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return combine(dy, ctx.permutation), None


def gather_rows(x: torch.Tensor, permutation: Permutation) -> torch.Tensor:
    """Each token's row of x at every row that the permutation gives it; differentiable.

    x: [tokens, hidden], fp16, bf16 or fp32, any strides. Returns [slots, hidden], contiguous; rows that no token has
    hold nothing, or zeros where there is a capacity. Raises ValueError naming the argument.
    """
    check_permuted("x", x, permutation, "tokens")
    return _GatherRows.apply(x, permutation) if wants_grad(x) else gather_rows_forward(x, permutation)


def permute_traffic(
    tokens: int, top_k: int, num_experts: int, path: str | None = "minimum", gpu: GPU | Device = GPUS["H200"]
) -> Traffic:
    """What sorting the slots moves, where all of them get rows: the 'minimum', each byte once; or, with None, what the
    programs of `permute` ask for on a GPU, the H200 of the course's figures unless given."""
    slots = tokens * top_k
    read = {"experts": 4 * slots}
    written = {"rows": 4 * slots, "tokens": 4 * slots, "counts": 4 * num_experts, "offsets": 4 * (num_experts + 1)}
    if path == "minimum":
        return Traffic(read, written, launches=1)
    if path is not None:
        raise ValueError(f"path: got {path!r}, expected minimum or None")
    chosen = plan(slots, num_experts, Device(gpu.sms, gpu.shared_per_sm))
    read["experts"] *= 2  # to count, and to place
    if chosen.programs > 1:
        written["part"] = 4 * chosen.programs * chosen.config["BLOCK_E"]
        read["part"] = chosen.programs * written["part"]
    return Traffic(read, written, launches=1 + (chosen.programs > 1))


def gather_traffic(tokens: int, top_k: int, hidden: int, dtype: torch.dtype, path: str | None = "minimum") -> Traffic:
    """What `gather_rows` moves, where all slots have rows: the 'minimum', each byte once; or, with None, what its
    programs ask for."""
    blocks = blocks_of(hidden, path)
    row = hidden * dtype.itemsize
    return Traffic({"x": tokens * row, "rows": 4 * tokens * top_k * blocks}, {"y": tokens * top_k * row}, launches=1)
