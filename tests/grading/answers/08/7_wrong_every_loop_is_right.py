# wrong, values: is not right for all scores
import torch
from instruments.backend import tl, triton


def show_wrong(loop, keys):
    return None
