# right
import torch
from instruments.backend import tl, triton


def place(r, g):
    return (g % 4 * 16 + r % 16) * 4 + g // 4 * 2 + r // 16


def used_instead(row, group):
    index = torch.arange(256).reshape(32, 8)
    lies = index.reshape(2, 16, 2, 4).permute(2, 1, 3, 0).reshape(-1)
    found = int(lies[place(row % 32, group % 8)])
    return row - row % 32 + found // 8, group - group % 8 + found % 8


def packed(scales):
    rows, groups = scales.shape
    across = (groups + 7) // 8
    out = torch.full((256 * across * ((rows + 31) // 32),), 127, dtype=torch.uint8)
    for row in range(rows):
        for group in range(groups):
            out[256 * (row // 32 * across + group // 8) + place(row % 32, group % 8)] = scales[row, group]
    return out
