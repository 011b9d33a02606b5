"""Matmuls of block-scaled operands, for the memory checker; no GPU with the instruction has been timed."""

import torch

from bench.cases import random
from bench.cases.scaled_matmul import quantized
from kernels.low_precision.mx import mx_matmul

RAGGED = ((1, 1, 2), (65, 130, 200), (130, 272, 304))


def cases() -> list:
    return []


def sanitize(M, N, K, dtype):
    """Every pair of formats."""
    if dtype != torch.bfloat16:
        return
    for scheme in ("mxfp8", "mxfp4", "nvfp4"):
        weight = quantized(N, K, scheme)
        mx_matmul(random(M, K, dtype=dtype), weight)
        for other in ("nvfp4",) if scheme == "nvfp4" else ("mxfp8", "mxfp4"):
            mx_matmul(quantized(M, K, other), weight)
