# right
import torch
from instruments.backend import tl, triton


def bound(nbytes, flops, launches, matmul, gpu):
    peak = gpu["vector"]
    if matmul:
        peak = gpu["matrix"]
    memory, compute, launch = nbytes / gpu["bandwidth"], flops / peak, launches * gpu["launch"]
    if launch > memory and launch > compute:
        return ["launch", launch]
    return ["compute", compute] if compute > memory else ["memory", memory]
