"""A layer of experts: y[t] = the sum, over the top_k experts e of token t, of gate[t, e] * expert_e(x[t]), where
expert_e(x) = (silu(x @ gate_e) * (x @ up_e)) @ down_e.

Five steps: route (moe_router.py), permute (moe_permute.py), the product with gate and up (grouped_matmul.py, which
fetches the tokens' rows by itself, unless to sort them first is faster, and applies SwiGLU), the product with down,
combine (moe_combine.py). Nothing is read back to the host, so the layer runs in a CUDA graph.

Minimum traffic: x, the router and the weights of every expert that has tokens read once, y written once. The steps pass
more on through memory: for each of tokens * top_k rows, inter values after SwiGLU and hidden values after down.

The gate over a few of many experts is Shazeer and others' (2017); experts of SwiGLU, two of eight, are Mixtral's (Jiang
and others, 2024); many small ones DeepSeekMoE's (Dai and others, 2024).
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.arguments import check_tensor, wants_grad
from kernels.grouped_matmul import gathers_first, grouped_matmul, grouped_matmul_traffic
from kernels.grouped_matmul_backward import grouped_matmul_weight_gradient
from kernels.moe_combine import combine, combine_traffic
from kernels.moe_permute import Permutation, permute, permute_traffic
from kernels.moe_router import Routing, route, router_reference, router_traffic
from kernels.moe_rows import gather_rows_forward
from kernels.swiglu import swiglu, swiglu_backward, swiglu_ops


def experts_reference(
    x: torch.Tensor, w_gate_up: torch.Tensor, w_down: torch.Tensor, routing: Routing, capacity: int | None = None
) -> torch.Tensor:
    """What the chosen experts make of x, in plain PyTorch: a loop over all, each of which takes the tokens that chose
    it, at most `capacity`, in their order."""
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
    """The layer in plain PyTorch, eager: give it fp64 for a reference."""
    routing = router_reference(x, router, top_k, order=order, renormalize=renormalize)
    return experts_reference(x, w_gate_up, w_down, routing, capacity)


def _first_rows(x: torch.Tensor, weight: torch.Tensor, permutation: Permutation) -> tuple:
    """(x, rows) of the first product: gathered in its load, or before it where that is faster."""
    if gathers_first(x, weight, len(permutation.tokens)):
        return gather_rows_forward(x, permutation), None
    return x, permutation.tokens


class _Experts(torch.autograd.Function):
    """Keeps what the first product gives, before SwiGLU; SwiGLU itself is computed again in the backward."""

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
        # gathered before, so that tensor descriptors can address the rows
        dw_gate_up = grouped_matmul_weight_gradient(gather_rows_forward(x, ctx.permutation), dgate_up, offsets)
        dx = grouped_matmul(dgate_up, w_gate_up.mT, offsets, sms=ctx.sms)
        return combine(dx, ctx.permutation), dw_gate_up, dw_down, None, None


def experts(
    x: torch.Tensor, w_gate_up: torch.Tensor, w_down: torch.Tensor, permutation: Permutation, *, sms: int | None = None
) -> torch.Tensor:
    """Each row of a permutation through its expert: x [T, H] -> [slots, H], rows sorted by expert.

    Differentiable in x and both weights; in training the first product is kept for the backward, else SwiGLU is applied
    before it reaches memory. sms: as in `grouped_matmul`. Arguments are those of `moe_layer`, which checks them.
    """
    if wants_grad(x, w_gate_up, w_down):
        return _Experts.apply(x, w_gate_up, w_down, permutation, sms)
    source, rows = _first_rows(x, w_gate_up, permutation)
    hidden = grouped_matmul(source, w_gate_up, permutation.offsets, rows=rows, activation="swiglu", sms=sms)
    return grouped_matmul(hidden, w_down, permutation.offsets, sms=sms)


def check_layer(x, router, w_gate_up, w_down, ranks: int = 1):
    """Raise ValueError unless the tensors are a layer's, whose experts are spread evenly over so many ranks."""
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
    """A layer of experts, differentiable in x, router and both weights.

    x: [tokens, hidden], fp16, bf16 or fp32. router: [hidden, experts]. w_gate_up: [experts, hidden, 2 * inter], gate
    before up. w_down: [experts, inter, hidden]. All of one dtype, any strides. top_k, order, renormalize: as in
    `route`. capacity: rows that an expert takes at most, the first in the order of the tokens; what an overflowing
    token would have got from it is left out. None: all.

    Returns a contiguous [tokens, hidden] of x's dtype. The host waits for nothing. Raises ValueError naming the
    argument.
    """
    check_layer(x, router, w_gate_up, w_down)
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
    """What the two products of `experts` move, for so many rows of each expert. tokens: rows of x, counts' sum unless
    given. path: as in `grouped_matmul_traffic`, of both."""
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
    """What each step of `moe_layer` moves, in order, where nothing is dropped. counts: rows of each expert, tokens *
    top_k in all. path: the 'minimum' of every step, or None, what its programs ask for on a GPU."""
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
    """What a layer of experts moves: the 'minimum', its arguments and its result once; 'naive', the eager loop of
    `moe_layer_reference`; or, with None, what the programs of all steps ask for on a GPU. Arguments as in `moe_steps`.
    """
    size, slots = dtype.itemsize, sum(counts)
    steps = moe_steps(tokens, counts, hidden, inter, dtype, path=None if path is None else "minimum", gpu=gpu)
    if path is None:
        return sum(steps.values())
    rows, touched = tokens * hidden * size, [count for count in counts if count]
    if path == "minimum":
        weights = len(touched) * hidden * inter * size
        read = {"x": rows, "router": hidden * len(counts) * size, "w_gate_up": 2 * weights, "w_down": weights}
        return Traffic(read, {"y": rows}, sum(step.flops for step in steps.values()), launches=1)
    if path != "naive":
        raise ValueError(f"path: got {path!r}, expected minimum, naive or None")
    loop = router_traffic(tokens, hidden, len(counts), slots // max(1, tokens), dtype, "naive")
    for count in touched:
        taken = count * hidden * size
        loop += Traffic({"experts": 4 * slots}, {"token": 8 * count, "choice": 8 * count}, launches=1)
        loop += Traffic({"x": taken, "token": 8 * count}, {"taken": taken}, launches=1)
        loop += grouped_matmul_traffic([count], hidden, 2 * inter, dtype, path="naive")
        loop += sum(swiglu_ops(count * inter, dtype).values())
        loop += grouped_matmul_traffic([count], inter, hidden, dtype, path="naive")
        loop += Traffic({"y": taken, "gates": 4 * count}, {"weighted": taken}, count * hidden, launches=1)
        loop += Traffic({"weighted": taken, "out": taken}, {"out": taken}, count * hidden, launches=1)
    return loop
