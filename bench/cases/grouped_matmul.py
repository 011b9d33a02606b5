"""Grouped matmuls of a mixture of experts: prefill, balanced and skewed; SwiGLU fused, with rows sorted beforehand or
gathered in the load; decode; the weight's gradient.

Peers: torch's grouped matmul; a loop of matmuls over the experts, whose sizes the host knows here; and one batched
matmul of groups padded to the largest, with rows copied there and back.
"""

from dataclasses import dataclass, replace
from functools import cache

import torch
import torch.nn.functional as F

from bench.cases import Call, Case, launch_of, random
from instruments.backend import device
from kernels.elementwise.swiglu import swiglu
from kernels.grouped_matmul.backward import (
    grouped_matmul_weight_gradient,
    grouped_matmul_weight_gradient_reference,
    grouped_matmul_weight_gradient_traffic,
)
from kernels.grouped_matmul.forward import grouped_matmul, grouped_matmul_reference, grouped_matmul_traffic
from kernels.moe.combine import gather_rows
from kernels.moe.permute import Permutation, permute_reference

BF16 = torch.bfloat16
#: experts, top_k, hidden, inter: of Mixtral 8x7B, and of DeepSeek-V2-Lite
MODELS = ((8, 2, 4096, 14336), (64, 6, 2048, 1408))
PREFILL = 8192  # tokens
RAGGED = ((1, 3, 1, 8, 16), (33, 5, 2, 70, 66), (130, 9, 3, 136, 272))  # tokens, experts, top_k, K, N

#: The weight of an expert in the draw, by its rank from 1. "hot": all tokens choose the first.
SKEWS = {
    "balanced": lambda rank: rank * 0 + 1,
    "zipf": lambda rank: 1 / rank,
    "hot": lambda rank: 1 + 1e9 * (rank == 1),
}


@dataclass(frozen=True)
class Groups:
    """Slots sorted into groups. permutation: as `gather_rows` takes it. counts: rows of each group."""

    permutation: Permutation
    counts: tuple

    @property
    def offsets(self) -> torch.Tensor:
        """As `grouped_matmul` takes them."""
        return self.permutation.offsets

    @property
    def rows(self) -> torch.Tensor:
        """As `grouped_matmul` takes them."""
        return self.permutation.tokens

    def here(self) -> "Groups":
        """The same on the course's device."""
        names = ("offsets", "tokens", "rows", "counts")
        tensors = {name: getattr(self.permutation, name).to(device()) for name in names}
        return replace(self, permutation=replace(self.permutation, **tensors))

    def in_order(self) -> "Groups":
        """The same groups with the rows of x sorted: row s for slot s."""
        order = torch.arange(len(self.rows), dtype=torch.int32)
        return replace(self, permutation=replace(self.permutation, tokens=order))


@cache
def draw_groups(tokens: int, experts: int, top_k: int, skew: str) -> Groups:
    """Groups of tokens that choose different experts at random, with the weights of a skew. Every call draws the same,
    on the CPU, because cases are also listed on machines without a GPU."""
    generator = torch.Generator().manual_seed(0)
    weights = SKEWS[skew](torch.arange(1, experts + 1, dtype=torch.float64))
    order = torch.randperm(experts, generator=generator)  # the hot one is anywhere
    experts_of = torch.multinomial(weights[order].expand(tokens, -1), top_k, generator=generator)
    permutation = permute_reference(experts_of, experts)
    return Groups(permutation, tuple(permutation.counts.tolist()))


def _weight(experts, K, N):
    return random(experts, K, N, dtype=BF16) * K**-0.5


def _torch(x, weight, groups):
    return torch._grouped_mm(x, weight, offs=groups.offsets[1:])


def _loop(x, weight, groups):
    y = x.new_empty(len(x), weight.shape[2])
    for part, matrix, out in zip(x.split(groups.counts), weight, y.split(groups.counts)):
        if len(part):
            torch.mm(part, matrix, out=out)
    return y


def _padded(x, weight, groups):
    longest, starts = max(groups.counts), groups.offsets[:-1].long()
    group = torch.repeat_interleave(groups.offsets.diff(), output_size=len(x))
    place = group * longest + torch.arange(len(x), device=x.device) - starts[group]
    padded = x.new_zeros(len(weight) * longest, x.shape[1])
    padded[place] = x
    return torch.bmm(padded.view(len(weight), longest, -1), weight).flatten(0, 1)[place]


def _matmul(tokens, experts, top_k, K, N, skew, peers):
    """One grouped matmul of sorted rows, K to N columns."""
    groups = draw_groups(tokens, experts, top_k, skew)
    return Case(
        "grouped_matmul" if skew == "balanced" else f"grouped_matmul_{skew}",
        (tokens, experts, top_k, K, N),
        BF16,
        lambda: (random(tokens * top_k, K, dtype=BF16), _weight(experts, K, N), groups.here()),
        grouped_matmul_traffic(groups.counts, K, N, BF16),
        lambda x, weight, groups: grouped_matmul_reference(x.double(), weight.double(), groups.offsets),
        {"bytes-first": lambda: lambda x, weight, groups: grouped_matmul(x, weight, groups.offsets)} | peers,
    )


PEERS = {"torch": lambda: _torch, "loop": lambda: _loop}
PREFILL_PEERS = {
    "bytes-first, persistent": lambda: lambda x, w, g: grouped_matmul(x, w, g.offsets, path="persistent"),
    "bytes-first, plain": lambda: lambda x, w, g: grouped_matmul(x, w, g.offsets, path="plain"),
    **PEERS,
    "padded": lambda: _padded,
}


def _gated(multiply):
    """A gather, a peer's grouped matmul, then torch's SwiGLU."""

    def function(x, weight, groups):
        gate, up = multiply(x[groups.rows], weight, groups).chunk(2, dim=1)
        return F.silu(gate) * up

    return lambda: function


def _unfused(x, weight, groups):
    return swiglu(*grouped_matmul(gather_rows(x, groups.permutation), weight, groups.offsets).chunk(2, dim=1))


def _sorted(x, weight, groups):
    return grouped_matmul(x, weight, groups.offsets, activation="swiglu")


def _gathered(x, weight, groups):
    return _sorted(gather_rows(x, groups.permutation), weight, groups)


def _gathering(x, weight, groups):
    return grouped_matmul(x, weight, groups.offsets, rows=groups.rows, activation="swiglu")


def _swiglu_reference(x, weight, groups):
    x, weight = x.double(), weight.double()
    return grouped_matmul_reference(x, weight, groups.offsets, rows=groups.rows, activation="swiglu")


def _swiglu(tokens, experts, top_k, K, inter, peers):
    """The first grouped matmul of a layer: the gather in its load, SwiGLU in its store."""
    groups = draw_groups(tokens, experts, top_k, "balanced")
    return Case(
        "grouped_matmul_swiglu",
        (tokens, experts, top_k, K, inter),
        BF16,
        lambda: (random(tokens, K, dtype=BF16), _weight(experts, K, 2 * inter), groups.here()),
        grouped_matmul_traffic(groups.counts, K, 2 * inter, BF16, tokens=tokens, activation="swiglu"),
        _swiglu_reference,
        {"bytes-first": lambda: _gathering} | peers,
    )


def _swiglu_sorted(tokens, experts, top_k, K, inter):
    """The same grouped matmul of sorted rows, with the plain load, and with the gather, which takes each row from its
    own place. Nothing else differs."""
    groups = draw_groups(tokens, experts, top_k, "balanced").in_order()
    return Case(
        "grouped_matmul_swiglu_sorted",
        (tokens, experts, top_k, K, inter),
        BF16,
        lambda: (random(tokens * top_k, K, dtype=BF16), _weight(experts, K, 2 * inter), groups.here()),
        grouped_matmul_traffic(groups.counts, K, 2 * inter, BF16, activation="swiglu"),
        _swiglu_reference,
        {"bytes-first": lambda: _sorted, "bytes-first, gathered in the load": lambda: _gathering},
    )


def _weight_gradient(tokens, experts, top_k, K, N):
    groups = draw_groups(tokens, experts, top_k, "balanced")
    return Case(
        "grouped_matmul_weight_gradient",
        (tokens, experts, top_k, K, N),
        BF16,
        lambda: (random(tokens * top_k, K, dtype=BF16), random(tokens * top_k, N, dtype=BF16), groups.here()),
        grouped_matmul_weight_gradient_traffic(groups.counts, K, N, BF16),
        lambda x, dy, groups: grouped_matmul_weight_gradient_reference(x.double(), dy.double(), groups.offsets),
        {
            "bytes-first": lambda: lambda x, dy, groups: grouped_matmul_weight_gradient(x, dy, groups.offsets),
            "torch": lambda: lambda x, dy, groups: torch._grouped_mm(x.mT, dy, offs=groups.offsets[1:]),
        },
    )


def cases() -> list[Case]:
    prefill, fused, decode, gradient = [], [], [], []
    for experts, top_k, hidden, inter in MODELS:
        model = experts, top_k, hidden, inter
        prefill += [_matmul(PREFILL, *model, skew, PREFILL_PEERS) for skew in SKEWS]
        torch_gated = {"torch": _gated(_torch)}
        variants = {"unfused": lambda: _unfused, "gathered first": lambda: _gathered}
        fused += [_swiglu(PREFILL, *model, variants | torch_gated), _swiglu_sorted(PREFILL, *model)]
        for tokens in (1, 8, 64):
            decode.append(_swiglu(tokens, *model, torch_gated | {"loop": _gated(_loop)}))
            decode.append(_matmul(tokens, experts, top_k, inter, hidden, "balanced", PEERS))
        gradient.append(_weight_gradient(PREFILL, *model))
    return prefill + fused + decode + gradient


def sanitize(tokens, experts, top_k, K, N, dtype):
    """Every path that takes the dtype and the sizes, with rows sorted and gathered, and weights of both layouts."""
    groups = draw_groups(tokens, experts, top_k, "zipf").here()
    x, slots = random(tokens, K, dtype=dtype), tokens * top_k
    weight = random(experts, K, N, dtype=dtype)
    paths = [None, "plain"]
    if dtype.itemsize == 2:
        paths += ["decode", *["persistent"] * (K % 8 == 0 and N % 16 == 0)]
    for path in paths:
        for matrices in (weight, weight.mT.contiguous().mT):
            for activation in (None, "swiglu"):
                grouped_matmul(x, matrices, groups.offsets, rows=groups.rows, activation=activation, path=path)
            grouped_matmul(x[groups.rows], matrices, groups.offsets, path=path)
    dy = random(slots, N, dtype=dtype)
    grouped_matmul_weight_gradient(x, dy, groups.offsets, rows=groups.rows)
    grouped_matmul_weight_gradient(x[groups.rows], dy, groups.offsets)


def counter_calls() -> list[Call]:
    """Prefill, with weights far larger than L2, and a decode step."""
    by_key = {(case.kernel, case.shape[:2]): case for case in cases()}
    keys = (("grouped_matmul", (PREFILL, 8)), ("grouped_matmul", (64, 8)), ("grouped_matmul_swiglu", (8, 64)))
    return [launch_of(by_key[key], name) for key in keys for name in ("bytes-first", "torch")]
