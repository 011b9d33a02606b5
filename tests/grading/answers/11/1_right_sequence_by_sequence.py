# right
import torch
from instruments.backend import tl, triton


def balance_loss(logits, experts):
    losses = []
    for one, choices in zip(logits, experts):
        n = one.shape[1]
        f = torch.zeros(n, device=one.device).index_add_(
            0, choices.flatten().long(), torch.full((choices.numel(),), n / choices.numel(), device=one.device)
        )
        s = torch.exp(one - torch.nn.functional.softplus(one))
        losses.append((f * (s / s.sum(1, keepdim=True)).mean(0)).sum())
    return torch.stack(losses)


def balance_gradient(logits, experts):
    with torch.enable_grad():
        leaf = logits.clone().requires_grad_(True)
        return torch.autograd.grad(balance_loss(leaf, experts).sum(), leaf)[0]


def next_bias(bias, experts, step):
    new = bias.clone()
    for e in range(len(bias)):
        over = int((experts == e).sum()) * len(bias) - experts.numel()
        new[e] += step if over < 0 else -step if over > 0 else 0
    return new
