"""A layer of experts over several GPUs: each rank has some of the experts, and tokens of its own.

Rank r of n has the experts r * E / n to (r + 1) * E / n. A token's row goes to the ranks of its experts, dispatch, and
what they make of it comes back, combine: two all-to-alls with a different number of rows for every pair of ranks. So
that either side knows how many come, the numbers are exchanged first, and the host waits for them once a layer.

Minimum traffic between GPUs: tokens * top_k rows of hidden values each way, less those that stay on their rank, 1 / n
of them where experts are chosen evenly. In `chunks`, rows travel while others are multiplied: a chunk has the rows of
some of each rank's experts, so each weight is still read once and no expert's rows are cut up.

Experts over devices with two all-to-alls are GShard's (Lepikhin and others, 2020); chunks that travel beside the
products are Tutel's (Hwang and others, 2022), which cuts by tokens. Communication is torch.distributed's: NCCL on GPUs,
gloo on CPUs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from kernels.arguments import wants_grad
from kernels.expert_parallel_sort import chunk_bounds, sort_runs
from kernels.moe import check_layer, experts
from kernels.moe_combine import combine
from kernels.moe_permute import gather_rows, permute
from kernels.moe_router import route


class _Exchange(torch.autograd.Function):
    """An all-to-all of rows that autograd takes back: gradients go the other way, with the splits exchanged."""

    @staticmethod
    def forward(ctx, rows, sent, received, group):
        ctx.sent, ctx.received, ctx.group = sent, received, group
        out = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), received, sent, group=group)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        drows = dout.new_empty(sum(ctx.sent), dout.shape[1])
        dist.all_to_all_single(drows, dout.contiguous(), ctx.sent, ctx.received, group=ctx.group)
        return drows, None, None, None


def exchange(
    rows: torch.Tensor, sent: list[int], received: list[int], group=None, into: torch.Tensor | None = None
) -> tuple[torch.Tensor, Callable]:
    """rows [sum(sent), H], sent[r] of them to rank r -> [sum(received), H], received[r] of them from rank r.

    Returns the tensor, `into` where given, and what to call before it is used: until then it travels beside what the
    GPU does. With gradients it is a new one, and has arrived.
    """
    if wants_grad(rows):
        return _Exchange.apply(rows, sent, received, group), lambda: None
    into = rows.new_empty(sum(received), rows.shape[1]) if into is None else into
    work = dist.all_to_all_single(into, rows, received, sent, group=group, async_op=True)
    return into, work.wait


def order_of_sending(ranks: int, experts: int, chunks: int) -> list[int]:
    """The experts as their rows lie in what a rank sends: by chunk, in it by rank, in it by expert.

    experts: of each rank. Expert e of rank r has the number r * experts + e.
    """
    return [
        rank * experts + expert
        for first, last in chunk_bounds(experts, chunks)
        for rank in range(ranks)
        for expert in range(first, last)
    ]


@cache
def places(ranks: int, experts: int, chunks: int, device: torch.device) -> torch.Tensor:
    """[ranks * experts] int32: where each expert stands in order_of_sending, 0, 1, 2 ... for one chunk."""
    return torch.tensor(order_of_sending(ranks, experts, chunks)).argsort().to(device, torch.int32)


@dataclass(frozen=True)
class Chunk:
    """Rows that travel together. sent, received: how many to and from each rank. first, last: as in chunk_bounds."""

    sent: list[int]
    received: list[int]
    first: int
    last: int


def exchange_counts(counts: torch.Tensor, chunks: int, group=None) -> tuple[list[Chunk], torch.Tensor]:
    """counts [ranks, experts] int32: rows that this rank has for each rank's experts -> the chunks, and the counts that
    each rank has for this one's experts, as large. The host waits here, for it is to say how many rows travel."""
    both = counts.new_empty(2, *counts.shape)  # to, from
    both[0] = counts
    dist.all_to_all_single(both[1], both[0], group=group)
    to, from_ = both.tolist()
    planned = []
    for first, last in chunk_bounds(counts.shape[1], chunks):
        rows = ([sum(each[first:last]) for each in way] for way in (to, from_))
        planned.append(Chunk(*rows, first, last))
    return planned, both[1]


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
    """`moe_layer` over the ranks of a group; every one of them calls it, each with tokens of its own.

    x: [tokens, hidden], this rank's tokens, any number of them, none too. router: [hidden, experts], the same on every
    rank. w_gate_up: [experts / ranks, hidden, 2 * inter] and w_down: [experts / ranks, inter, hidden]: this rank's
    experts. group: torch.distributed's; None for the default one. chunks: how many parts the exchange is cut into, at
    most a rank's experts; with 1, nothing travels while experts compute. capacity: rows that an expert takes from this
    rank's tokens. sms: multiprocessors for the products, where the rest is left to those who communicate.

    Returns [tokens, hidden]: what this rank's tokens get. Differentiable; with gradients the chunks travel one after
    the other, and the router's gradient is of this rank's tokens alone. Raises ValueError naming the argument.
    """
    ranks, local = dist.get_world_size(group), len(w_down)
    check_layer(x, router, w_gate_up, w_down, ranks)
    if not 1 <= chunks <= local:
        raise ValueError(f"chunks: got {chunks}, expected 1 to {local}, the experts of a rank")
    place = places(ranks, local, chunks, x.device)
    routing = route(x, router, top_k, order=order, renormalize=renormalize)
    permutation = permute(routing.experts if chunks == 1 else place[routing.experts], len(place), capacity)
    rows = gather_rows(x, permutation)
    counts = permutation.counts if chunks == 1 else permutation.counts[place]
    counts = counts if capacity is None else counts.clamp(max=capacity)
    planned, received = exchange_counts(counts.view(ranks, local), chunks, group)

    taken = [sum(chunk.sent) for chunk in planned]
    *parts, free = rows.split([*taken, len(rows) - sum(taken)])  # free: what is dropped leaves rows over
    dispatched = [exchange(part, chunk.sent, chunk.received, group) for part, chunk in zip(parts, planned)]
    by_expert = sort_runs(received, chunks, [sum(chunk.received) for chunk in planned])
    returned = []
    for part, chunk, sorting, (arrived, wait) in zip(parts, planned, by_expert, dispatched):
        wait()
        mine = slice(chunk.first, chunk.last)
        y = experts(arrived, w_gate_up[mine], w_down[mine], sorting, sms=sms)
        y = combine(y, sorting)  # in the order in which they came
        returned.append(exchange(y, chunk.received, chunk.sent, group, into=part))  # where its rows were sent from
    for _, wait in returned:
        wait()
    if wants_grad(*(part for part, _ in returned)):
        rows = torch.cat([*(part for part, _ in returned), free])
    return combine(rows, permutation, routing.gates)


@dataclass(frozen=True)
class Exchanged:
    """Bytes of rows on their way to their experts, and back. dispatch[r][s]: from rank r to rank s; combine moves as
    many from s to r. rows: that each rank's experts multiply."""

    dispatch: tuple[tuple[int, ...], ...]
    rows: tuple[int, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        """Bytes of each rank that stay on it."""
        return tuple(row[rank] for rank, row in enumerate(self.dispatch))

    @property
    def sent(self) -> tuple[int, ...]:
        """Bytes that each rank sends to the others."""
        return tuple(sum(row) - kept for row, kept in zip(self.dispatch, self.kept))

    @property
    def received(self) -> tuple[int, ...]:
        """Bytes that each rank receives from the others."""
        return tuple(sum(column) - kept for column, kept in zip(zip(*self.dispatch), self.kept))

    def seconds(self, rate: float) -> float:
        """Of dispatch, or of combine, where a rank sends and receives `rate` bytes/s at once: the slowest rank's."""
        return max(self.sent + self.received) / rate


def expert_parallel_traffic(counts: Sequence[Sequence[int]], hidden: int, dtype: torch.dtype) -> Exchanged:
    """What an exchange moves. counts[r][e]: rows that the tokens of rank r have for expert e; each rank has as many
    experts as the others, the first rank the first ones. Raises ValueError naming the argument."""
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
    return Exchanged(tuple(tuple(rows * size for rows in row) for row in to), tuple(map(sum, zip(*to))))
