# wrong, values: longest
import torch
from instruments.backend import tl, triton


def bound(nbytes, flops, launches, matmul, gpu):
    times = {
        "memory": nbytes / gpu["bandwidth"],
        "compute": flops / gpu["matrix" if matmul else "vector"],
        "launch": launches * gpu["launch"],
    }
    word = min(times, key=times.get)
    return word, times[word]
