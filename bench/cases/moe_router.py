"""The steps of a mixture of experts beside its matmuls: routing, sorting slots by expert, dispatch and combine of rows,
and the losses that balance a router.

Shapes: Mixtral's top-2 of 8 experts, DeepSeek-V2-Lite's top-6 of 64, DeepSeek-V3's top-8 of 256. The result compared is
a router's logits, and the sort's token of each row. Peers are plain PyTorch, unfused and compiled.
"""

import torch

from bench.cases import Case, by_columns, compiled, launch_of, random
from instruments.backend import device
from kernels.elementwise.swiglu import swiglu, swiglu_reference, swiglu_traffic
from kernels.moe.balance import losses_reference, losses_traffic, router_losses
from kernels.moe.combine import combine, combine_reference, combine_traffic, gather_rows, gather_traffic
from kernels.moe.permute import permute, permute_traffic
from kernels.moe.router import route, router_traffic

BF16 = torch.bfloat16
#: tokens, hidden, experts, top_k: inside a tile and beyond it, in one program and several
RAGGED = ((1, 1, 1, 1), (3, 40, 5, 2), (70, 1003, 60, 6), (1, 2056, 256, 8), (300, 130, 9, 8))
MIXTRAL, FINE, LARGE = (4096, 8, 2), (2048, 64, 6), (7168, 256, 8)


def _choices(tokens: int, experts: int, top_k: int) -> torch.Tensor:
    """[tokens, top_k] int32, all experts equally likely."""
    return torch.rand(tokens, experts, device=device()).topk(top_k, dim=1).indices.int()


def _router(tokens, hidden, experts, top_k, dtype=BF16):
    def ours(x, router):
        routing = route(x, router, top_k)
        return routing.logits, routing.experts, routing.gates

    def in_torch(x, router):
        logits = (x @ router).float()
        gates, experts_of = logits.softmax(dim=-1).topk(top_k, dim=-1)
        return logits, experts_of, gates / gates.sum(dim=-1, keepdim=True)

    return Case(
        "moe_router",
        (tokens, hidden, experts, top_k),
        dtype,
        lambda: (random(tokens, hidden, dtype=dtype), random(hidden, experts, dtype=dtype) / hidden**0.5),
        router_traffic(tokens, hidden, experts, top_k, dtype),
        lambda x, router: x.double() @ router.double(),
        {
            "bytes-first": lambda: ours,
            "torch": lambda: in_torch,
            "torch.compile": lambda: compiled(in_torch),
            "torch, the product alone": lambda: lambda x, router: x @ router,
        },
    )


def _sort(tokens, experts, top_k):
    def ours(choices):
        permutation = permute(choices, experts)
        return permutation.tokens, permutation.rows, permutation.counts, permutation.offsets

    def in_torch(choices):
        ordered, order = choices.flatten().sort(stable=True)
        rows = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
        ends = torch.searchsorted(ordered, torch.arange(experts, device=order.device), right=True)
        return order // top_k, rows.view(choices.shape), ends

    return Case(
        "moe_sort",
        (tokens, experts, top_k),
        torch.float32,  # of nothing: int32 throughout, and exact
        lambda: (_choices(tokens, experts, top_k),),
        permute_traffic(tokens, top_k, experts),
        lambda choices: in_torch(choices)[0].double(),
        {"bytes-first": lambda: ours, "torch": lambda: in_torch, "torch.compile": lambda: compiled(in_torch)},
    )


def _permute(tokens, hidden, experts, top_k, dtype=BF16):
    """The sort and the dispatch of rows."""

    def in_torch(x, choices):
        return x[choices.flatten().argsort(stable=True) // top_k]

    return Case(
        "moe_permute",
        (tokens, hidden, experts, top_k),
        dtype,
        lambda: (random(tokens, hidden, dtype=dtype), _choices(tokens, experts, top_k)),
        permute_traffic(tokens, top_k, experts) + gather_traffic(tokens, top_k, hidden, dtype),
        lambda x, choices: in_torch(x.double(), choices),
        {
            "bytes-first": lambda: lambda x, choices: gather_rows(x, permute(choices, experts)),
            "torch": lambda: in_torch,
            "torch.compile": lambda: compiled(in_torch),
        },
    )


def _combine(tokens, hidden, experts, top_k, dtype=BF16, gates_dtype=torch.float32):
    """gates_dtype: of torch's gates, bf16 in its layer; ours are fp32."""
    ours = {torch.float32: combine, BF16: lambda y, permutation, gates: combine(y, permutation, gates.float())}

    def arguments():
        permutation = permute(_choices(tokens, experts, top_k), experts)
        gates = torch.rand(tokens, top_k, device=device()).softmax(dim=1).to(gates_dtype)
        return random(tokens * top_k, hidden, dtype=dtype), permutation, gates

    def in_torch(y, permutation, gates):
        return (y[permutation.rows] * gates[..., None]).sum(dim=1).to(y.dtype)

    return Case(
        "moe_combine" if gates_dtype == torch.float32 else "moe_combine_bf16_gates",
        (tokens, hidden, experts, top_k),
        dtype,
        arguments,
        combine_traffic(tokens, top_k, hidden, dtype),
        lambda y, permutation, gates: combine_reference(y.double(), permutation, gates.double()),
        {
            "bytes-first": lambda: ours[gates_dtype],
            "torch": lambda: in_torch,
            "torch.compile": lambda: compiled(in_torch),
        },
    )


def _swiglu_of_halves(rows, inter):
    """What torch does between a layer's grouped matmuls: SwiGLU of the two halves of a tensor's columns."""

    def halves(both):
        return swiglu_reference(*both.chunk(2, dim=1))

    return Case(
        "moe_swiglu_of_halves",
        (rows, inter),
        BF16,
        lambda: (random(rows, 2 * inter, dtype=BF16),),
        swiglu_traffic(rows * inter, BF16),
        lambda both: halves(both.double()),
        {
            "bytes-first": lambda: lambda both: swiglu(*both.chunk(2, dim=1)),
            "torch": lambda: halves,
            "torch.compile": lambda: compiled(halves),
        },
    )


def _losses(tokens, experts):
    def arguments():
        counts = torch.bincount(_choices(tokens, experts, 2).flatten(), minlength=experts).int()
        return random(tokens, experts, dtype=torch.float32), counts

    return Case(
        "moe_losses",
        (tokens, experts),
        torch.float32,
        arguments,
        losses_traffic(tokens, experts),
        lambda logits, counts: losses_reference(logits.double(), counts).balance,
        {
            "bytes-first": lambda: router_losses,
            "torch": lambda: losses_reference,
            "torch.compile": lambda: compiled(losses_reference),
        },
    )


def cases() -> list[Case]:
    return [
        _router(65_536, *MIXTRAL),
        _router(65_536, *FINE),
        _router(65_536, *LARGE),
        _router(8192, *MIXTRAL),
        _router(8192, *FINE),
        _router(64, *MIXTRAL),
        _router(64, *FINE),
        _router(64, *LARGE),
        _router(1, *FINE),
        _sort(65_536, *MIXTRAL[1:]),
        _sort(65_536, *FINE[1:]),
        _sort(65_536, *LARGE[1:]),
        _sort(64, *FINE[1:]),
        _permute(65_536, *MIXTRAL),
        _permute(65_536, *FINE),
        _permute(8192, *LARGE),
        _combine(65_536, *MIXTRAL),
        _combine(65_536, *FINE),
        _combine(8192, *LARGE),
        _combine(64, *FINE),
        _swiglu_of_halves(2 * 8192, 14_336),
        _combine(8192, *MIXTRAL, gates_dtype=BF16),
        _losses(65_536, 64),
        _losses(65_536, 256),
    ]


def counter_calls() -> list:
    return [
        launch_of(_router(65_536, *MIXTRAL)),
        launch_of(_router(65_536, *FINE)),
        launch_of(_permute(65_536, *FINE)),
        launch_of(_combine(65_536, *FINE)),
    ]


def sanitize(tokens, hidden, experts, top_k, dtype):
    """Every kernel and its backward, with a capacity and without, and column-major tensors."""
    x, router = (random(*size, dtype=dtype).requires_grad_() for size in ((tokens, hidden), (hidden, experts)))
    route(by_columns(x), by_columns(router), top_k)
    for order, renormalize in (("softmax", False), ("topk", True)):
        routing = route(x, router, top_k, order=order, renormalize=renormalize)
        sum(router_losses(routing.logits, permute(routing.experts, experts).counts)).backward(retain_graph=True)
        for capacity in (None, 2):
            permutation = permute(routing.experts, experts, capacity)
            y = gather_rows(x, permutation)
            (combine(y, permutation, routing.gates).sum() + combine(y, permutation).sum()).backward(retain_graph=True)
            gather_rows(by_columns(x), permutation)
            combine(by_columns(y), permutation, routing.gates.detach())
