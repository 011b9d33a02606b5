"""The router of a mixture of experts: logits = x @ router, the top_k experts of each token, and their gates.

Minimum traffic: x and router read once; experts, gates and logits written once. With few experts the matmul is
memory-bound: 2 * experts FLOPs per element of x. A program takes a tile of tokens and all experts, so a token's logits
stay in registers while its experts are chosen, in top_k rounds of a maximum. Where few tokens would leave most SMs
idle, split-K shares out the hidden dimension, and a second launch adds up the partial logits.

The choice is exact. The bits of a float, read as an integer and flipped for negative numbers, have the order of the
floats. Integers are compared, so there is a value below every float, which marks experts that do not exist or were
chosen before. NaNs rank above all numbers, as in torch.topk.

Sources: softmax over all experts before the choice is from Shazeer et al. (2017), as in Switch (2021) and DeepSeek-V2
(2024); softmax over the chosen logits is Mixtral's (2024). Softmax keeps the order, so both choose the largest logits,
and with renormalized gates both agree: exp(l_i) / sum of exp(l_j) over the chosen j.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import cdiv, next_power_of_2, tl, triton
from instruments.gpus import GPU, GPUS
from instruments.launcher import Launch
from instruments.traffic import Traffic
from kernels.grouped_matmul.persistent import SHARED, describable
from kernels.shared.arguments import check_tensor, wants_grad
from kernels.shared.device import DescriptorPlan, Device, device_of, has_dependent_launch, has_descriptors
from kernels.shared.metadata import by_metadata
from kernels.shared.tiles import LOG2E

MAX_TOP_K = 8
MAX_EXPERTS = 256
ORDERS = ("softmax", "topk")
WIDE = 128  # number of experts from which the router is compute-bound
TILE = 4096  # logits of a program of the backward

NONE = tl.constexpr(-(1 << 31))  # below the integer of any float
LAST = tl.constexpr((1 << 31) - 1)  # a NaN's


@dataclass(frozen=True)
class Routing:
    """Where each token goes.

    Args:
        experts: [tokens, top_k], int32, in descending order of their logits.
        gates: [tokens, top_k], fp32, the weight of each.
        logits: [tokens, experts], fp32.
    """

    experts: torch.Tensor
    gates: torch.Tensor
    logits: torch.Tensor


def router_reference(
    x: torch.Tensor, router: torch.Tensor, top_k: int, *, order: str = "softmax", renormalize: bool = True
) -> Routing:
    """`route` in plain PyTorch, in the precision of its arguments; fp64 inputs give a reference."""
    logits = x @ router
    experts = logits.sort(dim=-1, descending=True, stable=True).indices[:, :top_k]  # ties to the lower index
    if order == "topk":
        gates = logits.gather(-1, experts).softmax(dim=-1)
    else:
        gates = logits.softmax(dim=-1).gather(-1, experts)
        gates = gates / gates.sum(dim=-1, keepdim=True) if renormalize else gates
    return Routing(experts.int(), gates, logits)


@triton.jit
def choose_experts(
    logits, token, tokens, experts_ptr, gates_ptr,
    EXPERTS: tl.constexpr, TOP_K: tl.constexpr, OVER_ALL: tl.constexpr,
):  # fmt: skip
    """Store experts and gates [tokens, TOP_K] from logits [BLOCK_T, BLOCK_E] of token [BLOCK_T, 1], the largest first,
    ties to the lower index. OVER_ALL: gates are a softmax over all EXPERTS, not over the TOP_K."""
    BLOCK_E: tl.constexpr = logits.shape[1]
    expert = tl.arange(0, BLOCK_E)[None, :]  # [1, BLOCK_E]
    bits = logits.to(tl.int32, bitcast=True)
    key = tl.where(logits == logits, bits ^ ((bits >> 31) & LAST), LAST)  # [BLOCK_T, BLOCK_E]
    key = tl.where(expert < EXPERTS, key, NONE)
    top_experts, top_logits = (), ()
    for _ in tl.static_range(TOP_K):
        max_key = tl.max(key, axis=1, keep_dims=True)  # [BLOCK_T, 1]
        winner = tl.min(tl.where(key == max_key, expert, BLOCK_E), axis=1, keep_dims=True)
        key = tl.where(expert == winner, NONE, key)
        top_experts = top_experts + (winner,)
        top_logits = top_logits + ((max_key ^ ((max_key >> 31) & LAST)).to(tl.float32, bitcast=True),)
    if OVER_ALL:
        exps = tl.exp2((logits - top_logits[0]) * LOG2E)
        exp_sum = tl.sum(tl.where(expert < EXPERTS, exps, 0.0), axis=1, keep_dims=True)  # [BLOCK_T, 1]
    else:
        exp_sum = tl.exp2((top_logits[0] - top_logits[0]) * LOG2E)
        for i in tl.static_range(1, TOP_K):
            exp_sum += tl.exp2((top_logits[i] - top_logits[0]) * LOG2E)
    for i in tl.static_range(TOP_K):
        gate = tl.exp2((top_logits[i] - top_logits[0]) * LOG2E) / exp_sum
        tl.store(experts_ptr + token * TOP_K + i, top_experts[i], mask=token < tokens)
        tl.store(gates_ptr + token * TOP_K + i, gate, mask=token < tokens)


@triton.jit
def route_kernel(
    x, router, experts_ptr, gates_ptr, logits_ptr,  # tensors
    x_strides, router_strides,
    tokens, hidden, share,
    EXPERTS: tl.constexpr, TOP_K: tl.constexpr, OVER_ALL: tl.constexpr,
    SPLIT: tl.constexpr, TMA: tl.constexpr, PDL: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_E: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """BLOCK_T tokens of x [tokens, hidden] and router [hidden, EXPERTS]; experts and gates [tokens, TOP_K], logits
    [tokens, EXPERTS]. TMA: None, and x and router are pointers, with any strides; else both are tensor descriptors, of
    router by "rows" or, transposed, by "columns". SPLIT: only `share` of the hidden dimension, and its partial logits
    [splits, tokens, EXPERTS]. PDL: programmatic dependent launch."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()  # the second kernel may start, and wait for this one
    token = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)[:, None]  # [BLOCK_T, 1]
    expert = tl.arange(0, BLOCK_E)[None, :]  # [1, BLOCK_E], BLOCK_E >= EXPERTS
    first = tl.program_id(1) * share
    last = tl.minimum(first + share, hidden)
    logits = tl.zeros([BLOCK_T, BLOCK_E], dtype=tl.float32)
    for start in tl.range(first, last, BLOCK_K, num_stages=STAGES):
        if TMA is not None:
            x_tile = x.load([tl.program_id(0) * BLOCK_T, start])  # [BLOCK_T, BLOCK_K]
            router_tile = router.load([0, start]).T if TMA == "columns" else router.load([start, 0])
        else:
            k = start + tl.arange(0, BLOCK_K)  # [BLOCK_K]
            k_col, k_row = k.to(tl.int64)[None, :], k.to(tl.int64)[:, None]
            x_ptrs = x + token * x_strides[0] + k_col * x_strides[1]
            x_tile = tl.load(x_ptrs, mask=(token < tokens) & (k < last)[None, :], other=0.0)
            router_ptrs = router + k_row * router_strides[0] + expert * router_strides[1]
            router_tile = tl.load(router_ptrs, mask=(k < last)[:, None] & (expert < EXPERTS), other=0.0)
        logits = tl.dot(x_tile, router_tile, logits, input_precision="ieee")  # [BLOCK_T, BLOCK_E]
    mask = (token < tokens) & (expert < EXPERTS)
    if SPLIT:
        logits_ptr += tl.program_id(1).to(tl.int64) * tokens * EXPERTS
    tl.store(logits_ptr + token * EXPERTS + expert, logits, mask=mask)
    if not SPLIT:
        choose_experts(logits, token, tokens, experts_ptr, gates_ptr, EXPERTS, TOP_K, OVER_ALL)


@triton.jit
def route_splits_kernel(
    part_ptr, experts_ptr, gates_ptr, logits_ptr,  # tensors
    tokens, splits,
    EXPERTS: tl.constexpr, TOP_K: tl.constexpr, OVER_ALL: tl.constexpr, PDL: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """BLOCK_T tokens: their logits are the sums over part [splits, tokens, EXPERTS]; all else as in route_kernel."""
    token = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)[:, None]  # [BLOCK_T, 1]
    expert = tl.arange(0, BLOCK_E)[None, :]  # [1, BLOCK_E]
    split = tl.arange(0, BLOCK_S)[:, None, None]  # [BLOCK_S, 1, 1], BLOCK_S >= splits
    place = token * EXPERTS + expert  # [BLOCK_T, BLOCK_E]
    mask = (token < tokens) & (expert < EXPERTS)
    if PDL:
        tl.extra.cuda.gdc_wait()  # for the partial logits
    part = tl.load(
        part_ptr + split.to(tl.int64) * tokens * EXPERTS + place[None], mask=(split < splits) & mask[None], other=0.0
    )
    logits = tl.sum(part, axis=0)
    tl.store(logits_ptr + place, logits, mask=mask)
    choose_experts(logits, token, tokens, experts_ptr, gates_ptr, EXPERTS, TOP_K, OVER_ALL)


@triton.jit
def route_backward_kernel(
    experts_ptr, gates_ptr, logits_ptr, dgates_ptr, dlogits_ptr, out_ptr,  # tensors
    tokens,
    EXPERTS: tl.constexpr, TOP_K: tl.constexpr, OVER_ALL: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """out [tokens, EXPERTS]: the gradient of the logits, from dgates [tokens, TOP_K] and dlogits [tokens, EXPERTS],
    either of which may be None; all contiguous."""
    token = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)[:, None]  # [BLOCK_T, 1]
    expert = tl.arange(0, BLOCK_E)[None, :]  # [1, BLOCK_E]
    row_mask = token < tokens
    place, mask = token * EXPERTS + expert, row_mask & (expert < EXPERTS)
    dlogits = tl.zeros([BLOCK_T, BLOCK_E], dtype=tl.float32)
    if dlogits_ptr is not None:
        dlogits += tl.load(dlogits_ptr + place, mask=mask, other=0.0)
    if dgates_ptr is not None:
        dot = tl.zeros([BLOCK_T, 1], dtype=tl.float32)  # the sum of gate * dgate
        for i in tl.static_range(TOP_K):
            gate = tl.load(gates_ptr + token * TOP_K + i, mask=row_mask, other=0.0)
            dot += gate * tl.load(dgates_ptr + token * TOP_K + i, mask=row_mask, other=0.0)
        for i in tl.static_range(TOP_K):
            choice = tl.load(experts_ptr + token * TOP_K + i, mask=row_mask, other=-1)
            gate = tl.load(gates_ptr + token * TOP_K + i, mask=row_mask, other=0.0)
            dgate = tl.load(dgates_ptr + token * TOP_K + i, mask=row_mask, other=0.0)
            dlogit = gate * dgate if OVER_ALL else gate * (dgate - dot)
            dlogits += tl.where(expert == choice, dlogit, 0.0)
        if OVER_ALL:
            logits = tl.load(logits_ptr + place, mask=mask, other=float("-inf"))
            exps = tl.exp2((logits - tl.max(logits, axis=1, keep_dims=True)) * LOG2E)
            dlogits -= exps / tl.sum(exps, axis=1, keep_dims=True) * dot
    tl.store(out_ptr + place, dlogits.to(out_ptr.dtype.element_ty), mask=mask)


@dataclass(frozen=True)
class RouterPlan:
    """The launches. tiles: of tokens. splits: of the hidden dimension, `share` columns each. config: of route_kernel.
    merging: of route_splits_kernel."""

    tiles: int
    splits: int
    share: int
    config: dict
    merging: dict


@cache
def router_plan(tokens: int, hidden: int, experts: int, itemsize: int, gpu: Device) -> RouterPlan:
    """Tiles of tokens, and split-K where the tiles alone are too few for the GPU: more splits with few experts, whose
    partial logits are small beside x."""
    block_e = max(16, next_power_of_2(experts))
    wide = block_e >= WIDE
    max_block_t, block_k = (64, 64 if wide else 128) if itemsize == 2 else (16, 32)
    block_t = max(16, min(max_block_t, next_power_of_2(tokens)))
    tiles = cdiv(tokens, block_t)
    waves = 4 if block_e == 16 else 1
    splits = max(1, min(waves * gpu.sms // tiles, hidden // (2 * block_k), 32))
    share = cdiv(hidden, splits * block_k) * block_k
    splits = cdiv(hidden, share)
    stages = gpu.shared_per_sm * 9 // 10 // ((block_t + block_e) * block_k * itemsize)
    config = {"BLOCK_T": block_t, "BLOCK_K": block_k, "BLOCK_E": block_e, "STAGES": min(5 if wide else 3, stages)}
    config["num_warps"] = 8 if wide else 4
    block_s = next_power_of_2(splits)
    merging = {"BLOCK_S": block_s, "BLOCK_T": max(1, min(16, 4096 // (block_s * block_e))), "BLOCK_E": block_e}
    return RouterPlan(tiles, splits, share, config, merging)


def plan_operands(x: torch.Tensor, router: torch.Tensor, config: dict) -> tuple:
    """(plan for x, plan for router, TMA of route_kernel): of tensor descriptors with many experts, where GPU and
    strides allow it: by "rows", or by "columns" for a router whose columns are contiguous; else None for pointers."""
    if config["BLOCK_E"] < WIDE or x.itemsize != 2 or not has_descriptors(x.device, SHARED) or not describable(x):
        return None, None, None
    by_rows, block_k, block_e = describable(router), config["BLOCK_K"], config["BLOCK_E"]
    if not by_rows and not describable(router.T):
        return None, None, None
    matrix, tile = (router, [block_k, block_e]) if by_rows else (router.T, [block_e, block_k])
    x_plan = DescriptorPlan(x.shape, x.stride(), [config["BLOCK_T"], block_k])
    return x_plan, DescriptorPlan(matrix.shape, matrix.stride(), tile), "rows" if by_rows else "columns"


@dataclass(frozen=True)
class RouteCall:
    """A call's plan. tokens, num_experts, top_k, splits: sizes. x, router: of descriptors, None for pointers. kernel:
    None without tokens. merging: the second launch, where there are several splits."""

    tokens: int
    num_experts: int
    top_k: int
    splits: int = 1
    x: DescriptorPlan | None = None
    router: DescriptorPlan | None = None
    kernel: Launch | None = None
    merging: Launch | None = None

    def __call__(self, x: torch.Tensor, router: torch.Tensor) -> tuple:
        """(experts, gates, logits)."""
        experts = torch.empty((self.tokens, self.top_k), dtype=torch.int32, device=x.device)
        gates = torch.empty((self.tokens, self.top_k), dtype=torch.float32, device=x.device)
        logits = part = torch.empty((self.tokens, self.num_experts), dtype=torch.float32, device=x.device)
        if self.kernel is None:
            return experts, gates, logits
        if self.merging:
            part = logits.new_empty((self.splits, self.tokens, self.num_experts))
        if self.x:
            x, router = self.x(x), self.router(router)
        self.kernel(x, router, experts, gates, part)
        if self.merging:
            self.merging(part, experts, gates, logits)
        return experts, gates, logits


@by_metadata
def plan_call(x, router, top_k, order, renormalize) -> RouteCall:
    """The plan of a call, whose arguments it checks."""
    _check(x, router, top_k, order)
    (tokens, hidden), num_experts = x.shape, router.shape[1]
    if not tokens:
        return RouteCall(tokens, num_experts, top_k)
    plan = router_plan(tokens, hidden, num_experts, x.itemsize, device_of(x.device))
    split, merging = plan.splits > 1, None
    pdl = split and has_dependent_launch(x.device)
    x_descriptor, router_descriptor, tma = plan_operands(x, router, plan.config)
    options = {"EXPERTS": num_experts, "TOP_K": top_k, "OVER_ALL": _over_all(order, renormalize), "PDL": pdl}
    kernel = Launch(
        route_kernel, (plan.tiles, plan.splits),
        x.stride(), router.stride(),
        tokens, hidden, plan.share,
        SPLIT=split, TMA=tma, **options, **plan.config,
    )  # fmt: skip
    if split:
        merging = Launch(
            route_splits_kernel, (cdiv(tokens, plan.merging["BLOCK_T"]),),
            tokens, plan.splits,
            **options, **plan.merging, **({"launch_pdl": True} if pdl else {}),
        )  # fmt: skip
    return RouteCall(tokens, num_experts, top_k, plan.splits, x_descriptor, router_descriptor, kernel, merging)


def _over_all(order: str, renormalize: bool) -> bool:
    """Whether the gates are those of a softmax over all experts, unchanged."""
    return order == "softmax" and not renormalize


def _backward(
    experts: torch.Tensor,
    gates: torch.Tensor,
    logits: torch.Tensor,
    dgates: torch.Tensor | None,
    dlogits: torch.Tensor | None,
    dtype: torch.dtype,
    over_all: bool,
) -> torch.Tensor:
    """The gradient of the logits [tokens, experts] in `dtype`, from dgates through the softmax and from dlogits."""
    (tokens, num_experts), top_k = logits.shape, gates.shape[1]
    out = torch.empty((tokens, num_experts), dtype=dtype, device=logits.device)
    if tokens:
        block_e = next_power_of_2(num_experts)
        block_t = TILE // block_e if tokens * block_e > TILE else next_power_of_2(tokens)
        dgates, dlogits = (None if x is None else x.contiguous() for x in (dgates, dlogits))
        route_backward_kernel[(cdiv(tokens, block_t),)](
            experts, gates, logits, dgates, dlogits, out,
            tokens,
            EXPERTS=num_experts, TOP_K=top_k, OVER_ALL=over_all, BLOCK_T=block_t, BLOCK_E=block_e,
        )  # fmt: skip
    return out


class _Route(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, router, over_all, plan):
        experts, gates, logits = plan(x, router)
        ctx.save_for_backward(x, router, experts, gates, logits)
        ctx.over_all = over_all
        ctx.mark_non_differentiable(experts)
        ctx.set_materialize_grads(False)
        return experts, gates, logits

    @staticmethod
    @once_differentiable
    def backward(ctx, _, dgates, dlogits):
        x, router, experts, gates, logits = ctx.saved_tensors
        dlogits = _backward(experts, gates, logits, dgates, dlogits, x.dtype, ctx.over_all)
        dx = dlogits @ router.T if ctx.needs_input_grad[0] else None
        drouter = x.T @ dlogits if ctx.needs_input_grad[1] else None
        return dx, drouter, None, None


def _check(x, router, top_k, order):
    check_tensor("x", x)
    check_tensor("router", router, like=x, dtypes=(x.dtype,))
    if x.dim() != 2 or not x.shape[1]:
        raise ValueError(f"x: got shape {tuple(x.shape)}, expected (tokens, hidden)")
    if router.dim() != 2 or router.shape[0] != x.shape[1] or router.shape[1] not in range(1, MAX_EXPERTS + 1):
        expected = f"({x.shape[1]}, experts), x's columns by 1 to {MAX_EXPERTS}"
        raise ValueError(f"router: got shape {tuple(router.shape)}, expected {expected}")
    max_top_k = min(MAX_TOP_K, router.shape[1])
    if not isinstance(top_k, int) or not 1 <= top_k <= max_top_k:
        raise ValueError(f"top_k: got {top_k!r}, expected a whole number from 1 to {max_top_k}")
    if order not in ORDERS:
        raise ValueError(f"order: got {order!r}, expected {' or '.join(ORDERS)}")


def route(
    x: torch.Tensor, router: torch.Tensor, top_k: int, *, order: str = "softmax", renormalize: bool = True
) -> Routing:
    """Choose top_k experts for each token, and the gates that weight their results. Differentiable.

    Args:
        x: [tokens, hidden], fp16, bf16 or fp32, any strides.
        router: [hidden, experts], x's dtype, any strides, 1 to 256 experts.
        top_k: 1 to 8, at most the number of experts.
        order: "softmax", a softmax over all experts, then the largest; or "topk", the largest logits, then a softmax
            over these.
        renormalize: with order "softmax", divide the gates by their sum, so that they add up to 1, as those of "topk"
            do anyway.

    Returns:
        The Routing. Experts are in descending order of their logits, ties go to the lower index.

    Raises:
        ValueError: names the argument, what it got and what was expected.

    Note:
        Logits are accumulated in fp32, and fp32 inputs are not rounded to TF32. A NaN ranks above every number. A token
        with a NaN or +inf among its logits, or with nothing but -inf, gets NaN as gates, and valid experts. Gates and
        logits have gradients.
    """
    plan = plan_call(x, router, top_k, order, renormalize)
    if wants_grad(x, router):
        return Routing(*_Route.apply(x, router, _over_all(order, renormalize), plan))
    return Routing(*plan(x, router))


def router_ops(tokens: int, hidden: int, experts: int, top_k: int, dtype: torch.dtype) -> dict[str, Traffic]:
    """Bytes and FLOPs of each op of `router_reference`, unfused and with the softmax in fp32, in order."""
    logits, slots = tokens * experts, tokens * top_k

    def op(read, written, flops=0):
        return Traffic(read, written, flops, launches=1)

    size = dtype.itemsize
    operands = {"x": tokens * hidden * size, "router": hidden * experts * size}
    return {
        "x @ router": op(operands, {"logits": logits * size}, 2 * logits * hidden),
        "to fp32": op({"logits": logits * size}, {"fp32 logits": logits * 4}),
        "softmax": op({"fp32 logits": logits * 4}, {"probabilities": logits * 4}, 5 * logits),
        "topk": op({"probabilities": logits * 4}, {"gates": slots * 4, "experts": slots * 8}),
        "sum": op({"gates": slots * 4}, {"sum": tokens * 4}, slots),
        "/ sum": op({"gates": slots * 4, "sum": tokens * 4}, {"gates": slots * 4}, slots),
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
    """Bytes of `route` and the FLOPs of its matmul.

    Args:
        tokens: rows of x.
        hidden: columns of x.
        experts: columns of router.
        top_k: experts per token.
        dtype: of x and router.
        path: "minimum", each byte once; "naive", the unfused ops of `router_ops`. None: the requested bytes of the
            kernels.
        gpu: whose number of SMs sets the split-K of path None.
    """
    ops = router_ops(tokens, hidden, experts, top_k, dtype)
    if path == "naive":
        return sum(ops.values())
    if path not in ("minimum", None):
        raise ValueError(f"path: got {path!r}, expected minimum, naive or None")
    read, logits = dict(ops["x @ router"].read), tokens * experts * 4
    written = {"experts": tokens * top_k * 4, "gates": tokens * top_k * 4, "logits": logits}
    if path is None:
        plan = router_plan(tokens, hidden, experts, dtype.itemsize, Device(gpu.sms, gpu.shared_per_sm))
        read["router"] *= plan.tiles
        if plan.splits > 1:
            read["part"] = written["part"] = plan.splits * logits
    return Traffic(read, written, ops["x @ router"].flops, 1 + ("part" in read))
