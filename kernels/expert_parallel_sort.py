"""Rows from several ranks, each sorted by expert, into one order by expert: where each goes follows from the counts.

What a rank receives is runs: for each chunk, for each rank that sends, for each of its own experts. Sorting moves whole
runs, so nothing is compared: a run begins behind all that come before it in either order, a sum over at most
ranks * experts counts, which every program has in registers. Rows of an expert stay in the order of the ranks.
"""

import torch

from instruments.backend import tl, triton
from kernels.moe_rows import Permutation

BLOCK = 1024  # rows that a program numbers at a time


def chunk_bounds(experts: int, chunks: int) -> list[tuple[int, int]]:
    """(first, last + 1) of each rank's experts in each chunk."""
    ends = [experts * chunk // chunks for chunk in range(chunks + 1)]
    return list(zip(ends, ends[1:]))


@triton.jit
def sort_runs_kernel(
    counts_ptr,
    tokens_ptr,
    rows_ptr,
    offsets_ptr,
    totals_ptr,
    ranks,
    experts,
    chunks,
    BLOCK_R: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A run per program: counts [ranks, experts] int32; tokens and rows [sum of counts], the run's rows in both orders,
    from the chunk's first; offsets [experts + chunks]: of each chunk its experts' beginnings and its end; totals
    [experts]: rows of each expert."""
    own = tl.program_id(0)
    own_rank, own_expert = own // experts, own % experts
    own_chunk = ((own_expert + 1) * chunks - 1) // experts
    run = tl.arange(0, BLOCK_R)  # [BLOCK_R], BLOCK_R >= ranks * experts
    count = tl.load(counts_ptr + run, mask=run < ranks * experts, other=0)
    rank, expert = run // experts, run % experts
    chunk = ((expert + 1) * chunks - 1) // experts
    length = tl.sum(tl.where(run == own, count, 0))
    earlier = (rank < own_rank) | ((rank == own_rank) & (expert < own_expert))
    came = tl.sum(tl.where((chunk == own_chunk) & earlier, count, 0))  # the run's place in its chunk as it comes
    earlier = (expert < own_expert) | ((expert == own_expert) & (rank < own_rank))
    goes = tl.sum(tl.where((chunk == own_chunk) & earlier, count, 0))  # and by expert
    first = tl.sum(tl.where(chunk < own_chunk, count, 0))  # the chunk's place
    for start in tl.range(0, length, BLOCK):
        row = start + tl.arange(0, BLOCK)  # [BLOCK]
        tl.store(tokens_ptr + first + goes + row, came + row, mask=row < length)
        tl.store(rows_ptr + first + came + row, goes + row, mask=row < length)
    if own_rank == 0:
        tl.store(offsets_ptr + own_expert + own_chunk, goes)
        tl.store(totals_ptr + own_expert, tl.sum(tl.where(expert == own_expert, count, 0)))
    if own_rank == ranks - 1:  # the next expert's beginning, or the chunk's end
        last = ((own_expert + 2) * chunks - 1) // experts != own_chunk
        tl.store(offsets_ptr + own_expert + own_chunk + 1, goes + length, mask=last)


def sort_runs(counts: torch.Tensor, chunks: int, lengths: list[int]) -> list[Permutation]:
    """For each chunk, its rows as they come -> by expert.

    counts: [ranks, experts] int32, contiguous: rows from each rank for each of this rank's experts; those of a chunk
    come by rank, then by expert. lengths: rows of each chunk, which the host knows.
    """
    ranks, experts = counts.shape
    made = {"dtype": torch.int32, "device": counts.device}
    tokens, rows = torch.empty(sum(lengths), **made), torch.empty(sum(lengths), 1, **made)
    offsets, totals = torch.empty(experts + chunks, **made), torch.empty(experts, **made)
    sizes = (ranks, experts, chunks, triton.next_power_of_2(ranks * experts), BLOCK)
    sort_runs_kernel[(ranks * experts,)](counts, tokens, rows, offsets, totals, *sizes)
    own = [last - first for first, last in chunk_bounds(experts, chunks)]
    parts = offsets.split([count + 1 for count in own]), tokens.split(lengths), rows.split(lengths), totals.split(own)
    return [Permutation(*part) for part in zip(*parts)]
