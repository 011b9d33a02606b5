"""Sums of rows."""

import torch

from bench.cases import SHAPES, Call, Case, by_columns, compiled, launch_of, random, with_gradients
from kernels.reductions.row_sum import row_sum, row_sum_reference, row_sum_traffic

RAGGED = (*SHAPES, (2, (1 << 20) + 33))  # the last is summed in pieces


def _row_sum(rows, cols, dtype=torch.bfloat16, paths=()):

    def torch_sum(x):
        return x.sum(-1, dtype=torch.float32)

    implementations = {
        "bytes-first": lambda: row_sum,
        "torch": lambda: torch_sum,
        "torch.compile": lambda: compiled(torch_sum),
    }
    for path in paths:
        implementations[f"bytes-first, {path}"] = lambda path=path: lambda x: row_sum(x, path=path)
    return Case(
        "row_sum",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype),),
        row_sum_traffic(rows, cols, dtype),
        lambda x: row_sum_reference(x.double()),
        implementations,
    )


def cases() -> list[Case]:
    return [
        _row_sum(65536, 8192, paths=("streaming",)),
        _row_sum(8192, 65536),
        _row_sum(1048576, 128, paths=("resident",)),
        _row_sum(64, 1 << 23),
    ]


def counter_calls() -> list[Call]:
    tall = _row_sum(1048576, 128, paths=("resident",))
    return [launch_of(_row_sum(65536, 8192)), launch_of(tall), launch_of(tall, "bytes-first, resident")]


def sanitize(rows, cols, dtype):
    """Forward and backward, and a tensor whose columns lie together."""
    x = random(rows, cols, dtype=dtype)
    row_sum(by_columns(x))
    row_sum(*with_gradients(x)).sum().backward()
