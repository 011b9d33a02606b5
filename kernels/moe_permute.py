"""Sort the slots of a mixture of experts by expert: each (token, choice) gets a row, the rows of an expert together.

Minimum traffic of the permutation: experts read once, rows and tokens written once, 12 bytes a slot; of moving the
rows, `gather_rows`: x read once and written top_k times. The sort is a counting sort (Knuth, 1973) in three launches:
programs count the experts of 64 or 128 slots each; what the programs before have counted is added up, expert by expert;
and each slot gets its row: behind the experts before its own, the programs before its own, and the slots before it that
chose the same. So it is stable, and the same in every run. Few slots are one program's, and one launch. The host reads
nothing back, so all of it can be in a CUDA graph.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import check_tensor, wants_grad
from kernels.attention_plan import launches_early
from kernels.moe_combine import combine
from kernels.moe_rows import Permutation, blocks_of, check_permuted, gather_rows_forward

MAX_EXPERTS = 1024
ONE_PROGRAM = 128  # slots, at most
MANY_EXPERTS = 128  # from which a program's work for all experts wants more slots
STEP = 32  # slots that each of a program's is compared with at a time
PREFIX = 4096  # programs whose counts are added up at a time


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
def count_kernel(
    experts_ptr,
    part_ptr,
    slots,
    programs,
    EXPERTS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_E: tl.constexpr,
    EARLY: tl.constexpr,
):
    """part [EXPERTS, programs] int32: how many of a program's BLOCK slots of experts [slots] chose each expert."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()  # the next kernel may be launched, to wait for this one
    slot = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    chosen = tl.load(experts_ptr + slot, mask=slot < slots, other=-1)
    counts = tl.histogram(chosen, BLOCK_E, mask=(chosen >= 0) & (chosen < EXPERTS))  # [BLOCK_E]
    expert = tl.arange(0, BLOCK_E)
    tl.store(part_ptr + expert * programs + tl.program_id(0), counts, mask=expert < EXPERTS)


@triton.jit
def prefix_kernel(part_ptr, counts_ptr, programs, BLOCK_P: tl.constexpr, EARLY: tl.constexpr):
    """One expert: part [EXPERTS, programs] becomes the sum of what the programs before have counted, counts [EXPERTS]
    the sum of all."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    expert = tl.program_id(0)
    part_ptr += expert * programs
    total = tl.zeros([1], dtype=tl.int32)
    for start in tl.range(0, programs, BLOCK_P):
        program = start + tl.arange(0, BLOCK_P)  # [BLOCK_P]
        part = tl.load(part_ptr + program, mask=program < programs, other=0)
        tl.store(part_ptr + program, total + tl.cumsum(part, axis=0) - part, mask=program < programs)
        total += tl.sum(part, axis=0)
    tl.store(counts_ptr + expert + tl.arange(0, 1), total)


@triton.jit
def place_kernel(
    experts_ptr,
    part_ptr,
    offsets_ptr,
    tokens_ptr,
    rows_ptr,
    counts_ptr,
    slots,
    programs,
    capacity,
    EXPERTS: tl.constexpr,
    TOP_K: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
    BLOCK_E: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Rows for a program's BLOCK slots of experts [slots]: rows and tokens [slots], and by the first program offsets
    [EXPERTS + 1], all int32. part and counts: as prefix_kernel leaves them; with one program part is None, and counts
    are written here."""
    program = tl.program_id(0)
    expert = tl.arange(0, BLOCK_E)  # [BLOCK_E], BLOCK_E >= EXPERTS
    slot = program * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    chosen = tl.load(experts_ptr + slot, mask=slot < slots, other=-1)
    real = (chosen >= 0) & (chosen < EXPERTS)
    rank = tl.zeros([BLOCK], dtype=tl.int32)  # a slot's place among those of its expert
    for start in tl.static_range(0, BLOCK, STEP):
        other = program * BLOCK + start + tl.arange(0, STEP)[None, :]  # [1, STEP]
        same = tl.load(experts_ptr + other, mask=other < slots, other=-1) == chosen[:, None]  # [BLOCK, STEP]
        rank += tl.sum((same & (other < slot[:, None])).to(tl.int32), axis=1)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    if part_ptr is None:
        counts = tl.histogram(chosen, BLOCK_E, mask=real)
        tl.store(counts_ptr + expert, counts, mask=expert < EXPERTS)
    else:
        counts = tl.load(counts_ptr + expert, mask=expert < EXPERTS, other=0)
        rank += tl.load(part_ptr + chosen * programs + program, mask=real, other=0)
    kept = tl.minimum(counts, capacity)
    ends = tl.cumsum(kept, axis=0)
    if program == 0:
        tl.store(offsets_ptr, 0)
        tl.store(offsets_ptr + 1 + expert, ends, mask=expert < EXPERTS)
    first = tl.gather(ends - kept, tl.where(real, chosen, 0), axis=0)  # [BLOCK]: of the rows of a slot's expert
    row = tl.where(real & (rank < capacity), first + rank, -1)
    tl.store(rows_ptr + slot, row, mask=slot < slots)
    tl.store(tokens_ptr + row, slot // TOP_K, mask=row >= 0)
    tl.store(tokens_ptr + slot, -1, mask=(slot < slots) & (slot >= tl.sum(kept)))  # rows that nobody gets


@dataclass(frozen=True)
class Plan:
    """programs, each with BLOCK slots; config: of place_kernel; counting, prefix: of the other two."""

    programs: int
    config: dict
    counting: dict
    prefix: dict


@cache
def plan(slots: int, num_experts: int) -> Plan:
    """One program for few slots, else one for each 64 or 128."""
    block_e = triton.next_power_of_2(num_experts)
    several = 128 if block_e >= MANY_EXPERTS else 64
    block = max(16, triton.next_power_of_2(slots)) if slots <= ONE_PROGRAM else several
    programs = triton.cdiv(slots, block)
    block_p = min(PREFIX, triton.next_power_of_2(programs))
    config = {"BLOCK": block, "STEP": min(STEP, block), "BLOCK_E": block_e, "num_warps": max(4, block // 32)}
    counting = {"BLOCK": block, "BLOCK_E": block_e, "num_warps": 4}
    return Plan(programs, config, counting, {"BLOCK_P": block_p, "num_warps": 8 if block_p > 1024 else 4})


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
    chosen = plan(slots, num_experts)
    programs, late = chosen.programs, {"EARLY": False}
    counts, offsets = torch.empty(num_experts, **made), torch.empty(num_experts + 1, **made)
    tokens, rows, part = torch.empty(slots, **made), torch.empty_like(experts), None
    if programs > 1:
        part = torch.empty((num_experts, programs), **made)
        early = launches_early(experts.device)
        late = {"EARLY": early, **({"launch_pdl": True} if early else {})}
        count_kernel[(programs,)](experts, part, slots, programs, num_experts, EARLY=early, **chosen.counting)
        prefix_kernel[(num_experts,)](part, counts, programs, **chosen.prefix, **late)
    sizes = (slots, programs, slots if capacity is None else min(capacity, slots), num_experts, top_k)
    place_kernel[(programs,)](experts, part, offsets, tokens, rows, counts, *sizes, **chosen.config, **late)
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


def permute_traffic(tokens: int, top_k: int, num_experts: int, path: str | None = "minimum") -> Traffic:
    """What sorting the slots moves, where all of them get rows: the 'minimum', each byte once; or, with None, what the
    programs of `permute` ask for."""
    slots, counts = 4 * tokens * top_k, 4 * num_experts
    read, written = {"experts": slots}, {"rows": slots, "tokens": slots, "counts": counts, "offsets": counts + 4}
    if path == "minimum":
        return Traffic(read, written, launches=1)
    if path is not None:
        raise ValueError(f"path: got {path!r}, expected minimum or None")
    programs = plan(tokens * top_k, num_experts).programs
    read["experts"] *= 2  # as themselves, and as others' neighbours
    if programs == 1:
        return Traffic(read, written, launches=1)
    part = {"part": programs * counts}
    read |= {"counts": programs * counts, "part": slots}
    return (
        Traffic({"experts": slots}, part, launches=1)
        + Traffic(part, part, launches=1)
        + Traffic(read, written, launches=1)
    )


def gather_traffic(tokens: int, top_k: int, hidden: int, dtype: torch.dtype, path: str | None = "minimum") -> Traffic:
    """What `gather_rows` moves, where all slots have rows: the 'minimum', each byte once; or, with None, what its
    programs ask for."""
    blocks = blocks_of(hidden, path)
    row = hidden * dtype.itemsize
    return Traffic({"x": tokens * row, "rows": 4 * tokens * top_k * blocks}, {"y": tokens * top_k * row}, launches=1)
