"""Losses that keep a router's load even: the auxiliary loss of Switch and GShard, and the z-loss.

Balance: experts * sum over e of f_e * P_e, where f_e is the share of the slots that chose expert e, a count and so
constant, and P_e the mean over the tokens of its probability: 1 where both are even, up to `experts` where all tokens
choose one (Lepikhin and others' GShard, 2020; Fedus, Zoph and Shazeer's Switch, 2021). z-loss: the mean of
logsumexp(logits)^2, which keeps logits small (Zoph and others' ST-MoE, 2022).

Minimum traffic: logits read once, and once more for the gradient, which is written once. Programs add up the
probabilities of their tokens and leave a row of sums; one more adds up the rows, in order, so that the result is the
same in every run.
"""

from typing import NamedTuple

import torch
from torch.autograd.function import once_differentiable

from instruments.backend import tl, triton
from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.arguments import check_tensor, wants_grad
from kernels.rows import Device, device_of
from kernels.tiles import LOG2E

TILE = 4096  # logits of a step
PROGRAMS = 4  # at most, per multiprocessor
PARTS_TILE = 32_768  # sums that one program adds up in a step
MAX_EXPERTS = 1024


class Losses(NamedTuple):
    """Scalars, fp32: the balancing loss and the z-loss."""

    balance: torch.Tensor
    z: torch.Tensor


def losses_reference(logits: torch.Tensor, counts: torch.Tensor) -> Losses:
    """What `router_losses` computes, in plain PyTorch, in the precision of logits: give it fp64."""
    share = counts.to(logits.dtype) / counts.sum()
    balance = logits.shape[1] * (share * logits.softmax(dim=-1).mean(dim=0)).sum()
    return Losses(balance, logits.logsumexp(dim=-1).square().mean())


@triton.jit
def softmax_of_tile(logits_ptr, token, tokens, EXPERTS: tl.constexpr, BLOCK_E: tl.constexpr):
    """(probabilities [BLOCK_T, BLOCK_E], logsumexp [BLOCK_T, 1]) of token [BLOCK_T, 1]; zeros past the last token."""
    expert = tl.arange(0, BLOCK_E)[None, :]
    logits = tl.load(logits_ptr + token * EXPERTS + expert, mask=(token < tokens) & (expert < EXPERTS), other=0.0)
    logits = tl.where(expert < EXPERTS, logits, float("-inf"))
    largest = tl.max(logits, axis=1, keep_dims=True)
    weights = tl.exp2((logits - largest) * LOG2E)
    total = tl.sum(weights, axis=1, keep_dims=True)
    real = token < tokens
    return tl.where(real, weights / total, 0.0), tl.where(real, largest + tl.log(total), 0.0)


@triton.jit
def sum_probabilities_kernel(
    logits_ptr, part_ptr, tokens, EXPERTS: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr
):
    """part [programs, EXPERTS + 1]: of every so many tokens of logits [tokens, EXPERTS], the sum of the probabilities
    of each expert, and that of logsumexp^2."""
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
    part_ptr,
    counts_ptr,
    losses_ptr,
    tokens,
    programs,
    EXPERTS: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
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
    logits_ptr,
    counts_ptr,
    dbalance_ptr,
    dz_ptr,
    dlogits_ptr,
    tokens,
    EXPERTS: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """BLOCK_T tokens of dlogits [tokens, EXPERTS]; dbalance and dz: one number each, or None."""
    token = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)[:, None]  # [BLOCK_T, 1]
    expert = tl.arange(0, BLOCK_E)[None, :]  # [1, BLOCK_E]
    probabilities, logsumexp = softmax_of_tile(logits_ptr, token, tokens, EXPERTS, BLOCK_E)
    slope = tl.zeros([BLOCK_T, BLOCK_E], dtype=tl.float32)
    if dbalance_ptr is not None:
        counts = tl.load(counts_ptr + expert, mask=expert < EXPERTS, other=0).to(tl.float32)
        share = counts / tl.sum(counts) * (EXPERTS * tl.load(dbalance_ptr))  # [1, BLOCK_E]
        slope += share - tl.sum(share * probabilities, axis=1, keep_dims=True)
    if dz_ptr is not None:
        slope += 2 * logsumexp * tl.load(dz_ptr)
    mask = (token < tokens) & (expert < EXPERTS)
    tl.store(dlogits_ptr + token * EXPERTS + expert, probabilities * slope / tokens, mask=mask)


def _tile(experts: int) -> dict:
    block_e = triton.next_power_of_2(experts)
    return {"BLOCK_T": TILE // block_e, "BLOCK_E": block_e}


def _programs(tokens: int, experts: int, gpu: Device | GPU) -> int:
    return min(triton.cdiv(tokens, _tile(experts)["BLOCK_T"]), PROGRAMS * gpu.sms)


def _forward(logits, counts):
    tokens, experts = logits.shape
    programs, block_e = _programs(tokens, experts, device_of(logits.device)), triton.next_power_of_2(experts + 1)
    part, losses = logits.new_empty((programs, experts + 1)), logits.new_empty(2)
    sum_probabilities_kernel[(programs,)](logits, part, tokens, experts, **_tile(experts))
    rows = max(1, min(PARTS_TILE // block_e, triton.next_power_of_2(programs)))
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
        grid = (triton.cdiv(tokens, tile["BLOCK_T"]),)
        losses_backward_kernel[grid](logits, counts, dbalance, dz, dlogits, tokens, experts, **tile)
        return dlogits, None


def router_losses(logits: torch.Tensor, counts: torch.Tensor) -> Losses:
    """The balancing loss and the z-loss, in one reading of the logits; differentiable by them.

    logits: [tokens, experts], fp32, as `route` gives them, neither of them 0, experts to 1,024; counts: [experts]
    int32 or int64, how many slots chose each, before any is dropped, as `permute` gives them. Raises ValueError naming
    the argument.
    """
    check_tensor("logits", logits, dtypes=(torch.float32,))
    if logits.dim() != 2 or not logits.numel() or logits.shape[1] > MAX_EXPERTS:
        expected = f"(tokens, experts), at least one of each and at most {MAX_EXPERTS:,} experts"
        raise ValueError(f"logits: got shape {tuple(logits.shape)}, expected {expected}")
    check_tensor("counts", counts, shape=logits.shape[1:], like=logits, dtypes=(torch.int32, torch.int64))
    run = _Losses.apply if wants_grad(logits) else _forward
    return Losses(*run(logits.contiguous(), counts.contiguous()))


def balance_loss(logits: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The balancing loss alone, a scalar: as `router_losses`."""
    return router_losses(logits, counts).balance


def losses_traffic(
    tokens: int, experts: int, path: str | None = "minimum", gpu: GPU | Device = GPUS["H200"]
) -> Traffic:
    """What both losses move: the 'minimum', each byte once; or, with None, what the programs of `router_losses` ask
    for on a GPU, the H200 of the course's figures unless given."""
    logits, counts = 4 * tokens * experts, 4 * experts
    if path == "minimum":
        return Traffic({"logits": logits, "counts": counts}, {"losses": 8}, launches=1)
    if path is not None:
        raise ValueError(f"path: got {path!r}, expected minimum or None")
    part = {"part": _programs(tokens, experts, gpu) * (counts + 4)}
    summing = Traffic({"logits": logits}, part, launches=1)
    return summing + Traffic({**part, "counts": counts}, {"losses": 8}, launches=1)
