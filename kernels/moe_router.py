"""The router of a mixture of experts: logits = x @ router, their top_k experts per token, and the gates of these.

Minimum traffic: x and router read once; experts, gates and logits written once. With few experts the product is a
reading of x: 2 * experts FLOPs for each of its elements. A program takes some tokens and all experts, so that a
token's logits stay in registers while its experts are chosen, in top_k rounds of a maximum. Where few tokens would
leave most of a GPU idle, programs share the hidden dimension, and a second launch adds up what each leaves.

Softmax over all experts before the choice is Shazeer and others' (2017) as Switch (2021) and DeepSeek-V2 (2024) have
it; softmax over the chosen is Mixtral's (2024). Softmax keeps the order, so both choose the largest logits, and with
gates renormalised they agree: exp(l_i) / sum of exp(l_j) over the chosen j, either way.
"""

from dataclasses import dataclass

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.arguments import check_tensor, wants_grad
from kernels.attention_plan import launches_early
from kernels.moe_choose import choose, route_splits_kernel, router_backward
from kernels.moe_router_plan import described, plan
from kernels.rows import Device, device_of

MAX_TOP_K = 8
MAX_EXPERTS = 256
ORDERS = ("softmax", "topk")


@dataclass(frozen=True)
class Routing:
    """Where each token goes. experts: [tokens, top_k] int32, by falling logit. gates: [tokens, top_k] fp32, the weight
    of each. logits: [tokens, experts] fp32."""

    experts: torch.Tensor
    gates: torch.Tensor
    logits: torch.Tensor


def router_reference(
    x: torch.Tensor, router: torch.Tensor, top_k: int, *, order: str = "softmax", renormalize: bool = True
) -> Routing:
    """What `route` computes, in plain PyTorch, in the precision of its arguments: give it fp64."""
    logits = x @ router
    experts = logits.sort(dim=-1, descending=True, stable=True).indices[:, :top_k]  # ties to the lower index
    if order == "topk":
        gates = logits.gather(-1, experts).softmax(dim=-1)
    else:
        gates = logits.softmax(dim=-1).gather(-1, experts)
        gates = gates / gates.sum(dim=-1, keepdim=True) if renormalize else gates
    return Routing(experts.int(), gates, logits)


@triton.jit
def route_kernel(
    x,
    router,
    experts_ptr,
    gates_ptr,
    logits_ptr,
    x_strides,
    router_strides,
    tokens,
    hidden,
    share,
    EXPERTS: tl.constexpr,
    TOP_K: tl.constexpr,
    OVER_ALL: tl.constexpr,
    SPLIT: tl.constexpr,
    DESCRIBED: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_E: tl.constexpr,
    STAGES: tl.constexpr,
    EARLY: tl.constexpr,
):
    """BLOCK_T tokens: x [tokens, hidden], router [hidden, EXPERTS], pointers to any strides unless DESCRIBED: tensor
    descriptors, by "rows" or, of router transposed, by "columns"; experts and gates [tokens, TOP_K], logits [tokens,
    EXPERTS]. SPLIT: only `share` of the hidden dimension, its sums left in logits [splits, tokens, EXPERTS]."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()  # the second kernel may be launched, to wait for this one
    token = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)[:, None]  # [BLOCK_T, 1]
    expert = tl.arange(0, BLOCK_E)[None, :]  # [1, BLOCK_E], BLOCK_E >= EXPERTS
    first = tl.program_id(1) * share
    last = tl.minimum(first + share, hidden)
    logits = tl.zeros([BLOCK_T, BLOCK_E], dtype=tl.float32)
    for start in tl.range(first, last, BLOCK_K, num_stages=STAGES):
        if DESCRIBED is not None:
            x_tile = x.load([tl.program_id(0) * BLOCK_T, start])  # [BLOCK_T, BLOCK_K]
            weight = router.load([0, start]).T if DESCRIBED == "columns" else router.load([start, 0])
        else:
            k = start + tl.arange(0, BLOCK_K)  # [BLOCK_K]
            across, down = k.to(tl.int64)[None, :], k.to(tl.int64)[:, None]
            x_ptrs = x + token * x_strides[0] + across * x_strides[1]
            x_tile = tl.load(x_ptrs, mask=(token < tokens) & (k < last)[None, :], other=0.0)
            weight_ptrs = router + down * router_strides[0] + expert * router_strides[1]
            weight = tl.load(weight_ptrs, mask=(k < last)[:, None] & (expert < EXPERTS), other=0.0)
        logits = tl.dot(x_tile, weight, logits, input_precision="ieee")  # [BLOCK_T, BLOCK_E]
    mask = (token < tokens) & (expert < EXPERTS)
    if SPLIT:
        logits_ptr += tl.program_id(1).to(tl.int64) * tokens * EXPERTS
    tl.store(logits_ptr + token * EXPERTS + expert, logits, mask=mask)
    if not SPLIT:
        choose(logits, token, tokens, experts_ptr, gates_ptr, EXPERTS, TOP_K, OVER_ALL)


def _forward(x: torch.Tensor, router: torch.Tensor, top_k: int, over_all: bool) -> tuple:
    (tokens, hidden), num_experts = x.shape, router.shape[1]
    experts = torch.empty((tokens, top_k), dtype=torch.int32, device=x.device)
    gates = torch.empty((tokens, top_k), dtype=torch.float32, device=x.device)
    logits = torch.empty((tokens, num_experts), dtype=torch.float32, device=x.device)
    if not tokens:
        return experts, gates, logits
    chosen = plan(tokens, hidden, num_experts, x.itemsize, device_of(x.device))
    split = chosen.splits > 1
    early = {"EARLY": split and launches_early(x.device)}
    sums = logits.new_empty((chosen.splits, tokens, num_experts)) if split else logits
    operands = described(x, router, chosen.config)
    tensors = (*operands[:2], experts, gates, sums, x.stride(), router.stride())
    sizes = (tokens, hidden, chosen.share, num_experts, top_k, over_all, split, operands[2])
    route_kernel[chosen.tiles, chosen.splits](*tensors, *sizes, **chosen.config, **early)
    if split:
        grid = (triton.cdiv(tokens, chosen.merging["BLOCK_T"]),)
        sizes = (tokens, chosen.splits, num_experts, top_k, over_all)
        late = {"launch_pdl": True} if early["EARLY"] else {}
        route_splits_kernel[grid](sums, experts, gates, logits, *sizes, **chosen.merging, **early, **late)
    return experts, gates, logits


class _Route(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, router, top_k, over_all):
        experts, gates, logits = _forward(x, router, top_k, over_all)
        ctx.save_for_backward(x, router, experts, gates, logits)
        ctx.over_all = over_all
        ctx.mark_non_differentiable(experts)
        ctx.set_materialize_grads(False)
        return experts, gates, logits

    @staticmethod
    @once_differentiable
    def backward(ctx, _, dgates, dlogits):
        x, router, experts, gates, logits = ctx.saved_tensors
        upstream = router_backward(experts, gates, logits, dgates, dlogits, x.dtype, ctx.over_all)
        dx = upstream @ router.T if ctx.needs_input_grad[0] else None
        drouter = x.T @ upstream if ctx.needs_input_grad[1] else None
        return dx, drouter, None, None


def route(
    x: torch.Tensor, router: torch.Tensor, top_k: int, *, order: str = "softmax", renormalize: bool = True
) -> Routing:
    """Choose top_k experts for each token, and the gates by which their results are weighted; differentiable.

    x: [tokens, hidden], fp16, bf16 or fp32; router: [hidden, experts] of x's dtype, experts 1 to 256; any strides.
    top_k: 1 to 8, at most as many as there are experts. order: "softmax" (over all experts, then the largest) or "topk"
    (the largest logits, then softmax over these). renormalize: with "softmax", divide the gates by their sum, so that
    they add up to 1; those of "topk" do. Products are added up in fp32, and fp32 operands are not rounded.

    Returns a Routing: experts by falling logit, ties to the lower index, a NaN as the largest; gates; logits. A token
    with a NaN or +inf among its logits, or with nothing but -inf, has NaN for gates, and experts that exist.
    Gradients come from gates and logits. Raises ValueError naming the argument.
    """
    _check(x, router, top_k, order)
    over_all = order == "softmax" and not renormalize
    return Routing(*(_Route.apply if wants_grad(x, router) else _forward)(x, router, top_k, over_all))


def _check(x, router, top_k, order):
    """Raise ValueError naming the argument."""
    check_tensor("x", x)
    check_tensor("router", router, like=x, dtypes=(x.dtype,))
    if x.dim() != 2 or not x.shape[1]:
        raise ValueError(f"x: got shape {tuple(x.shape)}, expected (tokens, hidden)")
    if router.dim() != 2 or router.shape[0] != x.shape[1] or router.shape[1] not in range(1, MAX_EXPERTS + 1):
        expected = f"({x.shape[1]}, experts), the width of x by 1 to {MAX_EXPERTS}"
        raise ValueError(f"router: got shape {tuple(router.shape)}, expected {expected}")
    most = min(MAX_TOP_K, router.shape[1])
    if not isinstance(top_k, int) or not 1 <= top_k <= most:
        raise ValueError(f"top_k: got {top_k!r}, expected a whole number from 1 to {most}")
    if order not in ORDERS:
        raise ValueError(f"order: got {order!r}, expected {' or '.join(ORDERS)}")


def router_ops(tokens: int, hidden: int, experts: int, top_k: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """What each op of `router_reference`, run eagerly with its softmax in fp32, reads and writes, in order."""
    logits, chosen = tokens * experts, tokens * top_k

    def op(read, written, flops=0):
        return Traffic(read, written, flops, launches=1)

    size = dtype.itemsize
    operands = {"x": tokens * hidden * size, "router": hidden * experts * size}
    return {
        "x @ router": op(operands, {"product": logits * size}, 2 * logits * hidden),
        "to fp32": op({"product": logits * size}, {"logits": logits * 4}),
        "softmax": op({"logits": logits * 4}, {"probabilities": logits * 4}, 5 * logits),
        "topk": op({"probabilities": logits * 4}, {"gates": chosen * 4, "experts": chosen * 8}),
        "sum": op({"gates": chosen * 4}, {"total": tokens * 4}, chosen),
        "/ sum": op({"gates": chosen * 4, "total": tokens * 4}, {"gates": chosen * 4}, chosen),
    }


def router_traffic(
    tokens: int,
    hidden: int,
    experts: int,
    top_k: int,
    dtype: torch.dtype,
    path: str | None = "minimum",
    gpu: GPU | Device = GPUS["H200"],
) -> Traffic:
    """What routing moves: the 'minimum', each byte once; 'naive', the eager ops of `router_ops`; or, with None, what
    the programs of `route` ask for on a GPU, the H200 of the course's figures unless given. FLOPs: the product's.
    """
    ops = router_ops(tokens, hidden, experts, top_k, dtype)
    if path == "naive":
        return sum(ops.values())
    if path not in ("minimum", None):
        raise ValueError(f"path: got {path!r}, expected minimum, naive or None")
    read, logits = dict(ops["x @ router"].read), tokens * experts * 4
    written = {"experts": tokens * top_k * 4, "gates": tokens * top_k * 4, "logits": logits}
    if path is None:
        chosen = plan(tokens, hidden, experts, dtype.itemsize, Device(gpu.sms, gpu.shared_per_sm))
        read["router"] *= chosen.tiles
        if chosen.splits > 1:
            read["part"] = written["part"] = chosen.splits * logits
    return Traffic(read, written, ops["x @ router"].flops, 1 + ("part" in read))
