# right
import torch
from instruments.backend import tl, triton

import numpy as np


def decide(unfused, fused, needed_by_backward, gpu):
    times = []
    for kernels, extra in ((unfused, 0), (fused, needed_by_backward)):
        nbytes = np.array([k["bytes"] for k in kernels], dtype=float)
        nbytes[0] += extra
        work = np.array([k["flops"] / k["efficiency"] / gpu[k["unit"]] for k in kernels])
        times.append(max(float(np.maximum(nbytes / gpu["bandwidth"], work).sum()), len(kernels) * gpu["launch"]))
    gain = times[0] - times[1]
    return ("fuse", gain) if gain / times[0] >= 0.05 else ("leave", gain)
