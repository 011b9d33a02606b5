# right
import torch
from instruments.backend import tl, triton


def fractions(experts, many):
    number = torch.arange(many, device=experts.device)
    return (experts.flatten(1)[..., None] == number).float().mean(1) * many


def balance_loss(logits, experts):
    scores = logits.sigmoid()
    share = scores / scores.sum(2, keepdim=True)
    return torch.einsum("se,ste->s", fractions(experts, logits.shape[2]), share) / logits.shape[1]


def balance_gradient(logits, experts):
    f, s = fractions(experts, logits.shape[2])[:, None], logits.sigmoid()
    p = s / s.sum(2, keepdim=True)
    return p * (1 - s) * (f - (f * p).sum(2, keepdim=True)) / logits.shape[1]


def next_bias(bias, experts, step):
    n, total = len(bias), experts.numel()
    counts = torch.bincount(experts.reshape(-1).long(), minlength=n)
    return bias + step * ((counts * n < total).float() - (counts * n > total).float())
