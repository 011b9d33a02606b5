"""An addition, and chains of pointwise ops."""

import torch

from bench.cases import SHAPES, Case, Counted, by_columns, compiled, launch_of, random, with_gradients
from kernels import pointwise

RAGGED = SHAPES


def _add(rows, cols, dtype=torch.bfloat16):
    return Case(
        "add",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype)),
        pointwise.add_traffic(rows * cols, dtype),
        lambda x, y: (x + y).double(),
        {"bytes-first": lambda: pointwise.add, "torch": lambda: pointwise.add_reference},
    )


def _pointwise_chain(rows, cols, steps, dtype=torch.bfloat16):
    size = rows * cols

    def eager(x):
        return pointwise.pointwise_chain_reference(x, steps)

    return Case(
        f"pointwise_chain_{steps}",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype),),
        pointwise.pointwise_chain_traffic(size, dtype, steps),
        lambda x: pointwise.pointwise_chain_reference(x.double(), steps),
        {
            "bytes-first": lambda: lambda x: pointwise.pointwise_chain(x, steps),
            "one launch per op": lambda: lambda x: pointwise.pointwise_chain(x, steps, fused=False),
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


def counted() -> list[Counted]:
    return [launch_of(_pointwise_chain(8192, 8192, 8))]


def sanitize(rows, cols, dtype):
    """Forward and backward, fused and not, and tensors whose columns lie together."""
    x, y = random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype)
    for tensor in (x, by_columns(x)):
        pointwise.add(y, tensor)
        for fused in (True, False):
            pointwise.pointwise_chain(tensor, 3, fused)
    pointwise.add(*with_gradients(x, y)).sum().backward()
