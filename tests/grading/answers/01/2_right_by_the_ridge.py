# right
import torch
from instruments.backend import tl, triton


def ridge(bandwidth, peak):
    return (peak * 1e12) / (bandwidth * 1e12)


def attainable(intensity, bandwidth, peak):
    if intensity < ridge(bandwidth, peak):
        return bandwidth * intensity
    return peak


def seconds(nbytes, flops, bandwidth, peak):
    if not flops:
        return nbytes / bandwidth / 1e12
    return flops / attainable(flops / nbytes, bandwidth, peak) / 1e12
