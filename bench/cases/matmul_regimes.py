"""Matmuls whose shape asks for another distribution of work: few rows, a long K, a last wave that is nearly empty.

b lies by rows, and as a linear layer's transposed weight lies, by columns.
"""

from functools import partial

import torch

from bench.cases import Call, Case, by_columns, launch_of, random
from kernels.matmul import gemv, matmul, matmul_split_k, matmul_stream_k, matmul_traffic
from kernels.matmul.split_k import REDUCTIONS

BF16 = torch.bfloat16
RAGGED = ((1, 1, 1), (3, 70, 1025), (65, 130, 700))  # M, N, K
FEW_ROWS = ((1, 28672, 8192), (1, 8192, 28672), (1, 4096, 14336), (4, 28672, 8192), (16, 8192, 8192), (64, 8192, 8192))
LONG_K = ((64, 64, 65536), (128, 128, 32768))
WAVES = ((1536, 1536, 1536), (3000, 3000, 3000), (2304, 2048, 4096))


def _gemv(a, b):
    return gemv(a[0], b)[None]


def _case(kernel, M, N, K, ours: dict, order=lambda b: b):
    return Case(
        kernel,
        (M, N, K),
        BF16,
        lambda: (random(M, K, dtype=BF16), order(random(K, N, dtype=BF16))),
        matmul_traffic(M, N, K, BF16),
        lambda a, b: a.double() @ b.double(),
        {name: lambda function=function: function for name, function in ours.items()} | {"torch": lambda: torch.matmul},
    )


def _split(reduction, parts=None):
    return partial(matmul_split_k, reduction=reduction, parts=parts)


def cases() -> list[Case]:
    splits = {f"bytes-first, {reduction}": _split(reduction) for reduction in REDUCTIONS}
    more = {f"bytes-first, {parts} parts": _split("two launches", parts) for parts in (1, 2, 4, 8, 16, 32, 64, 128)}
    regimes = []
    for M, N, K in FEW_ROWS:
        ours = {"bytes-first": matmul_split_k, "bytes-first, matmul": matmul} | splits
        if M == 1:
            ours = {"bytes-first": _gemv, "bytes-first, split-K": matmul_split_k, "bytes-first, matmul": matmul}
        regimes.append(_case("matmul_few_rows", M, N, K, ours))
        regimes.append(_case("matmul_few_rows_transposed", M, N, K, ours, by_columns))
    for shape in LONG_K:
        regimes.append(
            _case("matmul_long_k", *shape, {"bytes-first": matmul_split_k, "bytes-first, matmul": matmul} | more)
        )
    for shape in WAVES:
        ours = {"bytes-first": matmul_stream_k, "bytes-first, small tiles": partial(matmul_stream_k, tile="small")}
        regimes.append(_case("matmul_waves", *shape, ours | {"bytes-first, matmul": matmul}))
    return regimes


def counter_calls() -> list[Call]:
    """The last waves beside torch, and one shape each of few rows and of a long K."""
    waves = [case for case in cases() if case.kernel == "matmul_waves"]
    others = [case for case in cases() if case.shape in ((16, 8192, 8192), LONG_K[0])]
    calls = [launch_of(case, name) for case in waves for name in ("bytes-first, matmul", "torch")]
    return calls + [launch_of(case) for case in others]


def sanitize(M, N, K, dtype):
    """Both reductions of split-K, with b by rows and by columns; GEMV; stream-K with both tiles."""
    a, b = random(M, K, dtype=dtype), random(K, N, dtype=dtype)
    for order in (b, by_columns(b)):
        for reduction in REDUCTIONS:
            matmul_split_k(a, order, reduction=reduction, parts=3)
        gemv(a[0], order)
        if dtype == BF16:
            for tile in ("large", "small"):
                matmul_stream_k(a, order, tile=tile)
