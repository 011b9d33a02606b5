# right
import torch
from instruments.backend import tl, triton


def ridge(bandwidth, peak):
    return peak / bandwidth


def attainable(intensity, bandwidth, peak):
    return min(peak, bandwidth * intensity)


def seconds(nbytes, flops, bandwidth, peak):
    return max(nbytes / (bandwidth * 1e12), flops / (peak * 1e12))
