"""A mixture-of-experts layer: y[t] = the sum of gate[t, e] * expert_e(x[t]) over the top_k experts e of token t, where
expert_e(x) = (silu(x @ gate_e) * (x @ up_e)) @ down_e.

Five steps: route (router.py), permute (permute.py), the grouped matmul with gate and up, the grouped matmul with down
(kernels/grouped_matmul), combine (combine.py). The first grouped matmul gathers the tokens' rows in its load, unless
gathering them first is faster, and applies SwiGLU in its store. Nothing is read back to the host, so the layer can be
captured in a CUDA graph.

Minimum traffic: x, the router and the weights of every expert that has tokens read once, y written once. The steps also
exchange intermediate results through memory: for each of the tokens * top_k slots, inter values after SwiGLU and hidden
values after down.

Sources: gating a few of many experts is from Shazeer et al. (2017); two of eight experts with SwiGLU is Mixtral (Jiang
et al., 2024); many small experts is DeepSeekMoE (Dai et al., 2024).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.elementwise.swiglu import swiglu, swiglu_backward, swiglu_ops
from kernels.grouped_matmul.backward import grouped_matmul_weight_gradient
from kernels.grouped_matmul.forward import GroupedCall, gathers_first, grouped_matmul, grouped_matmul_traffic
from kernels.grouped_matmul.forward import plan_call as plan_grouped
from kernels.moe.combine import CombineCall, combine, combine_traffic, gather_rows_forward
from kernels.moe.combine import plan_call as plan_combine
from kernels.moe.permute import Permutation, PermuteCall, permute, permute_traffic
from kernels.moe.permute import plan_call as plan_permute
from kernels.moe.router import RouteCall, Routing, route, router_reference, router_traffic
from kernels.moe.router import plan_call as plan_route
from kernels.shared.arguments import check_tensor, wants_grad
from kernels.shared.metadata import by_metadata


def experts_reference(
    x: torch.Tensor, w_gate_up: torch.Tensor, w_down: torch.Tensor, routing: Routing, capacity: int | None = None
) -> torch.Tensor:
    """The experts of `moe_layer` in plain PyTorch: a loop in which each expert takes the tokens that chose it, in their
    order and at most `capacity`."""
    y = torch.zeros_like(x)
    for expert, (gate_up, down) in enumerate(zip(w_gate_up, w_down)):
        token, choice = (index[:capacity] for index in torch.where(routing.experts == expert))
        gate, up = (x[token] @ gate_up).chunk(2, dim=-1)
        result = (F.silu(gate) * up) @ down
        y = y.index_add(0, token, (result * routing.gates[token, choice, None]).to(x.dtype))
    return y


def moe_layer_reference(
    x: torch.Tensor,
    router: torch.Tensor,
    w_gate_up: torch.Tensor,
    w_down: torch.Tensor,
    top_k: int,
    *,
    order: str = "softmax",
    renormalize: bool = True,
    capacity: int | None = None,
) -> torch.Tensor:
    """`moe_layer` in plain PyTorch; fp64 inputs give a reference."""
    routing = router_reference(x, router, top_k, order=order, renormalize=renormalize)
    return experts_reference(x, w_gate_up, w_down, routing, capacity)


def _first_rows(x: torch.Tensor, weight: torch.Tensor, permutation: Permutation) -> tuple:
    """(x, rows) of the first grouped matmul: gathered in its load, or before it where that is faster."""
    if gathers_first(x, weight, len(permutation.tokens)):
        return gather_rows_forward(x, permutation), None
    return x, permutation.tokens


class _Experts(torch.autograd.Function):
    """Saves the result of the first grouped matmul, before SwiGLU; the backward recomputes SwiGLU."""

    @staticmethod
    def forward(ctx, x, w_gate_up, w_down, permutation, sms):
        ctx.permutation, ctx.sms = permutation, sms
        source, rows = _first_rows(x, w_gate_up, permutation)
        gate_up = grouped_matmul(source, w_gate_up, permutation.offsets, rows=rows, sms=sms)
        ctx.save_for_backward(x, w_gate_up, w_down, gate_up)
        return grouped_matmul(swiglu(*gate_up.chunk(2, dim=-1)), w_down, permutation.offsets, sms=sms)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w_gate_up, w_down, gate_up = ctx.saved_tensors
        offsets = ctx.permutation.offsets
        gate, up = gate_up.chunk(2, dim=-1)
        dw_down = grouped_matmul_weight_gradient(swiglu(gate, up), dy, offsets)
        dhidden = grouped_matmul(dy, w_down.mT, offsets, sms=ctx.sms)
        dgate_up = torch.cat(swiglu_backward(dhidden, gate, up), dim=-1)
        # gathered first, so that TMA can load the rows
        dw_gate_up = grouped_matmul_weight_gradient(gather_rows_forward(x, ctx.permutation), dgate_up, offsets)
        dx = grouped_matmul(dgate_up, w_gate_up.mT, offsets, sms=ctx.sms)
        return combine(dx, ctx.permutation), dw_gate_up, dw_down, None, None


def experts(
    x: torch.Tensor, w_gate_up: torch.Tensor, w_down: torch.Tensor, permutation: Permutation, *, sms: int | None = None
) -> torch.Tensor:
    """Apply to each row of a permutation its expert. Differentiable in x and both weights.

    Args:
        x: [tokens, hidden], as in `moe_layer`, which checks it and the weights.
        w_gate_up: [experts, hidden, 2 * inter].
        w_down: [experts, inter, hidden].
        permutation: as `permute` returns it.
        sms: as in `grouped_matmul`.

    Returns:
        [slots, hidden], x's dtype, contiguous, sorted by expert.

    Note:
        In training the first grouped matmul is stored for the backward; else SwiGLU is fused into its store.
    """
    if wants_grad(x, w_gate_up, w_down):
        return _Experts.apply(x, w_gate_up, w_down, permutation, sms)
    source, rows = _first_rows(x, w_gate_up, permutation)
    hidden = grouped_matmul(source, w_gate_up, permutation.offsets, rows=rows, activation="swiglu", sms=sms)
    return grouped_matmul(hidden, w_down, permutation.offsets, sms=sms)


@by_metadata
def check_layer(x, router, w_gate_up, w_down, ranks: int):
    """Raise ValueError unless the tensors are those of a layer whose experts are spread evenly over `ranks`."""
    check_tensor("x", x)
    if x.dim() != 2:
        raise ValueError(f"x: got shape {tuple(x.shape)}, expected (tokens, hidden)")
    check_tensor("w_down", w_down, like=x, dtypes=(x.dtype,))
    if w_down.dim() != 3 or w_down.shape[2] != x.shape[1]:
        raise ValueError(f"w_down: got shape {tuple(w_down.shape)}, expected (experts, inter, {x.shape[1]})")
    count, inter, hidden = w_down.shape
    why = f", w_down being {tuple(w_down.shape)}"
    check_tensor("w_gate_up", w_gate_up, shape=(count, hidden, 2 * inter), like=x, dtypes=(x.dtype,), why=why)
    if ranks > 1:
        why += f" on each of {ranks} ranks"
    check_tensor("router", router, shape=(hidden, ranks * count), like=x, dtypes=(x.dtype,), why=why)


@dataclass(frozen=True)
class LayerPlan:
    """The plans of the five steps of a call without gradients. gathers_first: whether rows are gathered before the
    first grouped matmul."""

    route: RouteCall
    permute: PermuteCall
    gathers_first: bool
    gate_up: GroupedCall
    down: GroupedCall
    combine: CombineCall

    def __call__(self, x, router, w_gate_up, w_down) -> torch.Tensor:
        chosen, gates, _ = self.route(x, router)
        permutation = self.permute(chosen)
        source, rows = x, permutation.tokens
        if self.gathers_first:
            source, rows = gather_rows_forward(x, permutation), None
        hidden = self.gate_up(source, w_gate_up, permutation.offsets, rows)
        return self.combine(self.down(hidden, w_down, permutation.offsets), permutation.rows, gates)


@by_metadata
def _plan(x, router, w_gate_up, w_down, top_k, order, renormalize, capacity) -> LayerPlan | None:
    """The plan of a call, whose arguments it checks; None with gradients, for which each step has its own."""
    check_layer(x, router, w_gate_up, w_down, 1)
    route_plan = plan_route(x, router, top_k, order, renormalize)
    (tokens, hidden), (count, inter, _) = x.shape, w_down.shape
    permute_plan, slots = plan_permute(tokens, top_k, count, capacity, x.device), tokens * top_k
    if wants_grad(x, router, w_gate_up, w_down):
        return None
    # of what the steps hand on: strides and alignment as of the real ones
    gathered, gated, out = (torch.empty((slots, n), dtype=x.dtype, device="meta") for n in (hidden, inter, hidden))
    first = gathers_first(x, w_gate_up, slots)
    return LayerPlan(
        route_plan,
        permute_plan,
        first,
        plan_grouped(gathered if first else x, w_gate_up, slots, not first, "swiglu"),
        plan_grouped(gated, w_down, slots, False, None),
        plan_combine(out, tokens, top_k),
    )


def moe_layer(
    x: torch.Tensor,
    router: torch.Tensor,
    w_gate_up: torch.Tensor,
    w_down: torch.Tensor,
    top_k: int,
    *,
    order: str = "softmax",
    renormalize: bool = True,
    capacity: int | None = None,
) -> torch.Tensor:
    """Route each token to top_k experts and add up their results, weighted by the gates.

    Differentiable in x, router and both weights.

    Args:
        x: [tokens, hidden], fp16, bf16 or fp32, any strides.
        router: [hidden, experts], x's dtype, any strides.
        w_gate_up: [experts, hidden, 2 * inter], gate before up, x's dtype, any strides.
        w_down: [experts, inter, hidden], x's dtype, any strides.
        top_k: as in `route`.
        order: as in `route`.
        renormalize: as in `route`.
        capacity: rows per expert at most, the first in the order of the tokens; a token that is dropped gets nothing
            from that expert. None: no token is dropped.

    Returns:
        y [tokens, hidden], x's dtype, contiguous.

    Raises:
        ValueError: names the argument, what it got and what was expected.

    Note:
        The host never waits for the GPU.
    """
    plan = _plan(x, router, w_gate_up, w_down, top_k, order, renormalize, capacity)
    if plan:
        return plan(x, router, w_gate_up, w_down)
    routing = route(x, router, top_k, order=order, renormalize=renormalize)
    permutation = permute(routing.experts, router.shape[1], capacity)
    return combine(experts(x, w_gate_up, w_down, permutation), permutation, routing.gates)


def experts_traffic(
    counts: Sequence[int],
    hidden: int,
    inter: int,
    dtype: torch.dtype,
    *,
    tokens: int | None = None,
    path: str | None = "minimum",
    gpu: GPU = GPUS["H200"],
) -> dict[str, Traffic]:
    """Traffic of the two grouped matmuls of `experts`.

    Args:
        counts: rows of each expert.
        hidden: columns of x.
        inter: columns of gate, and of up.
        dtype: of x and the weights.
        tokens: rows of x. None: the sum of counts.
        path: as in `grouped_matmul_traffic`, for both.
        gpu: as in `grouped_matmul_traffic`.
    """
    shared = {"dtype": dtype, "path": path, "gpu": gpu}
    tokens = sum(counts) if tokens is None else tokens
    return {
        "gate and up": grouped_matmul_traffic(counts, hidden, 2 * inter, tokens=tokens, activation="swiglu", **shared),
        "down": grouped_matmul_traffic(counts, inter, hidden, **shared),
    }


def moe_steps(
    tokens: int,
    counts: Sequence[int],
    hidden: int,
    inter: int,
    dtype: torch.dtype,
    *,
    path: str | None = "minimum",
    gpu: GPU = GPUS["H200"],
) -> dict[str, Traffic]:
    """Traffic of each step of `moe_layer`, in order, if no slot is dropped.

    Args:
        tokens: rows of x.
        counts: rows of each expert, tokens * top_k in total.
        hidden: columns of x.
        inter: columns of gate, and of up.
        dtype: of x and the weights.
        path: "minimum", each byte of a step once. None: the requested bytes of the kernels.
        gpu: whose number of SMs sets the number of programs.
    """
    top_k, shared = sum(counts) // max(1, tokens), {"path": path, "gpu": gpu}
    return {
        "route": router_traffic(tokens, hidden, len(counts), top_k, dtype, **shared),
        "permute": permute_traffic(tokens, top_k, len(counts), path),
        **experts_traffic(counts, hidden, inter, dtype, tokens=tokens, **shared),
        "combine": combine_traffic(tokens, top_k, hidden, dtype, path),
    }


def moe_traffic(
    tokens: int,
    counts: Sequence[int],
    hidden: int,
    inter: int,
    dtype: torch.dtype,
    *,
    path: str | None = "minimum",
    gpu: GPU = GPUS["H200"],
) -> Traffic:
    """Bytes and FLOPs of `moe_layer`, with the arguments of `moe_steps`.

    path: "minimum", the layer's arguments and its result once; "naive", the eager loop of `moe_layer_reference`. None:
    the requested bytes of all kernels.
    """
    size, slots = dtype.itemsize, sum(counts)
    steps = moe_steps(tokens, counts, hidden, inter, dtype, path=None if path is None else "minimum", gpu=gpu)
    if path is None:
        return sum(steps.values())
    rows, active = tokens * hidden * size, [count for count in counts if count]
    if path == "minimum":
        weights = len(active) * hidden * inter * size
        read = {"x": rows, "router": hidden * len(counts) * size, "w_gate_up": 2 * weights, "w_down": weights}
        return Traffic(read, {"y": rows}, sum(step.flops for step in steps.values()), launches=1)
    if path != "naive":
        raise ValueError(f"path: got {path!r}, expected minimum, naive or None")
    loop = router_traffic(tokens, hidden, len(counts), slots // max(1, tokens), dtype, "naive")
    for count in active:
        gathered = count * hidden * size
        loop += Traffic({"experts": 4 * slots}, {"token": 8 * count, "choice": 8 * count}, launches=1)
        loop += Traffic({"x": gathered, "token": 8 * count}, {"gathered": gathered}, launches=1)
        loop += grouped_matmul_traffic([count], hidden, 2 * inter, dtype, path="naive")
        loop += sum(swiglu_ops(count * inter, dtype).values())
        loop += grouped_matmul_traffic([count], inter, hidden, dtype, path="naive")
        loop += Traffic({"y": gathered, "gates": 4 * count}, {"weighted": gathered}, count * hidden, launches=1)
        loop += Traffic({"weighted": gathered, "out": gathered}, {"out": gathered}, count * hidden, launches=1)
    return loop
