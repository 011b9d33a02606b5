"""Loads at a stride: not timed here (bench/machine.py does, in its part `reads`), but counted, as DRAM bytes."""

import torch

from bench.cases import Call, Case, random
from instruments.backend import device

RAGGED = ((1, 128), (8, 256))
ELEMENTS = 1 << 25  # bf16, one loaded by each thread
STRIDES = (1, 2, 4, 8, 16, 32, 64)


def _reads(stride: int, count: int, dtype=torch.bfloat16):
    from bench.machine import strided_kernel  # imported late: machine.py imports this package

    x, block = random(count * stride, dtype=dtype), min(count, 2048)
    y = torch.empty(count // block, dtype=torch.float32, device=device())
    return lambda: strided_kernel[(count // block,)](x, y, stride, 0, BLOCK=block, num_warps=4)


def cases() -> list[Case]:
    return []


def counter_calls() -> list[Call]:
    return [
        Call("strided_read", f"stride {stride}", (ELEMENTS,), lambda stride=stride: _reads(stride, ELEMENTS))
        for stride in STRIDES
    ]


def sanitize(stride, count, dtype):
    """The last element that a program loads is the last of its tensor, but for the stride's rest."""
    _reads(stride, count, dtype)()
