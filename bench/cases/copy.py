"""Copy: the yardstick of every memory-bound kernel."""

import torch

from bench.cases import SHAPES, Call, Case, launch_of, random
from kernels.elementwise.copy import copy, copy_traffic

RAGGED = SHAPES


def _copy(rows, cols, dtype=torch.bfloat16):
    return Case(
        "copy",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype),),
        copy_traffic(rows * cols, dtype),
        lambda x: x.double(),
        {
            "bytes-first": lambda: copy,
            "torch": lambda: lambda x: x + 0,  # torch's clone becomes a copy node in a graph, another engine's
        },
    )


def cases() -> list[Case]:
    return [_copy(8192, 8192), _copy(32768, 8192)]


def counter_calls() -> list[Call]:
    return [launch_of(_copy(8192, 8192))]


def sanitize(rows, cols, dtype):
    """Every kernel of kernels/elementwise/copy.py, once."""
    copy(random(rows, cols, dtype=dtype))
