"""Copy: the roof that every memory-bound kernel is held against."""

import torch

from bench.cases import SHAPES, Case, Counted, launch_of, random
from kernels import copy

RAGGED = SHAPES


def _copy(rows, cols, dtype=torch.bfloat16):
    return Case(
        "copy",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype),),
        copy.copy_traffic(rows * cols, dtype),
        lambda x: x.double(),
        {
            "bytes-first": lambda: copy.copy,
            "torch": lambda: lambda x: x + 0,  # torch's clone becomes a copy node in a graph, another engine's
        },
    )


def cases() -> list[Case]:
    return [_copy(8192, 8192), _copy(32768, 8192)]


def counted() -> list[Counted]:
    return [launch_of(_copy(8192, 8192))]


def sanitize(rows, cols, dtype):
    """Every kernel of kernels/copy.py, once."""
    copy.copy(random(rows, cols, dtype=dtype))
