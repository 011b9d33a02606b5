# wrong, mistake: scores that were not divided
import torch
from instruments.backend import tl, triton


def balance_loss(logits, experts):
    sequences, tokens, many = logits.shape
    top_k = experts.shape[-1]
    counts = torch.nn.functional.one_hot(experts.long(), many).sum((1, 2))  # [sequences, many]
    often = counts * many / (tokens * top_k)  # 1 where loads are even
    scores = torch.sigmoid(logits)
    share = scores.mean(1)
    return (often * share).sum(-1)


def balance_gradient(logits, experts):
    logits = logits.detach().requires_grad_()
    balance_loss(logits, experts).sum().backward()
    return logits.grad


def next_bias(bias, experts, step):
    counts = torch.bincount(experts.flatten(), minlength=len(bias))
    return bias + step * torch.sign(experts.numel() - counts * len(bias))  # integers: a tie is exact
