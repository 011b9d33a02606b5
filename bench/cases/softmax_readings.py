"""Softmax of streamed rows: three passes against two."""

import torch

from bench.cases import SHAPES, Call, Case, launch_of, random
from kernels.softmax.ablation import PASSES, softmax_readings
from kernels.softmax.forward import softmax_reference, softmax_traffic

DTYPE = torch.bfloat16
WIDE = ((8192, 32768), (2048, 131072), (1024, 262144))
RAGGED = SHAPES


def _case(rows, cols):
    return Case(
        "softmax_readings",
        (rows, cols),
        DTYPE,
        lambda: (random(rows, cols, dtype=DTYPE),),
        softmax_traffic(rows, cols, DTYPE),
        lambda x: softmax_reference(x.double()),
        {form: lambda form=form: lambda x: softmax_readings(x, form) for form in PASSES},
    )


def cases() -> list[Case]:
    return [_case(*shape) for shape in WIDE]


def sanitize(rows, cols, dtype):
    """Every form."""
    x = random(rows, cols, dtype=dtype)
    for form in PASSES:
        softmax_readings(x, form)


def counter_calls() -> list[Call]:
    return [launch_of(case, form) for case in cases() for form in case.implementations]
