# wrong, values: can keep its second
import torch
from instruments.backend import tl, triton


def place(experts, num_experts, capacity):
    taken, rows = [0] * num_experts, torch.full_like(experts, -1)
    for choice in range(experts.shape[1]):
        for token, e in enumerate(experts[:, choice].tolist()):
            if choice and rows[token, 0] < 0:
                continue
            if taken[e] < capacity:
                rows[token, choice] = e * capacity + taken[e]
                taken[e] += 1
    return rows
