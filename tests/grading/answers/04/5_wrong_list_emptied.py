# wrong, state: changed its input fused
import torch
from instruments.backend import tl, triton


def decide(unfused, fused, needed_by_backward, gpu):
    def seconds(kernels):
        busy = sum(max(k["bytes"] / gpu["bandwidth"], k["flops"] / (k["efficiency"] * gpu[k["unit"]])) for k in kernels)
        return max(busy, len(kernels) * gpu["launch"])

    before = seconds(unfused)
    launches, busy, more = len(fused), 0, needed_by_backward
    while fused:
        k = fused.pop(0)
        busy += max((k["bytes"] + more) / gpu["bandwidth"], k["flops"] / (k["efficiency"] * gpu[k["unit"]]))
        more = 0
    after = max(busy, launches * gpu["launch"])
    return "fuse" if before - after >= 0.05 * before else "leave", before - after
