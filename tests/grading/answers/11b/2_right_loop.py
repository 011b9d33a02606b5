# right
import torch
from instruments.backend import tl, triton


def place(experts, num_experts, capacity):
    free = [list(range(e * capacity, (e + 1) * capacity)) for e in range(num_experts)]
    rows = torch.full_like(experts, -1)
    for choice in range(experts.shape[1]):
        for token, e in enumerate(experts[:, choice].tolist()):
            if free[e]:
                rows[token, choice] = free[e].pop(0)
    return rows
