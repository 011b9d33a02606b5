# wrong, values: Count in integers
import torch
from instruments.backend import tl, triton


def place(experts, num_experts, capacity):
    flat = experts.T.flatten()  # first choices of all tokens, then second ones
    mine = torch.nn.functional.one_hot(flat, num_experts)
    place = (mine.half().cumsum(0).long() - mine).gather(1, flat[:, None])[:, 0]  # earlier choices of the same expert
    rows = torch.where(place < capacity, flat * capacity + place, -1)
    return rows.view(experts.T.shape).T
