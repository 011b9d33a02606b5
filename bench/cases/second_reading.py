"""The second pass of RMSNorm over wide rows, one change at a time."""

import torch

from bench.cases import SHAPES, Call, Case, launch_of, random
from kernels.norms.ablation import RESIDENT, second_reading, variants
from kernels.norms.rmsnorm import rmsnorm_reference, rmsnorm_traffic

DTYPE = torch.bfloat16
ABLATED = ((1024, 8192), (65536, 8192), (8192, 32768))
RAGGED = SHAPES


def _case(rows, cols):
    names = *variants(cols, DTYPE.itemsize), *RESIDENT
    return Case(
        "second_reading",
        (rows, cols),
        DTYPE,
        lambda: (random(rows, cols, dtype=DTYPE), random(cols, dtype=DTYPE)),
        rmsnorm_traffic(rows, cols, DTYPE),
        lambda x, weight: rmsnorm_reference(x.double(), weight.double()),
        {name: lambda name=name: lambda x, weight: second_reading(x, weight, name) for name in names},
    )


def cases() -> list[Case]:
    return [_case(*shape) for shape in ABLATED]


def sanitize(rows, cols, dtype):
    """Every variant that reads twice."""
    x, weight = random(rows, cols, dtype=dtype), random(cols, dtype=dtype)
    for name in variants(cols, dtype.itemsize):
        second_reading(x, weight, name)


def counter_calls() -> list[Call]:
    return [launch_of(case, name) for case in cases() for name in case.implementations]
