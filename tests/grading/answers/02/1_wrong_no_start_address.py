# wrong, mistake: count from `first`
import torch
from instruments.backend import tl, triton


def sectors(first, stride, itemsize):
    return len({(lane * stride * itemsize) // 32 for lane in range(32)})


def programs_per_sm(registers, shared, warps):
    per_warp = triton.cdiv(32 * registers, 256) * 256
    by_registers = 4 * (16_384 // per_warp) // warps
    return min(by_registers, 233_472 // (shared + 1024), 64 // warps, 32)
