# right
import torch
from instruments.backend import tl, triton


def sectors(first, stride, itemsize):
    seen = set()
    for lane in range(32):
        for byte in range(itemsize):
            seen.add((first + lane * stride * itemsize + byte) >> 5)
    return len(seen)


def programs_per_sm(registers, shared, warps):
    a_quarter = 16384 // ((registers + 7) // 8 * 256)
    n = 0
    while n < 32 and (n + 1) * warps <= min(64, 4 * a_quarter) and (n + 1) * (shared + 1024) <= 228 * 1024:
        n += 1
    return n
