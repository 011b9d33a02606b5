# wrong, form: expected 2
import torch
from instruments.backend import tl, triton


def decide(unfused, fused, needed_by_backward, gpu):
    def seconds(kernels, more=0):
        busy = 0
        for kernel in kernels:
            memory = kernel["bytes"] / gpu["bandwidth"]
            compute = kernel["flops"] / (kernel["efficiency"] * gpu[kernel["unit"]])
            if kernel is kernels[0]:
                memory += more / gpu["bandwidth"]
            busy += max(memory, compute)
        return max(busy, len(kernels) * gpu["launch"])

    before, after = seconds(unfused), seconds(fused, needed_by_backward)
    saved = before - after
    return "fuse" if saved >= 0.05 * before else "leave"
