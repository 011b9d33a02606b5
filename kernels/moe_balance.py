"""Losses that keep a router's load even: the auxiliary loss of Switch and GShard, and the z-loss.

Balance: experts * sum over e of f_e * P_e, where f_e is the share of the slots that chose expert e, a count and so
constant, and P_e the mean over the tokens of its probability: 1 where both are even, up to `experts` where all tokens
choose one (Lepikhin and others' GShard, 2020; Fedus, Zoph and Shazeer's Switch, 2021). z-loss: the mean of
logsumexp(logits)^2, which keeps logits small (Zoph and others' ST-MoE, 2022).

In plain PyTorch: logits are experts / hidden of what the router reads, a hundredth and less, and autograd knows the
rest. Loads are counted by `permute`.
"""

import torch

from kernels.arguments import check_tensor


def balance_loss(logits: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """experts * sum of f_e * P_e, a scalar, fp32; differentiable by logits.

    logits: [tokens, experts], fp32, as `route` gives them; counts: [experts] int32, how many slots chose each,
    before any is dropped, as `permute` gives them. Raises ValueError naming the argument.
    """
    _check_logits(logits)
    check_tensor("counts", counts, shape=logits.shape[1:], like=logits, dtypes=(torch.int32, torch.int64))
    share = counts / counts.sum().clamp(min=1)
    return logits.shape[1] * (share * logits.softmax(dim=-1).mean(dim=0)).sum()


def z_loss(logits: torch.Tensor) -> torch.Tensor:
    """The mean over the tokens of logsumexp(logits)^2, a scalar, fp32; differentiable. logits: as there."""
    _check_logits(logits)
    return logits.logsumexp(dim=-1).square().mean()


def _check_logits(logits):
    """Raise ValueError unless logits are [tokens, experts] of fp32."""
    check_tensor("logits", logits, dtypes=(torch.float32,))
    if logits.dim() != 2 or not logits.numel():
        raise ValueError(f"logits: got shape {tuple(logits.shape)}, expected (tokens, experts), neither of them 0")
