"""Twice a tensor."""

import torch

from bench.cases import Call, Case, random
from kernels import toy

RAGGED = ((1, 1), (3, 5))


def cases() -> list[Case]:
    rows, cols, dtype = 64, 1024, torch.bfloat16
    return [
        Case(
            "twice",
            (rows, cols),
            dtype,
            lambda: (random(rows, cols, dtype=dtype),),
            toy.twice_traffic(rows * cols, dtype),
            lambda x: toy.twice_reference(x.double()),
            {"bytes-first": lambda: toy.twice, "torch": lambda: toy.twice_reference},
        )
    ]


def sanitize(rows, cols, dtype):
    toy.twice(random(rows, cols, dtype=dtype))


def counter_calls() -> list[Call]:
    def make():
        x = random(1024, 1024, dtype=torch.bfloat16)
        return lambda: toy.twice(x)

    return [Call("twice", "plain", (1024, 1024), make)]
