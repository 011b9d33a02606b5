"""How a router chooses experts from logits that lie in registers, what that moves, and its gradient.

The choice is exact and total. A float's bits, read as an integer, with those of negative numbers flipped, are in the
order of the floats; so integers are compared, and below every float there is room for a mark: an expert that does not
exist, or was chosen before. NaNs are put above all, as torch.topk has them.
"""

import torch

from instruments.backend import tl, triton
from kernels.tiles import LOG2E

NONE = tl.constexpr(-(1 << 31))  # below the integer of any float
LAST = tl.constexpr((1 << 31) - 1)  # a NaN's
TILE = 4096  # logits of a program of the backward


@triton.jit
def choose(
    logits, token, tokens, experts_ptr, gates_ptr, EXPERTS: tl.constexpr, TOP_K: tl.constexpr, OVER_ALL: tl.constexpr
):
    """From logits [BLOCK_T, BLOCK_E] of token [BLOCK_T, 1], store experts and gates [tokens, TOP_K], the largest first
    and ties to the lower index. OVER_ALL: gates are a softmax over all EXPERTS, not over the chosen."""
    BLOCK_E: tl.constexpr = logits.shape[1]
    expert = tl.arange(0, BLOCK_E)[None, :]  # [1, BLOCK_E]
    bits = logits.to(tl.int32, bitcast=True)
    key = tl.where(logits == logits, bits ^ ((bits >> 31) & LAST), LAST)  # [BLOCK_T, BLOCK_E]
    key = tl.where(expert < EXPERTS, key, NONE)
    chosen, kept = (), ()
    for _ in tl.static_range(TOP_K):
        best = tl.max(key, axis=1, keep_dims=True)  # [BLOCK_T, 1]
        winner = tl.min(tl.where(key == best, expert, BLOCK_E), axis=1, keep_dims=True)
        key = tl.where(expert == winner, NONE, key)
        chosen = chosen + (winner,)
        kept = kept + ((best ^ ((best >> 31) & LAST)).to(tl.float32, bitcast=True),)
    if OVER_ALL:
        weights = tl.exp2((logits - kept[0]) * LOG2E)
        total = tl.sum(tl.where(expert < EXPERTS, weights, 0.0), axis=1, keep_dims=True)  # [BLOCK_T, 1]
    else:
        total = tl.exp2((kept[0] - kept[0]) * LOG2E)
        for i in tl.static_range(1, TOP_K):
            total += tl.exp2((kept[i] - kept[0]) * LOG2E)
    for i in tl.static_range(TOP_K):
        gate = tl.exp2((kept[i] - kept[0]) * LOG2E) / total
        tl.store(experts_ptr + token * TOP_K + i, chosen[i], mask=token < tokens)
        tl.store(gates_ptr + token * TOP_K + i, gate, mask=token < tokens)


@triton.jit
def route_splits_kernel(
    part_ptr,
    experts_ptr,
    gates_ptr,
    logits_ptr,
    tokens,
    splits,
    EXPERTS: tl.constexpr,
    TOP_K: tl.constexpr,
    OVER_ALL: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
    EARLY: tl.constexpr,
):
    """BLOCK_T tokens, whose logits are the sums over part [splits, tokens, EXPERTS]; the rest as for route_kernel."""
    token = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)[:, None]  # [BLOCK_T, 1]
    expert = tl.arange(0, BLOCK_E)[None, :]  # [1, BLOCK_E]
    split = tl.arange(0, BLOCK_S)[:, None, None]  # [BLOCK_S, 1, 1], BLOCK_S >= splits
    place = token * EXPERTS + expert  # [BLOCK_T, BLOCK_E]
    mask = (token < tokens) & (expert < EXPERTS)
    if EARLY:
        tl.extra.cuda.gdc_wait()  # for the programs that leave the parts
    part = tl.load(
        part_ptr + split.to(tl.int64) * tokens * EXPERTS + place[None], mask=(split < splits) & mask[None], other=0.0
    )
    logits = tl.sum(part, axis=0)
    tl.store(logits_ptr + place, logits, mask=mask)
    choose(logits, token, tokens, experts_ptr, gates_ptr, EXPERTS, TOP_K, OVER_ALL)


@triton.jit
def choose_backward_kernel(
    experts_ptr,
    gates_ptr,
    logits_ptr,
    dgates_ptr,
    dlogits_ptr,
    out_ptr,
    tokens,
    EXPERTS: tl.constexpr,
    TOP_K: tl.constexpr,
    OVER_ALL: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """out [tokens, EXPERTS]: the gradient by the logits, from that by the gates [tokens, TOP_K] and, unless None, that
    by the logits themselves [tokens, EXPERTS]; tensors contiguous."""
    token = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)[:, None]  # [BLOCK_T, 1]
    expert = tl.arange(0, BLOCK_E)[None, :]  # [1, BLOCK_E]
    row_mask = token < tokens
    place, mask = token * EXPERTS + expert, row_mask & (expert < EXPERTS)
    dlogits = tl.zeros([BLOCK_T, BLOCK_E], dtype=tl.float32)
    if dlogits_ptr is not None:
        dlogits += tl.load(dlogits_ptr + place, mask=mask, other=0.0)
    if dgates_ptr is not None:
        together = tl.zeros([BLOCK_T, 1], dtype=tl.float32)  # the sum of gate * dgate
        for i in tl.static_range(TOP_K):
            gate = tl.load(gates_ptr + token * TOP_K + i, mask=row_mask, other=0.0)
            together += gate * tl.load(dgates_ptr + token * TOP_K + i, mask=row_mask, other=0.0)
        for i in tl.static_range(TOP_K):
            chosen = tl.load(experts_ptr + token * TOP_K + i, mask=row_mask, other=-1)
            gate = tl.load(gates_ptr + token * TOP_K + i, mask=row_mask, other=0.0)
            dgate = tl.load(dgates_ptr + token * TOP_K + i, mask=row_mask, other=0.0)
            own = gate * dgate if OVER_ALL else gate * (dgate - together)
            dlogits += tl.where(expert == chosen, own, 0.0)
        if OVER_ALL:
            logits = tl.load(logits_ptr + place, mask=mask, other=float("-inf"))
            weights = tl.exp2((logits - tl.max(logits, axis=1, keep_dims=True)) * LOG2E)
            dlogits -= weights / tl.sum(weights, axis=1, keep_dims=True) * together
    tl.store(out_ptr + place, dlogits.to(out_ptr.dtype.element_ty), mask=mask)


def router_backward(
    experts: torch.Tensor,
    gates: torch.Tensor,
    logits: torch.Tensor,
    dgates: torch.Tensor | None,
    dlogits: torch.Tensor | None,
    dtype: torch.dtype,
    over_all: bool,
) -> torch.Tensor:
    """The gradient by the logits, [tokens, experts], rounded to dtype, in one launch: from that by the gates, through
    the softmax, and that by the logits themselves, either of which may be None. over_all: as in `choose`."""
    (tokens, num_experts), top_k = logits.shape, gates.shape[1]
    out = torch.empty((tokens, num_experts), dtype=dtype, device=logits.device)
    if tokens:
        block_e = triton.next_power_of_2(num_experts)
        block_t = TILE // block_e if tokens * block_e > TILE else triton.next_power_of_2(tokens)
        dgates, dlogits = (None if x is None else x.contiguous() for x in (dgates, dlogits))
        tensors = (experts, gates, logits, dgates, dlogits, out)
        sizes = (tokens, num_experts, top_k, over_all, block_t, block_e)
        choose_backward_kernel[(triton.cdiv(tokens, block_t),)](*tensors, *sizes)
    return out
