"""Gathers of 4,096-wide rows at random, sorted and repeated indices; bags; the backward in both forms."""

import torch
import torch.nn.functional as F

from bench.cases import Call, Case, launch_of, random
from instruments.backend import device
from instruments.traffic import Traffic
from kernels.embedding import embedding, embedding_backward, embedding_bag, embedding_traffic

BF16 = torch.bfloat16
RAGGED = ((1, 1, 1), (37, 5, 70), (9, 300, 1100))  # rows of the table, indices, columns
TABLE = (128_256, 4096)
COUNT = 32_768


def _indices(rows, count, kind="random"):
    """[count] int64: at random, the same sorted, or with the frequencies of Zipf's law."""
    if kind == "zipf":
        weights = 1 / torch.arange(1, rows + 1, device=device())
        return torch.multinomial(weights, count, replacement=True)
    indices = torch.randint(0, rows, (count,), device=device())
    return indices.sort().values if kind == "sorted" else indices


def _gather(kind):
    rows, cols = TABLE
    return Case(
        "embedding" if kind == "random" else f"embedding_{kind}",
        (rows, COUNT, cols),
        BF16,
        lambda: (random(rows, cols, dtype=BF16), _indices(rows, COUNT, kind)),
        embedding_traffic(COUNT, COUNT, cols, BF16),
        lambda table, indices: table[indices].double(),
        {
            "bytes-first": lambda: lambda table, indices: embedding(table, indices, check_range=False),
            "torch": lambda: lambda table, indices: F.embedding(indices, table),
        },
    )


def _backward(kind):
    rows, cols = 32_768, 4096
    size = cols * BF16.itemsize
    return Case(
        f"embedding_backward_{kind}",
        (rows, COUNT, cols),
        BF16,
        lambda: (random(COUNT, cols, dtype=BF16), _indices(rows, COUNT, kind)),
        Traffic({"dy": COUNT * size, "indices": COUNT * 8}, {"dtable": rows * size}, launches=1),
        lambda dy, indices: torch.zeros(rows, cols, dtype=torch.float64, device=dy.device).index_add_(
            0, indices, dy.double()
        ),
        {
            "bytes-first": lambda: lambda dy, indices: embedding_backward(dy, indices, rows),
            "bytes-first, atomics": lambda: lambda dy, indices: embedding_backward(dy, indices, rows, "atomics"),
            "torch": lambda: lambda dy, indices: torch.ops.aten.embedding_dense_backward(dy, indices, rows, -1, False),
        },
    )


def _bag():
    rows, cols, bags, each = 1_000_000, 128, 16_384, 32
    size = cols * BF16.itemsize
    return Case(
        "embedding_bag",
        (rows, bags * each, cols),
        BF16,
        lambda: (
            random(rows, cols, dtype=BF16),
            _indices(rows, bags * each),
            torch.arange(0, bags * each + 1, each, device=device()),
        ),
        Traffic({"table": bags * each * size, "indices": bags * each * 8}, {"y": bags * size}, launches=1),
        lambda table, indices, _: table[indices].double().unflatten(0, (bags, each)).sum(1),
        {
            "bytes-first": lambda: lambda *tensors: embedding_bag(*tensors, check_range=False),
            "torch": lambda: (
                lambda table, indices, offsets: F.embedding_bag(
                    indices, table, offsets, mode="sum", include_last_offset=True
                )
            ),
        },
    )


def cases() -> list[Case]:
    kinds = ("random", "sorted", "zipf")
    return [_gather(kind) for kind in kinds] + [_backward(kind) for kind in ("random", "zipf")] + [_bag()]


def counter_calls() -> list[Call]:
    return [launch_of(_gather(kind)) for kind in ("random", "sorted", "zipf")]


def sanitize(rows, count, cols, dtype):
    """Both gathers and both backwards."""
    table, indices = random(rows, cols, dtype=dtype), _indices(rows, count)
    for backward in ("sorted", "atomics"):
        embedding(table.detach().requires_grad_(), indices, backward=backward).sum().backward()
    offsets = torch.tensor([0, 0, count // 2, count], device=device())
    for mode in ("sum", "mean"):
        embedding_bag(table.detach().requires_grad_(), indices, offsets, mode=mode).sum().backward()
