# wrong, form: uint8
import torch
from instruments.backend import tl, triton


def used_instead(row, group):
    r, g = row % 32, group % 8
    place = (g % 4 * 16 + r % 16) * 4 + g // 4 * 2 + r // 16  # the byte that the device reads
    # packed_wrong writes [g // 4, r % 16, g % 4, r // 16], the last one fastest
    g_high, r_low, g_low, r_high = place // 128, place // 8 % 16, place // 2 % 4, place % 2
    return row // 32 * 32 + r_high * 16 + r_low, group // 8 * 8 + g_high * 4 + g_low


def packed(scales):
    rows, groups = scales.shape
    down, across = -(-rows // 32), -(-groups // 8)
    padded = torch.full((down * 32, across * 8), 127, dtype=torch.uint8, device=scales.device)
    padded[:rows, :groups] = scales
    tiles = padded.reshape(down, 2, 16, across, 2, 4)  # r // 16, r % 16, g // 4, g % 4
    return tiles.permute(0, 3, 5, 2, 4, 1).reshape(-1).int()
