# wrong, traffic: Slice a block of columns first
import torch
from instruments.backend import tl, triton


def three_passes(x, temperature, block):
    return torch.softmax(x.float() / temperature, 1).nan_to_num(0)
