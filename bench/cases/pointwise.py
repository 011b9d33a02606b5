"""An addition, and chains of pointwise ops."""

import torch

from bench.cases import SHAPES, Call, Case, by_columns, compiled, launch_of, random, with_gradients
from kernels.elementwise.pointwise import (
    add,
    add_reference,
    add_traffic,
    pointwise_chain,
    pointwise_chain_reference,
    pointwise_chain_traffic,
)

RAGGED = SHAPES


def _add(rows, cols, dtype=torch.bfloat16):
    return Case(
        "add",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype)),
        add_traffic(rows * cols, dtype),
        lambda x, y: (x + y).double(),
        {"bytes-first": lambda: add, "torch": lambda: add_reference},
    )


def _pointwise_chain(rows, cols, steps, dtype=torch.bfloat16):
    size = rows * cols

    def eager(x):
        return pointwise_chain_reference(x, steps)

    return Case(
        f"pointwise_chain_{steps}",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype),),
        pointwise_chain_traffic(size, dtype, steps),
        lambda x: pointwise_chain_reference(x.double(), steps),
        {
            "bytes-first": lambda: lambda x: pointwise_chain(x, steps),
            "one launch per op": lambda: lambda x: pointwise_chain(x, steps, fused=False),
            "torch": lambda: eager,
            "torch.compile": lambda: compiled(eager),
        },
    )


def cases() -> list[Case]:
    return [
        _add(8192, 8192),
        *(_pointwise_chain(8192, 8192, steps) for steps in (1, 2, 4, 8, 16)),
        *(_pointwise_chain(size, 1024, 8) for size in (1, 64, 1024)),  # where launches stop mattering
    ]


def counter_calls() -> list[Call]:
    return [launch_of(_pointwise_chain(8192, 8192, 8))]


def sanitize(rows, cols, dtype):
    """Forward and backward, fused and not, and tensors whose columns lie together."""
    x, y = random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype)
    for tensor in (x, by_columns(x)):
        add(y, tensor)
        for fused in (True, False):
            pointwise_chain(tensor, 3, fused)
    add(*with_gradients(x, y)).sum().backward()
