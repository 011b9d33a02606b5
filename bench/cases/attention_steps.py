"""Lesson 08c's steps from the plain attention kernel to the fast one, causal."""

from functools import partial

import torch

from bench.cases import Call, Case, launch_of, random
from bench.cases.attention import by_head
from kernels.attention import attention_reference, attention_traffic
from kernels.attention.forward_steps import STEPS, attention_steps

DTYPE = torch.bfloat16
SHAPES = ((4, 16, 4096, 128), (4, 32, 4096, 64))
RAGGED = ((1, 1, 70, 64), (1, 2, 200, 128))


def _case(*shape):
    batch, heads, sequence, head_dim = shape
    return Case(
        "attention_steps",
        shape,
        DTYPE,
        lambda: tuple(random(*shape, dtype=DTYPE) for _ in range(3)),
        attention_traffic(batch, heads, sequence, sequence, head_dim, DTYPE, causal=True),
        lambda q, k, v: by_head(partial(attention_reference, causal=True), q, k, v)[0],
        {name: lambda name=name: partial(attention_steps, step=name) for name in STEPS},
    )


def cases() -> list[Case]:
    return [_case(*shape) for shape in SHAPES]


def sanitize(*size_and_dtype):
    """Every step; 16 bits alone."""
    *size, dtype = size_and_dtype
    if dtype.itemsize > 2:
        return
    q, k, v = (random(*size, dtype=dtype) for _ in range(3))
    for name in STEPS:
        attention_steps(q, k, v, name)


def counter_calls() -> list[Call]:
    return [launch_of(_case(*SHAPES[0]), name) for name in STEPS]
