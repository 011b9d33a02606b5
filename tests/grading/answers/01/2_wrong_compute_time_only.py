# wrong, mistake: only one of the two limits
import torch
from instruments.backend import tl, triton


def ridge(bandwidth, peak):
    return peak / bandwidth


def attainable(intensity, bandwidth, peak):
    return min(peak, bandwidth * intensity)


def seconds(nbytes, flops, bandwidth, peak):
    return flops / (peak * 1e12)
