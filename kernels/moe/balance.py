"""Losses that keep a router's load balanced: the auxiliary loss of Switch and GShard, and the z-loss.

Balancing loss: experts * sum over e of f_e * P_e. f_e is the share of the slots that chose expert e, a count and so a
constant; P_e is the mean over the tokens of its probability. The loss is 1 where both are uniform, and up to `experts`
where every token chooses the same one (GShard, Lepikhin et al., 2020; Switch, Fedus, Zoph and Shazeer, 2021). z-loss:
the mean of logsumexp(logits)^2, which keeps the logits small (ST-MoE, Zoph et al., 2022).

Minimum traffic: logits read once; for the gradient once more, and the gradient written once. Each program adds up the
probabilities of its tokens and stores a row of partial sums. One more program adds up the rows in a fixed order, so the
result has the same bits in every run.
"""

from typing import NamedTuple

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import cdiv, next_power_of_2, tl, triton
from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.shared.arguments import check_tensor, wants_grad
from kernels.shared.device import Device, device_of
from kernels.shared.tiles import LOG2E

TILE = 4096  # logits of a step
PROGRAMS = 4  # per SM, at most
PARTS_TILE = 32_768  # partial sums that one program adds up in a step
MAX_EXPERTS = 1024


class Losses(NamedTuple):
    """The balancing loss and the z-loss, fp32 scalars."""

    balance: torch.Tensor
    z: torch.Tensor


def losses_reference(logits: torch.Tensor, counts: torch.Tensor) -> Losses:
    """`router_losses` in plain PyTorch, in the precision of logits; fp64 logits give a reference."""
    share = counts.to(logits.dtype) / counts.sum()
    balance = logits.shape[1] * (share * logits.softmax(dim=-1).mean(dim=0)).sum()
    return Losses(balance, logits.logsumexp(dim=-1).square().mean())


@triton.jit
def softmax_of_tile(logits_ptr, token, tokens, EXPERTS: tl.constexpr, BLOCK_E: tl.constexpr):
    """(probabilities [BLOCK_T, BLOCK_E], logsumexp [BLOCK_T, 1]) of token [BLOCK_T, 1]; zeros past the last token."""
    expert = tl.arange(0, BLOCK_E)[None, :]
    logits = tl.load(logits_ptr + token * EXPERTS + expert, mask=(token < tokens) & (expert < EXPERTS), other=0.0)
    logits = tl.where(expert < EXPERTS, logits, float("-inf"))
    max_logit = tl.max(logits, axis=1, keep_dims=True)
    exps = tl.exp2((logits - max_logit) * LOG2E)
    exp_sum = tl.sum(exps, axis=1, keep_dims=True)
    valid = token < tokens
    return tl.where(valid, exps / exp_sum, 0.0), tl.where(valid, max_logit + tl.log(exp_sum), 0.0)


@triton.jit
def sum_probabilities_kernel(
    logits_ptr, part_ptr,  # tensors
    tokens,
    EXPERTS: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """A row of part [programs, EXPERTS + 1]: over this program's tokens of logits [tokens, EXPERTS], the sum of each
    expert's probabilities, and the sum of logsumexp^2."""
    sums = tl.zeros([BLOCK_E], dtype=tl.float32)
    squares = tl.zeros([BLOCK_T, 1], dtype=tl.float32)
    for start in tl.range(tl.program_id(0) * BLOCK_T, tokens, tl.num_programs(0) * BLOCK_T):
        token = start + tl.arange(0, BLOCK_T).to(tl.int64)[:, None]  # [BLOCK_T, 1]
        probabilities, logsumexp = softmax_of_tile(logits_ptr, token, tokens, EXPERTS, BLOCK_E)
        sums += tl.sum(probabilities, axis=0)
        squares += logsumexp * logsumexp
    expert = tl.arange(0, BLOCK_E)  # [BLOCK_E]
    part_ptr += tl.program_id(0) * (EXPERTS + 1)
    tl.store(part_ptr + expert, sums, mask=expert < EXPERTS)
    tl.store(part_ptr + EXPERTS, tl.sum(squares))


@triton.jit
def losses_kernel(
    part_ptr, counts_ptr, losses_ptr,  # tensors
    tokens, programs,
    EXPERTS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """losses [2], from part [programs, EXPERTS + 1] and counts [EXPERTS]."""
    col = tl.arange(0, BLOCK_E)[None, :]  # [1, BLOCK_E], BLOCK_E > EXPERTS
    sums = tl.zeros([BLOCK_P, BLOCK_E], dtype=tl.float32)
    for start in tl.range(0, programs, BLOCK_P):
        program = start + tl.arange(0, BLOCK_P)[:, None]  # [BLOCK_P, 1]
        mask = (program < programs) & (col <= EXPERTS)
        sums += tl.load(part_ptr + program * (EXPERTS + 1) + col, mask=mask, other=0.0)
    means = tl.sum(sums, axis=0, keep_dims=True) / tokens  # [1, BLOCK_E]
    counts = tl.load(counts_ptr + col, mask=col < EXPERTS, other=0).to(tl.float32)
    tl.store(losses_ptr, EXPERTS * tl.sum(tl.where(col < EXPERTS, means * counts, 0.0)) / tl.sum(counts))
    tl.store(losses_ptr + 1, tl.sum(tl.where(col == EXPERTS, means, 0.0)))


@triton.jit
def losses_backward_kernel(
    logits_ptr, counts_ptr, dbalance_ptr, dz_ptr, dlogits_ptr,  # tensors
    tokens,
    EXPERTS: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """BLOCK_T tokens of dlogits [tokens, EXPERTS]; dbalance and dz: scalars, or None."""
    token = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)[:, None]  # [BLOCK_T, 1]
    expert = tl.arange(0, BLOCK_E)[None, :]  # [1, BLOCK_E]
    probabilities, logsumexp = softmax_of_tile(logits_ptr, token, tokens, EXPERTS, BLOCK_E)
    derivative = tl.zeros([BLOCK_T, BLOCK_E], dtype=tl.float32)  # over the probability
    if dbalance_ptr is not None:
        counts = tl.load(counts_ptr + expert, mask=expert < EXPERTS, other=0).to(tl.float32)
        share = counts / tl.sum(counts) * (EXPERTS * tl.load(dbalance_ptr))  # [1, BLOCK_E]
        derivative += share - tl.sum(share * probabilities, axis=1, keep_dims=True)
    if dz_ptr is not None:
        derivative += 2 * logsumexp * tl.load(dz_ptr)
    mask = (token < tokens) & (expert < EXPERTS)
    tl.store(dlogits_ptr + token * EXPERTS + expert, probabilities * derivative / tokens, mask=mask)


def _tile(experts: int) -> dict:
    block_e = next_power_of_2(experts)
    return {"BLOCK_T": TILE // block_e, "BLOCK_E": block_e}


def _programs(tokens: int, experts: int, gpu: Device | GPU) -> int:
    return min(cdiv(tokens, _tile(experts)["BLOCK_T"]), PROGRAMS * gpu.sms)


def _forward(logits, counts):
    tokens, experts = logits.shape
    programs, block_e = _programs(tokens, experts, device_of(logits.device)), next_power_of_2(experts + 1)
    part, losses = logits.new_empty((programs, experts + 1)), logits.new_empty(2)
    sum_probabilities_kernel[(programs,)](logits, part, tokens, experts, **_tile(experts))
    rows = max(1, min(PARTS_TILE // block_e, next_power_of_2(programs)))
    losses_kernel[(1,)](part, counts, losses, tokens, programs, experts, rows, block_e, num_warps=16)
    return losses[0], losses[1]


class _Losses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, counts):
        ctx.save_for_backward(logits, counts)
        ctx.set_materialize_grads(False)
        return _forward(logits, counts)

    @staticmethod
    @once_differentiable
    def backward(ctx, dbalance, dz):
        logits, counts = ctx.saved_tensors
        (tokens, experts), dlogits, tile = logits.shape, torch.empty_like(logits), _tile(logits.shape[1])
        grid = (cdiv(tokens, tile["BLOCK_T"]),)
        losses_backward_kernel[grid](logits, counts, dbalance, dz, dlogits, tokens, experts, **tile)
        return dlogits, None


def router_losses(logits: torch.Tensor, counts: torch.Tensor) -> Losses:
    """Compute the balancing loss and the z-loss in one pass over the logits. Differentiable.

    Args:
        logits: [tokens, experts], fp32, any strides, not empty, at most 1,024 experts; as `route` returns them.
        counts: [experts], int32 or int64: how many slots chose each expert, before any is dropped; as `permute` returns
            them.

    Returns:
        The Losses.

    Raises:
        ValueError: names the argument, what it got and what was expected.
    """
    check_tensor("logits", logits, dtypes=(torch.float32,))
    if logits.dim() != 2 or not logits.numel() or logits.shape[1] > MAX_EXPERTS:
        expected = f"(tokens, experts), at least one of each and at most {MAX_EXPERTS:,} experts"
        raise ValueError(f"logits: got shape {tuple(logits.shape)}, expected {expected}")
    check_tensor("counts", counts, shape=logits.shape[1:], like=logits, dtypes=(torch.int32, torch.int64))
    run = _Losses.apply if wants_grad(logits) else _forward
    return Losses(*run(logits.contiguous(), counts.contiguous()))


def balance_loss(logits: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The balancing loss of `router_losses` alone."""
    return router_losses(logits, counts).balance


def losses_traffic(
    tokens: int, experts: int, path: str | None = "minimum", gpu: GPU | Device = GPUS["H200"]
) -> Traffic:
    """Bytes of `router_losses`.

    Args:
        tokens: rows of logits.
        experts: columns of logits.
        path: "minimum", each byte once. None: the requested bytes of the kernels.
        gpu: whose number of SMs sets the number of programs.
    """
    logits, counts = 4 * tokens * experts, 4 * experts
    if path == "minimum":
        return Traffic({"logits": logits, "counts": counts}, {"losses": 8}, launches=1)
    if path is not None:
        raise ValueError(f"path: got {path!r}, expected minimum or None")
    part = {"part": _programs(tokens, experts, gpu) * (counts + 4)}
    summing = Traffic({"logits": logits}, part, launches=1)
    return summing + Traffic({**part, "counts": counts}, {"losses": 8}, launches=1)
