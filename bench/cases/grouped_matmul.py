"""Grouped products of a mixture of experts: prefill, balanced and skewed, SwiGLU fused, its rows sorted beforehand or
gathered, decode, the weight's gradient.

Peers: torch's own grouped product, a loop of products over the experts, whose sizes the host knows here, and one
batched product of groups padded to the largest, rows copied there and back.
"""

from dataclasses import dataclass, replace
from functools import cache

import torch
import torch.nn.functional as F

from bench.cases import Case, Counted, launch_of, random
from instruments.backend import device
from kernels.grouped_matmul import grouped_matmul, grouped_matmul_reference, grouped_matmul_traffic
from kernels.grouped_matmul_backward import (
    grouped_matmul_weight_gradient,
    grouped_matmul_weight_gradient_reference,
    grouped_matmul_weight_gradient_traffic,
)
from kernels.moe_permute import gather_rows, permute_reference
from kernels.moe_rows import Permutation
from kernels.swiglu import swiglu

BF16 = torch.bfloat16
#: experts, top_k, hidden, inter: of Mixtral 8x7B, and of DeepSeek-V2-Lite
MODELS = ((8, 2, 4096, 14336), (64, 6, 2048, 1408))
PREFILL = 8192  # tokens
RAGGED = ((1, 3, 1, 8, 16), (33, 5, 2, 70, 66), (130, 9, 3, 136, 272))  # tokens, experts, top_k, K, N

#: How much more likely an expert is than the next, as a weight by its rank from 1: "hot", all tokens choose the first.
SKEWS = {
    "balanced": lambda rank: rank * 0 + 1,
    "zipf": lambda rank: 1 / rank,
    "hot": lambda rank: 1 + 1e9 * (rank == 1),
}


@dataclass(frozen=True)
class Groups:
    """permutation: as gather_rows takes it. counts: rows of each group."""

    permutation: Permutation
    counts: tuple

    @property
    def offsets(self) -> torch.Tensor:
        """As grouped_matmul takes them."""
        return self.permutation.offsets

    @property
    def rows(self) -> torch.Tensor:
        """As grouped_matmul takes them."""
        return self.permutation.tokens

    def here(self) -> "Groups":
        """The same where the course puts its tensors."""
        names = ("offsets", "tokens", "rows", "counts")
        there = {name: getattr(self.permutation, name).to(device()) for name in names}
        return replace(self, permutation=replace(self.permutation, **there))

    def in_order(self) -> "Groups":
        """The same groups of rows that are sorted: row s for slot s."""
        order = torch.arange(len(self.rows), dtype=torch.int32)
        return replace(self, permutation=replace(self.permutation, tokens=order))


@cache
def routed(tokens: int, experts: int, top_k: int, skew: str) -> Groups:
    """Groups of tokens that choose different experts at random, with the weights of a skew: the same at every call, and
    on the CPU, for cases are listed where there is no GPU."""
    generator = torch.Generator().manual_seed(0)
    weights = SKEWS[skew](torch.arange(1, experts + 1, dtype=torch.float64))
    order = torch.randperm(experts, generator=generator)  # the hot one is anywhere
    chosen = torch.multinomial(weights[order].expand(tokens, -1), top_k, generator=generator)
    permutation = permute_reference(chosen, experts)
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
    most, starts = max(groups.counts), groups.offsets[:-1].long()
    group = torch.repeat_interleave(groups.offsets.diff(), output_size=len(x))
    place = group * most + torch.arange(len(x), device=x.device) - starts[group]
    padded = x.new_zeros(len(weight) * most, x.shape[1])
    padded[place] = x
    return torch.bmm(padded.view(len(weight), most, -1), weight).flatten(0, 1)[place]


def _product(tokens, experts, top_k, K, N, skew, peers):
    """One product of rows that lie sorted, K to N."""
    groups = routed(tokens, experts, top_k, skew)
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
    """Tokens gathered, multiplied by a peer, then torch's SwiGLU."""

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
    """The first product of a layer: the gather in its load, SwiGLU in its store."""
    groups = routed(tokens, experts, top_k, "balanced")
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
    """The same product of rows that lie sorted: read as they lie, and by the load that gathers, told to take each row
    from its own place. Nothing else differs."""
    groups = routed(tokens, experts, top_k, "balanced").in_order()
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
    groups = routed(tokens, experts, top_k, "balanced")
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
        prefill += [_product(PREFILL, *model, skew, PREFILL_PEERS) for skew in SKEWS]
        torch_gated = {"torch": _gated(_torch)}
        ways = {"unfused": lambda: _unfused, "gathered first": lambda: _gathered}
        fused += [_swiglu(PREFILL, *model, ways | torch_gated), _swiglu_sorted(PREFILL, *model)]
        for tokens in (1, 8, 64):
            decode.append(_swiglu(tokens, *model, torch_gated | {"loop": _gated(_loop)}))
            decode.append(_product(tokens, experts, top_k, inter, hidden, "balanced", PEERS))
        gradient.append(_weight_gradient(PREFILL, *model))
    return prefill + fused + decode + gradient


def sanitize(tokens, experts, top_k, K, N, dtype):
    """Every path that takes the dtype and the sizes, rows sorted and to be gathered, weights of both orders."""
    groups = routed(tokens, experts, top_k, "zipf").here()
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


def counted() -> list[Counted]:
    """Prefill with the experts' weights far beyond L2, and a decode step."""
    found = {(case.kernel, case.shape[:2]): case for case in cases()}
    keys = (("grouped_matmul", (PREFILL, 8)), ("grouped_matmul", (64, 8)), ("grouped_matmul_swiglu", (8, 64)))
    return [launch_of(found[key], name) for key in keys for name in ("bytes-first", "torch")]
