# right
import torch
from instruments.backend import tl, triton


def decide(unfused, fused, needed_by_backward, gpu):
    def seconds(kernels, written):
        on_gpu, on_host = 0.0, 0.0
        for i, k in enumerate(kernels):
            moved = k["bytes"] + (written if i == 0 else 0)
            on_gpu += max(moved / gpu["bandwidth"], k["flops"] / gpu[k["unit"]] / k["efficiency"])
            on_host += gpu["launch"]
        return max(on_gpu, on_host)

    saved = seconds(unfused, 0) - seconds(fused, needed_by_backward)
    worth = saved >= seconds(unfused, 0) / 20
    return ("fuse" if worth else "leave"), saved
