# wrong, values: Compute f, P and the mean load
def balance_loss(logits, experts):
    sequences, tokens, number = logits.shape
    slots = tokens * experts.shape[2]
    counts = torch.zeros(sequences, number).scatter_add_(1, experts.long().flatten(1), torch.ones(sequences, slots))
    scores = torch.sigmoid(logits)
    share = (scores / scores.sum(-1, keepdim=True)).mean(1)
    return (counts * number / slots * share).sum(1)


def balance_gradient(logits, experts):
    with torch.enable_grad():
        x = logits.detach().clone().requires_grad_()
        return torch.autograd.grad(balance_loss(x, experts).sum(), x)[0]


def next_bias(bias, experts, step):
    counts = torch.bincount(experts.flatten().long(), minlength=len(bias))
    return bias + step * torch.sign(experts.numel() // len(bias) - counts)
