"""Sums of rows."""

import torch

from bench.cases import SHAPES, Case, Counted, by_columns, compiled, launch_of, random, with_gradients
from kernels import reduce

RAGGED = (*SHAPES, (2, (1 << 20) + 33))  # the last is summed in pieces


def _row_sum(rows, cols, dtype=torch.bfloat16, paths=()):

    def torch_sum(x):
        return x.sum(-1, dtype=torch.float32)

    implementations = {
        "bytes-first": lambda: reduce.row_sum,
        "torch": lambda: torch_sum,
        "torch.compile": lambda: compiled(torch_sum),
    }
    for path in paths:
        implementations[f"bytes-first, {path}"] = lambda path=path: lambda x: reduce.row_sum(x, path=path)
    return Case(
        "row_sum",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype),),
        reduce.row_sum_traffic(rows, cols, dtype),
        lambda x: reduce.row_sum_reference(x.double()),
        implementations,
    )


def cases() -> list[Case]:
    return [
        _row_sum(65536, 8192, paths=("streaming",)),
        _row_sum(8192, 65536),
        _row_sum(1048576, 128, paths=("resident",)),
        _row_sum(64, 1 << 23),
    ]


def counted() -> list[Counted]:
    return [launch_of(_row_sum(65536, 8192))]


def sanitize(rows, cols, dtype):
    """Forward and backward, and a tensor whose columns lie together."""
    x = random(rows, cols, dtype=dtype)
    reduce.row_sum(by_columns(x))
    reduce.row_sum(*with_gradients(x)).sum().backward()
