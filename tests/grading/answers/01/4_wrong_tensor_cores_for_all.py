# wrong, mistake: Tensor cores only do matmuls
import torch
from instruments.backend import tl, triton


def bound(nbytes, flops, launches, matmul, gpu):
    times = {"memory": nbytes / gpu["bandwidth"], "compute": flops / gpu["matrix"], "launch": launches * gpu["launch"]}
    word = max(times, key=times.get)
    return word, times[word]
