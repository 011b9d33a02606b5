# wrong, mistake: placed together
import torch
from instruments.backend import tl, triton


def place(experts, num_experts, capacity):
    flat = experts.flatten()  # first choices of all tokens, then second ones
    mine = torch.nn.functional.one_hot(flat, num_experts)
    place = (mine.cumsum(0) - mine).gather(1, flat[:, None])[:, 0]  # earlier choices of the same expert
    rows = torch.where(place < capacity, flat * capacity + place, -1)
    return rows.view(experts.shape)
