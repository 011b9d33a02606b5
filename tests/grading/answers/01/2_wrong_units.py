# wrong, mistake: times 1e12
import torch
from instruments.backend import tl, triton


def ridge(bandwidth, peak):
    return peak / bandwidth  # tera cancels


def attainable(intensity, bandwidth, peak):
    return min(peak, bandwidth * intensity)  # TB/s times FLOP/B is TFLOP/s


def seconds(nbytes, flops, bandwidth, peak):
    return max(nbytes / (bandwidth), flops / (peak))
