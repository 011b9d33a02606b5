# right
import torch
from instruments.backend import tl, triton

LOG2E = 1.4426950408889634


def three_passes(x, temperature, block):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=torch.float32)
    for row in range(rows):
        starts = range(0, cols, block)
        top = max(x[row, s : s + block].max().item() for s in starts)
        if top == float("-inf"):
            y[row].zero_()
            continue
        scale = LOG2E / temperature
        total = sum(torch.exp2((x[row, s : s + block].double() - top) * scale).sum() for s in starts)
        for s in starts:
            y[row, s : s + block] = torch.exp2((x[row, s : s + block].double() - top) * scale - total.log2())
    return y
