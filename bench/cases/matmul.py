"""Matmul."""

import torch

from bench.cases import Call, Case, by_columns, random
from kernels.matmul.ablation import LAST, STEPS, matmul_step
from kernels.matmul.tiled import PATHS, matmul, matmul_grouped_kernel, matmul_traffic

RAGGED = ((1, 1, 1), (33, 65, 70), (130, 259, 77))  # M, N, K


def _matmul(M, N, K, dtype=torch.bfloat16, paths=()):
    implementations = {"bytes-first": lambda: matmul, "torch": lambda: torch.matmul}
    for path in paths:
        implementations[f"bytes-first, {path}"] = lambda path=path: lambda a, b: matmul(a, b, path=path)
    return Case(
        "matmul",
        (M, N, K),
        dtype,
        lambda: (random(M, K, dtype=dtype), random(K, N, dtype=dtype)),
        matmul_traffic(M, N, K, dtype),
        lambda a, b: a.double() @ b.double(),
        implementations,
    )


def cases() -> list[Case]:
    return [
        _matmul(1024, 1024, 1024, paths=("dot", "tiled", "grouped")),
        _matmul(2048, 2048, 2048, paths=("grouped",)),
        _matmul(4096, 4096, 4096, paths=("tiled", "grouped")),
        _matmul(8192, 8192, 8192, paths=("tiled", "grouped")),
        _matmul(5000, 5000, 5000, paths=("grouped",)),
        _matmul(8192, 4096, 2048, paths=("grouped",)),  # for comparison with the next, whose sizes are odd
        _matmul(8191, 4097, 2049, paths=("grouped",)),
    ]


def sanitize(M, N, K, dtype):
    """Every path of kernels/matmul/tiled.py, with b row-major and column-major."""
    a, b = random(M, K, dtype=dtype), random(K, N, dtype=dtype)
    for path in (name for name, able in PATHS.items() if dtype.itemsize <= able.itemsize):
        matmul(a, b, path=path)
        matmul(a, by_columns(b), path=path)


def _call(M, N, K, group) -> Call:
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3}

    def make():
        a, b, c = (random(*shape, dtype=torch.bfloat16) for shape in ((M, K), (K, N), (M, N)))
        programs = (M // tile["BLOCK_M"]) * (N // tile["BLOCK_N"])
        return lambda: matmul_grouped_kernel.fn[(programs,)](
            a, b, c, M, N, K, *a.stride(), *b.stride(), PRECISION="ieee", GROUP_M=group, **tile
        )

    return Call("matmul", f"groups of {group}", (M, N, K), make)


def _step(name, M, N, K, function) -> Call:
    def make():
        a, b = random(M, K, dtype=torch.bfloat16), random(K, N, dtype=torch.bfloat16)
        return lambda: function(a, b)

    return Call("matmul_steps", name, (M, N, K), make)


def _by_columns(a, b):
    return matmul(a, b.as_strided(b.shape, (1, b.shape[0])), path="dot")


def counter_calls() -> list[Call]:
    """The order of tiles alone, at two shapes, and the steps of lesson 03."""
    orders = [_call(8192, 8192, 8192, group) for group in (1, 2, 4, 8, 16, 32, 64)]
    orders += [_call(8192, 28672, 8192, group) for group in (1, 4, 8, 16)]
    steps = [
        _step("dot product", 2048, 2048, 2048, lambda a, b: matmul(a, b, path="dot")),
        _step("dot product, b by columns", 2048, 2048, 2048, _by_columns),
        *(
            _step(name, 8192, 8192, 8192, lambda a, b, options=options: matmul_step(a, b, options))
            for name, options in STEPS.items()
        ),
        _step("groups of 1, tile 128 x 256", 8192, 8192, 8192, lambda a, b: matmul_step(a, b, LAST | {"GROUP_M": 1})),
        _step("torch", 8192, 8192, 8192, torch.matmul),
        _step("bytes-first", 8192, 8192, 8192, matmul),
    ]
    return orders + steps
