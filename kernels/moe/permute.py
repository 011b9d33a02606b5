"""Sort the slots of a mixture of experts by expert: each (token, choice) gets a row, and an expert's rows lie together.

Minimum traffic: experts read once, rows and tokens written once, 12 bytes per slot.

The sort is a counting sort (Knuth, 1973) in three launches. First each program counts how many of its 64 or 128 slots
chose each expert. Then, for each expert, a prefix sum over the programs. Then each slot gets its row: after the rows of
the experts before its own, the slots of the programs before its own, and the slots before it with the same expert. So
the sort is stable and has the same result in every run. Few slots need one program and one launch. The host reads
nothing back, so all of it can be captured in a CUDA graph.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch

from instruments.backend import cdiv, next_power_of_2, tl, triton
from instruments.launcher import Launch
from instruments.traffic import Traffic
from kernels.shared.arguments import check_tensor
from kernels.shared.device import has_dependent_launch
from kernels.shared.metadata import by_metadata

MAX_EXPERTS = 1024
ONE_PROGRAM = 128  # slots that one program sorts, at most
MANY_EXPERTS = 128  # number of experts from which a program takes more slots, to share the work per expert
STEP = 32  # slots that each slot of a program is compared with at a time
PREFIX = 4096  # programs whose counts are added at a time


@dataclass(frozen=True)
class Permutation:
    """Slots, one for each (token, choice), sorted by expert.

    Args:
        offsets: [experts + 1], int32; the rows of expert e are offsets[e] to offsets[e + 1].
        tokens: [slots], int32; the token of a row, -1 for the empty rows from offsets[-1] on.
        rows: [tokens, top_k], int32; the row of a slot, -1 if it was dropped.
        counts: [experts], int32; how many slots chose an expert, before any is dropped.
        capacity: rows per expert at most. None: any number.
    """

    offsets: torch.Tensor
    tokens: torch.Tensor
    rows: torch.Tensor
    counts: torch.Tensor
    capacity: int | None = None


def permute_reference(experts: torch.Tensor, num_experts: int, capacity: int | None = None) -> Permutation:
    """`permute` in plain PyTorch."""
    top_k = experts.shape[1]
    choice = experts.flatten().long()
    counts = torch.bincount(choice[(choice >= 0) & (choice < num_experts)], minlength=num_experts)
    group_rows = counts if capacity is None else counts.clamp(max=capacity)
    offsets = torch.cat([group_rows.new_zeros(1), group_rows.cumsum(0)])
    rows, tokens = torch.full_like(choice, -1), torch.full_like(choice, -1)
    for expert in range(num_experts):
        slot = (choice == expert).nonzero().flatten()[: int(group_rows[expert])]  # in the order of the tokens
        row = torch.arange(len(slot), device=choice.device) + offsets[expert]
        rows[slot], tokens[row] = row, slot // top_k
    return Permutation(offsets.int(), tokens.int(), rows.int().view(experts.shape), counts.int(), capacity)


def expert_capacity(tokens: int, top_k: int, num_experts: int, factor: float) -> int:
    """Rows per expert for a capacity factor: the factor times an equal share of the slots, rounded up, at least 1."""
    return max(1, math.ceil(factor * tokens * top_k / num_experts))


@triton.jit
def count_kernel(
    experts_ptr, part_ptr,  # tensors
    slots, programs,
    EXPERTS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_E: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """part [EXPERTS, programs] int32: how many of a program's BLOCK slots of experts [slots] chose each expert. PDL:
    programmatic dependent launch."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()  # the next kernel may start, and wait for this one
    slot = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    choice = tl.load(experts_ptr + slot, mask=slot < slots, other=-1)
    counts = tl.histogram(choice, BLOCK_E, mask=(choice >= 0) & (choice < EXPERTS))  # [BLOCK_E]
    expert = tl.arange(0, BLOCK_E)
    tl.store(part_ptr + expert * programs + tl.program_id(0), counts, mask=expert < EXPERTS)


@triton.jit
def prefix_kernel(part_ptr, counts_ptr, programs, BLOCK_P: tl.constexpr, PDL: tl.constexpr):
    """One expert per program: part [EXPERTS, programs] becomes its prefix sum over the programs, counts [EXPERTS] the
    sum of all."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    expert = tl.program_id(0)
    part_ptr += expert * programs
    running_sum = tl.zeros([1], dtype=tl.int32)
    for start in tl.range(0, programs, BLOCK_P):
        program = start + tl.arange(0, BLOCK_P)  # [BLOCK_P]
        part = tl.load(part_ptr + program, mask=program < programs, other=0)
        tl.store(part_ptr + program, running_sum + tl.cumsum(part, axis=0) - part, mask=program < programs)
        running_sum += tl.sum(part, axis=0)
    tl.store(counts_ptr + expert + tl.arange(0, 1), running_sum)


@triton.jit
def place_kernel(
    experts_ptr, part_ptr, offsets_ptr, tokens_ptr, rows_ptr, counts_ptr,  # tensors
    slots, programs, capacity,
    EXPERTS: tl.constexpr, TOP_K: tl.constexpr,
    BLOCK: tl.constexpr, STEP: tl.constexpr, BLOCK_E: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Rows for a program's BLOCK slots of experts [slots]: rows and tokens [slots]; the first program also stores
    offsets [EXPERTS + 1]; all int32. part and counts: as prefix_kernel leaves them. With one program part is None, and
    this kernel stores counts."""
    program = tl.program_id(0)
    expert = tl.arange(0, BLOCK_E)  # [BLOCK_E], BLOCK_E >= EXPERTS
    slot = program * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    choice = tl.load(experts_ptr + slot, mask=slot < slots, other=-1)
    valid = (choice >= 0) & (choice < EXPERTS)
    rank = tl.zeros([BLOCK], dtype=tl.int32)  # of a slot among those of its expert
    for start in tl.static_range(0, BLOCK, STEP):
        other = program * BLOCK + start + tl.arange(0, STEP)[None, :]  # [1, STEP]
        same = tl.load(experts_ptr + other, mask=other < slots, other=-1) == choice[:, None]  # [BLOCK, STEP]
        rank += tl.sum((same & (other < slot[:, None])).to(tl.int32), axis=1)
    if PDL:
        tl.extra.cuda.gdc_wait()
    if part_ptr is None:
        counts = tl.histogram(choice, BLOCK_E, mask=valid)
        tl.store(counts_ptr + expert, counts, mask=expert < EXPERTS)
    else:
        counts = tl.load(counts_ptr + expert, mask=expert < EXPERTS, other=0)
        rank += tl.load(part_ptr + choice * programs + program, mask=valid, other=0)
    group_rows = tl.minimum(counts, capacity)
    ends = tl.cumsum(group_rows, axis=0)
    if program == 0:
        tl.store(offsets_ptr, 0)
        tl.store(offsets_ptr + 1 + expert, ends, mask=expert < EXPERTS)
    first = tl.gather(ends - group_rows, tl.where(valid, choice, 0), axis=0)  # [BLOCK]: first row of a slot's expert
    row = tl.where(valid & (rank < capacity), first + rank, -1)
    tl.store(rows_ptr + slot, row, mask=slot < slots)
    tl.store(tokens_ptr + row, slot // TOP_K, mask=row >= 0)
    tl.store(tokens_ptr + slot, -1, mask=(slot < slots) & (slot >= tl.sum(group_rows)))  # empty rows


@dataclass(frozen=True)
class PermutePlan:
    """The launches. programs: each with BLOCK slots. counting, prefix, placing: options of the three kernels."""

    programs: int
    counting: dict
    prefix: dict
    placing: dict


@cache
def permute_plan(slots: int, num_experts: int) -> PermutePlan:
    """One program for few slots, else one per 64 or 128 slots."""
    block_e = next_power_of_2(num_experts)
    share = 128 if block_e >= MANY_EXPERTS else 64
    block = max(16, next_power_of_2(slots)) if slots <= ONE_PROGRAM else share
    programs = cdiv(slots, block)
    block_p = min(PREFIX, next_power_of_2(programs))
    counting = {"BLOCK": block, "BLOCK_E": block_e, "num_warps": 4}
    prefix = {"BLOCK_P": block_p, "num_warps": 8 if block_p > 1024 else 4}
    placing = {"BLOCK": block, "STEP": min(STEP, block), "BLOCK_E": block_e, "num_warps": max(4, block // 32)}
    return PermutePlan(programs, counting, prefix, placing)


@dataclass(frozen=True)
class PermuteCall:
    """A call's plan. slots, num_experts, capacity: sizes. programs: columns of part. counting, prefix: launches, None
    with one program. placing: the last launch, None without slots."""

    slots: int
    num_experts: int
    capacity: int | None
    programs: int = 1
    counting: Launch | None = None
    prefix: Launch | None = None
    placing: Launch | None = None

    def __call__(self, experts: torch.Tensor) -> Permutation:
        experts = experts.contiguous()
        int32 = {"dtype": torch.int32, "device": experts.device}
        if self.placing is None:
            zeros = torch.zeros(self.num_experts + 1, **int32)
            return Permutation(zeros, experts.flatten(), experts, zeros[1:], self.capacity)
        counts, offsets = torch.empty(self.num_experts, **int32), torch.empty(self.num_experts + 1, **int32)
        tokens, rows, part = torch.empty(self.slots, **int32), torch.empty_like(experts), None
        if self.counting:
            part = torch.empty((self.num_experts, self.programs), **int32)
            self.counting(experts, part)
            self.prefix(part, counts)
        self.placing(experts, part, offsets, tokens, rows, counts)
        return Permutation(offsets, tokens, rows, counts, self.capacity)


def plan_call(tokens: int, top_k: int, num_experts: int, capacity: int | None, device: torch.device) -> PermuteCall:
    """The plan of a call with experts [tokens, top_k]. Raises ValueError for the other two arguments of `permute`."""
    if not isinstance(num_experts, int) or not 1 <= num_experts <= MAX_EXPERTS:
        raise ValueError(f"num_experts: got {num_experts!r}, expected a whole number from 1 to {MAX_EXPERTS}")
    if capacity is not None and (not isinstance(capacity, int) or capacity < 1):
        raise ValueError(f"capacity: got {capacity!r}, expected None or a whole number of at least 1")
    slots = tokens * top_k
    if not slots:
        return PermuteCall(slots, num_experts, capacity)
    plan = permute_plan(slots, num_experts)
    programs, counting, prefix, dependent = plan.programs, None, None, {"PDL": False}
    if programs > 1:
        pdl = has_dependent_launch(device)
        dependent = {"PDL": pdl, **({"launch_pdl": True} if pdl else {})}
        counting = Launch(count_kernel, (programs,), slots, programs, num_experts, PDL=pdl, **plan.counting)
        prefix = Launch(prefix_kernel, (num_experts,), programs, **plan.prefix, **dependent)
    placing = Launch(
        place_kernel, (programs,),
        slots, programs, slots if capacity is None else min(capacity, slots),
        EXPERTS=num_experts, TOP_K=top_k, **plan.placing, **dependent,
    )  # fmt: skip
    return PermuteCall(slots, num_experts, capacity, programs, counting, prefix, placing)


@by_metadata
def _plan(experts, num_experts, capacity) -> PermuteCall:
    """The plan of a call, whose arguments it checks."""
    check_tensor("experts", experts, dtypes=(torch.int32,))
    if experts.dim() != 2 or not experts.shape[1]:
        raise ValueError(f"experts: got shape {tuple(experts.shape)}, expected (tokens, top_k)")
    return plan_call(*experts.shape, num_experts, capacity, experts.device)


def permute(experts: torch.Tensor, num_experts: int, capacity: int | None = None) -> Permutation:
    """Sort the slots by expert, those of one expert in the order of the tokens.

    Args:
        experts: [tokens, top_k], int32, any strides, as `route` returns them. A number outside 0 to num_experts - 1
            chooses no expert.
        num_experts: 1 to 1,024.
        capacity: rows per expert at most; its later slots are dropped. None: no slot is dropped.

    Returns:
        The Permutation.

    Raises:
        ValueError: names the argument, what it got and what was expected.
    """
    return _plan(experts, num_experts, capacity)(experts)


def permute_traffic(tokens: int, top_k: int, num_experts: int, path: str | None = "minimum") -> Traffic:
    """Bytes of the sort, if no slot is dropped.

    Args:
        tokens: rows of experts.
        top_k: columns of experts.
        num_experts: as in `permute`.
        path: "minimum", each byte once. None: the requested bytes of `permute`.
    """
    slots, counts = 4 * tokens * top_k, 4 * num_experts
    read, written = {"experts": slots}, {"rows": slots, "tokens": slots, "counts": counts, "offsets": counts + 4}
    if path == "minimum":
        return Traffic(read, written, launches=1)
    if path is not None:
        raise ValueError(f"path: got {path!r}, expected minimum or None")
    programs = permute_plan(tokens * top_k, num_experts).programs
    read["experts"] *= 2  # each slot once for itself, once to be compared with the others
    if programs == 1:
        return Traffic(read, written, launches=1)
    part = {"part": programs * counts}
    read |= {"counts": programs * counts, "part": slots}
    return (
        Traffic({"experts": slots}, part, launches=1)
        + Traffic(part, part, launches=1)
        + Traffic(read, written, launches=1)
    )
