# right
import torch
from instruments.backend import tl, triton


def busy(kernel, gpu):
    peak = gpu[kernel["unit"]] * kernel["efficiency"]
    memory, compute = kernel["bytes"] / gpu["bandwidth"], kernel["flops"] / peak
    return memory if memory > compute else compute


def total(kernels, gpu):
    return max(sum(busy(k, gpu) for k in kernels), gpu["launch"] * len(kernels))


def decide(unfused, fused, needed_by_backward, gpu):
    first = dict(fused[0], bytes=fused[0]["bytes"] + needed_by_backward)
    before, after = total(unfused, gpu), total([first] + fused[1:], gpu)
    return ["leave", "fuse"][after <= 0.95 * before], before - after
