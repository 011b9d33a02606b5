"""The matrix product."""

import torch

from bench.cases import Case, Counted, by_columns, random
from kernels import matmul

RAGGED = ((1, 1, 1), (33, 65, 70), (130, 259, 77))  # M, N, K


def _matmul(M, N, K, dtype=torch.bfloat16, paths=()):
    implementations = {"bytes-first": lambda: matmul.matmul, "torch": lambda: torch.matmul}
    for path in paths:
        implementations[f"bytes-first, {path}"] = lambda path=path: lambda a, b: matmul.matmul(a, b, path=path)
    return Case(
        "matmul",
        (M, N, K),
        dtype,
        lambda: (random(M, K, dtype=dtype), random(K, N, dtype=dtype)),
        matmul.matmul_traffic(M, N, K, dtype),
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
        _matmul(8192, 4096, 2048, paths=("grouped",)),  # beside the next, which is odd
        _matmul(8191, 4097, 2049, paths=("grouped",)),
    ]


def sanitize(M, N, K, dtype):
    """Every path of kernels/matmul.py, b as it comes and with its columns together."""
    a, b = random(M, K, dtype=dtype), random(K, N, dtype=dtype)
    for path in (name for name, rung in matmul.PATHS.items() if dtype.itemsize <= rung.itemsize):
        matmul.matmul(a, b, path=path)
        matmul.matmul(a, by_columns(b), path=path)


def _counted(M, N, K, group) -> Counted:
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3}

    def make():
        a, b, c = (random(*shape, dtype=torch.bfloat16) for shape in ((M, K), (K, N), (M, N)))
        programs = (M // tile["BLOCK_M"]) * (N // tile["BLOCK_N"])
        return lambda: matmul.matmul_grouped_kernel.fn[(programs,)](
            a, b, c, M, N, K, *a.stride(), *b.stride(), PRECISION="ieee", GROUP_M=group, **tile
        )

    return Counted("matmul", f"groups of {group}", (M, N, K), make)


def counted() -> list[Counted]:
    return [_counted(8192, 8192, 8192, group) for group in (1, 8, 16)]
