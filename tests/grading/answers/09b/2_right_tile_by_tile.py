# right
import torch
from instruments.backend import tl, triton


def used_instead(row, group):
    for r in range(32):
        for g in range(8):
            if (g // 4) * 128 + r % 16 * 8 + g % 4 * 2 + r // 16 == (
                group % 4 * 64 + row % 16 * 4 + group % 8 // 4 * 2 + row % 32 // 16
            ):
                return row // 32 * 32 + r, group // 8 * 8 + g


def packed(scales):
    rows, groups = scales.shape
    scales = torch.nn.functional.pad(scales, (0, -groups % 8, 0, -rows % 32), value=127)
    tiles = [tile for band in scales.split(32) for tile in band.split(8, dim=1)]
    return torch.stack([tile.view(2, 16, 2, 4).permute(3, 1, 2, 0) for tile in tiles]).flatten()
