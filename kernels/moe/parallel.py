"""Expert parallelism: a mixture-of-experts layer over several GPUs, each with some of the experts and its own tokens.

Rank r of n has the experts r * E / n to (r + 1) * E / n. Dispatch sends a token's row to the ranks of its experts, and
combine sends the results back: two all-to-alls, with a different number of rows for every pair of ranks. Both sides
must know these numbers, so they are exchanged first, and the host waits for them once per layer.

Minimum traffic between GPUs: tokens * top_k rows of hidden values each way, except those that stay on their rank, 1 / n
of them where experts are chosen uniformly. With several `chunks`, rows travel while others are multiplied. A chunk has
the rows of some of each rank's experts, so each weight is still read once and no expert's rows are split.

The rows that a rank receives are then sorted by expert. They are runs, one for each chunk, sending rank and expert, and
whole runs move. Where a run goes follows from the counts alone: after the runs before it, in either order. Each program
computes that from at most ranks * experts counts in registers. An expert's rows stay in the order of the ranks.

Sources: experts over devices with two all-to-alls is GShard (Lepikhin et al., 2020); chunks that travel while others
are multiplied is Tutel (Hwang et al., 2022), which splits by tokens. torch.distributed communicates: NCCL on GPUs, gloo
on CPUs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from instruments.backend import next_power_of_2, tl, triton
from kernels.moe.combine import combine, gather_rows
from kernels.moe.layer import check_layer, experts
from kernels.moe.permute import Permutation, permute
from kernels.moe.router import route
from kernels.shared.arguments import wants_grad

BLOCK = 1024  # rows that a program numbers at a time


@triton.jit
def sort_runs_kernel(
    counts_ptr, tokens_ptr, rows_ptr, offsets_ptr, totals_ptr,  # tensors
    ranks, experts, chunks,
    BLOCK_R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One run per program, from counts [ranks, experts] int32: tokens and rows [sum of counts], the run's rows in both
    orders, numbered from the first of their chunk; offsets [experts + chunks], for each chunk the first row of its
    experts and its end; totals [experts], the rows of each expert."""
    own = tl.program_id(0)
    own_rank, own_expert = own // experts, own % experts
    own_chunk = ((own_expert + 1) * chunks - 1) // experts
    run = tl.arange(0, BLOCK_R)  # [BLOCK_R], BLOCK_R >= ranks * experts
    count = tl.load(counts_ptr + run, mask=run < ranks * experts, other=0)
    rank, expert = run // experts, run % experts
    chunk = ((expert + 1) * chunks - 1) // experts
    length = tl.sum(tl.where(run == own, count, 0))
    before = (rank < own_rank) | ((rank == own_rank) & (expert < own_expert))
    source = tl.sum(tl.where((chunk == own_chunk) & before, count, 0))  # the run's place in its chunk on arrival
    before = (expert < own_expert) | ((expert == own_expert) & (rank < own_rank))
    target = tl.sum(tl.where((chunk == own_chunk) & before, count, 0))  # and sorted by expert
    first = tl.sum(tl.where(chunk < own_chunk, count, 0))  # the chunk's place
    for start in tl.range(0, length, BLOCK):
        row = start + tl.arange(0, BLOCK)  # [BLOCK]
        tl.store(tokens_ptr + first + target + row, source + row, mask=row < length)
        tl.store(rows_ptr + first + source + row, target + row, mask=row < length)
    if own_rank == 0:
        tl.store(offsets_ptr + own_expert + own_chunk, target)
        tl.store(totals_ptr + own_expert, tl.sum(tl.where(expert == own_expert, count, 0)))
    if own_rank == ranks - 1:  # the next expert's first row, or the chunk's end
        last = ((own_expert + 2) * chunks - 1) // experts != own_chunk
        tl.store(offsets_ptr + own_expert + own_chunk + 1, target + length, mask=last)


def chunk_bounds(experts: int, chunks: int) -> list[tuple[int, int]]:
    """(first, last + 1) of each rank's experts in each chunk."""
    ends = [experts * chunk // chunks for chunk in range(chunks + 1)]
    return list(zip(ends, ends[1:]))


def sort_runs(counts: torch.Tensor, chunks: int, lengths: list[int]) -> list[Permutation]:
    """Sort by expert the rows that a rank receives.

    Args:
        counts: [ranks, experts], int32, contiguous: rows from each rank for each of this rank's experts. The rows of a
            chunk arrive by rank, and from each rank by expert.
        chunks: number of chunks.
        lengths: rows of each chunk, which the host knows.

    Returns:
        A Permutation for each chunk, whose tokens are the rows in the order of arrival.
    """
    ranks, experts = counts.shape
    int32 = {"dtype": torch.int32, "device": counts.device}
    tokens, rows = torch.empty(sum(lengths), **int32), torch.empty(sum(lengths), 1, **int32)
    offsets, totals = torch.empty(experts + chunks, **int32), torch.empty(experts, **int32)
    sort_runs_kernel[(ranks * experts,)](
        counts, tokens, rows, offsets, totals,
        ranks, experts, chunks,
        BLOCK_R=next_power_of_2(ranks * experts), BLOCK=BLOCK,
    )  # fmt: skip
    own = [last - first for first, last in chunk_bounds(experts, chunks)]
    parts = offsets.split([count + 1 for count in own]), tokens.split(lengths), rows.split(lengths), totals.split(own)
    return [Permutation(*part) for part in zip(*parts)]


class _Exchange(torch.autograd.Function):
    """An all-to-all of rows; its backward sends the gradients back, with the counts exchanged."""

    @staticmethod
    def forward(ctx, rows, send_counts, recv_counts, group):
        ctx.send_counts, ctx.recv_counts, ctx.group = send_counts, recv_counts, group
        out = rows.new_empty(sum(recv_counts), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), recv_counts, send_counts, group=group)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        drows = dout.new_empty(sum(ctx.send_counts), dout.shape[1])
        dist.all_to_all_single(drows, dout.contiguous(), ctx.send_counts, ctx.recv_counts, group=ctx.group)
        return drows, None, None, None


def exchange(
    rows: torch.Tensor, send_counts: list[int], recv_counts: list[int], group=None, out: torch.Tensor | None = None
) -> tuple[torch.Tensor, Callable]:
    """Start an all-to-all of rows.

    Args:
        rows: [sum(send_counts), hidden], contiguous; send_counts[r] of them go to rank r.
        send_counts: one per rank.
        recv_counts: one per rank; recv_counts[r] rows come from rank r.
        group: a torch.distributed group. None: the default one.
        out: where to put the received rows. None: a new tensor.

    Returns:
        The tensor [sum(recv_counts), hidden], and a function to call before it is used. Until then rows travel while
        the GPU does other work. With gradients the tensor is always new and complete.
    """
    if wants_grad(rows):
        return _Exchange.apply(rows, send_counts, recv_counts, group), lambda: None
    out = rows.new_empty(sum(recv_counts), rows.shape[1]) if out is None else out
    work = dist.all_to_all_single(out, rows, recv_counts, send_counts, group=group, async_op=True)
    return out, work.wait


def send_order(ranks: int, experts: int, chunks: int) -> list[int]:
    """The experts in the order in which a rank sends their rows: by chunk, then by rank, then by expert.

    experts: of each rank; expert e of rank r has number r * experts + e.
    """
    return [
        rank * experts + expert
        for first, last in chunk_bounds(experts, chunks)
        for rank in range(ranks)
        for expert in range(first, last)
    ]


@cache
def send_positions(ranks: int, experts: int, chunks: int, device: torch.device) -> torch.Tensor:
    """[ranks * experts] int32: the position of each expert in `send_order`; 0, 1, 2 ... for one chunk."""
    return torch.tensor(send_order(ranks, experts, chunks)).argsort().to(device, torch.int32)


@dataclass(frozen=True)
class Chunk:
    """Rows that travel together. send_counts, recv_counts: rows to and from each rank. first, last: as in
    `chunk_bounds`."""

    send_counts: list[int]
    recv_counts: list[int]
    first: int
    last: int


def exchange_counts(counts: torch.Tensor, chunks: int, group=None) -> tuple[list[Chunk], torch.Tensor]:
    """Exchange how many rows travel, from counts [ranks, experts] int32: this rank's rows for each rank's experts.
    Returns the chunks, and [ranks, experts]: each rank's rows for this rank's experts. The host waits here, because it
    has to pass the counts to the all-to-alls."""
    both = counts.new_empty(2, *counts.shape)  # to, from
    both[0] = counts
    dist.all_to_all_single(both[1], both[0], group=group)
    to, from_ = both.tolist()
    plan = []
    for first, last in chunk_bounds(counts.shape[1], chunks):
        rows = ([sum(row[first:last]) for row in way] for way in (to, from_))
        plan.append(Chunk(*rows, first, last))
    return plan, both[1]


def expert_parallel_layer(
    x: torch.Tensor,
    router: torch.Tensor,
    w_gate_up: torch.Tensor,
    w_down: torch.Tensor,
    top_k: int,
    *,
    group: dist.ProcessGroup | None = None,
    chunks: int = 1,
    order: str = "softmax",
    renormalize: bool = True,
    capacity: int | None = None,
    sms: int | None = None,
) -> torch.Tensor:
    """Apply `moe_layer` over the ranks of a group. Every rank calls it with its own tokens. Differentiable.

    Args:
        x: [tokens, hidden], fp16, bf16 or fp32: this rank's tokens; the number may differ between ranks and be 0.
        router: [hidden, experts], x's dtype, the same on every rank.
        w_gate_up: [experts / ranks, hidden, 2 * inter], x's dtype: this rank's experts.
        w_down: [experts / ranks, inter, hidden], x's dtype: this rank's experts.
        top_k: as in `route`.
        group: a torch.distributed group. None: the default one.
        chunks: parts into which the exchange is split, at most the experts of a rank. With 1, no rows travel while
            experts compute.
        order: as in `route`.
        renormalize: as in `route`.
        capacity: rows that an expert takes from this rank's tokens, at most. None: no token is dropped.
        sms: SMs for the grouped matmuls; the others are left to communication. None: all.

    Returns:
        y [tokens, hidden], x's dtype, contiguous: the results of this rank's tokens.

    Raises:
        ValueError: names the argument, what it got and what was expected.

    Note:
        With gradients the chunks travel one after the other, and the router's gradient is that of this rank's tokens.
    """
    ranks, local = dist.get_world_size(group), len(w_down)
    check_layer(x, router, w_gate_up, w_down, ranks)
    if not 1 <= chunks <= local:
        raise ValueError(f"chunks: got {chunks}, expected 1 to {local}, the experts of a rank")
    position = send_positions(ranks, local, chunks, x.device)
    routing = route(x, router, top_k, order=order, renormalize=renormalize)
    permutation = permute(routing.experts if chunks == 1 else position[routing.experts], len(position), capacity)
    rows = gather_rows(x, permutation)
    counts = permutation.counts if chunks == 1 else permutation.counts[position]
    counts = counts if capacity is None else counts.clamp(max=capacity)
    plan, recv_counts = exchange_counts(counts.view(ranks, local), chunks, group)

    lengths = [sum(chunk.send_counts) for chunk in plan]
    *parts, spare = rows.split([*lengths, len(rows) - sum(lengths)])  # spare: rows left empty by what is dropped
    dispatch = [exchange(part, chunk.send_counts, chunk.recv_counts, group) for part, chunk in zip(parts, plan)]
    permutations = sort_runs(recv_counts, chunks, [sum(chunk.recv_counts) for chunk in plan])
    results = []
    for part, chunk, by_expert, (arrivals, wait) in zip(parts, plan, permutations, dispatch):
        wait()
        own = slice(chunk.first, chunk.last)
        y = experts(arrivals, w_gate_up[own], w_down[own], by_expert, sms=sms)
        y = combine(y, by_expert)  # back in the order of arrival
        results.append(exchange(y, chunk.recv_counts, chunk.send_counts, group, out=part))  # where its rows came from
    for _, wait in results:
        wait()
    if wants_grad(*(part for part, _ in results)):
        rows = torch.cat([*(part for part, _ in results), spare])
    return combine(rows, permutation, routing.gates)


@dataclass(frozen=True)
class ExchangeTraffic:
    """Bytes of rows that travel to their experts, and as many back.

    Args:
        dispatch: dispatch[r][s], bytes from rank r to rank s; combine moves as many from s to r.
        rows: rows that each rank's experts multiply.
    """

    dispatch: tuple[tuple[int, ...], ...]
    rows: tuple[int, ...]

    @property
    def local_bytes(self) -> tuple[int, ...]:
        """Bytes of each rank that stay on it."""
        return tuple(row[rank] for rank, row in enumerate(self.dispatch))

    @property
    def send_bytes(self) -> tuple[int, ...]:
        """Bytes that each rank sends to the others."""
        return tuple(sum(row) - local for row, local in zip(self.dispatch, self.local_bytes))

    @property
    def recv_bytes(self) -> tuple[int, ...]:
        """Bytes that each rank receives from the others."""
        return tuple(sum(column) - local for column, local in zip(zip(*self.dispatch), self.local_bytes))

    def seconds(self, rate: float) -> float:
        """Of dispatch, or of combine, on the slowest rank, if a rank sends and receives `rate` bytes/s at once."""
        return max(self.send_bytes + self.recv_bytes) / rate


def expert_parallel_traffic(counts: Sequence[Sequence[int]], hidden: int, dtype: torch.dtype) -> ExchangeTraffic:
    """Bytes between the ranks.

    Args:
        counts: counts[r][e], rows that the tokens of rank r have for expert e. Each rank has equally many experts, the
            first rank the first ones.
        hidden: columns of a row.
        dtype: of a row.

    Raises:
        ValueError: names the argument, what it got and what was expected.
    """
    ranks, widths = len(counts), sorted({len(row) for row in counts})
    if not ranks:
        raise ValueError("counts: got no ranks, expected at least one")
    if len(widths) > 1:
        raise ValueError(f"counts: got rows of {widths} experts, expected as many in each")
    if widths[0] % ranks:
        raise ValueError(f"counts: got {widths[0]} experts for {ranks} ranks, expected a multiple")
    share = widths[0] // ranks
    to = [[sum(row[rank * share : (rank + 1) * share]) for rank in range(ranks)] for row in counts]
    size = hidden * dtype.itemsize
    return ExchangeTraffic(tuple(tuple(rows * size for rows in row) for row in to), tuple(map(sum, zip(*to))))
