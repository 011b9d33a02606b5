# right
import torch
from instruments.backend import tl, triton


def place(experts, num_experts, capacity):
    flat = experts.t().reshape(-1)
    order = torch.argsort(flat, stable=True)
    first = torch.cumsum(torch.bincount(flat, minlength=num_experts), 0) - torch.bincount(flat, minlength=num_experts)
    place = torch.empty_like(flat)
    place[order] = torch.arange(len(flat), device=flat.device) - first[flat[order]]
    rows = flat * capacity + place
    rows[place >= capacity] = -1
    return rows.reshape(experts.shape[1], -1).t().contiguous()
