"""FP8 matmuls with a scale per block; peers: torch's of the same codes and scales, and bf16."""

import torch

from bench.cases import Call, Case, by_columns, launch_of
from bench.cases.scaled_matmul import RAGGED, SHAPES, in_bf16, operands, quantized
from kernels.low_precision.block_scaled import (
    WEIGHT_SCHEME,
    X_SCHEME,
    block_scaled_matmul,
    block_scaled_matmul_reference,
    block_scaled_matmul_traffic,
)

__all__ = ["RAGGED", "cases", "counter_calls", "sanitize"]


def _torch():
    """torch's, which wants the scales of a block of columns of x to lie together: here they do before it is called."""

    def multiply(x, weight, x16, weight16, x_scales):
        return torch._scaled_mm(x.codes, weight.codes.t(), x_scales, weight.scales.t(), out_dtype=torch.bfloat16)

    return multiply


def _ours(path: str | None = None):
    return lambda: lambda x, weight, *_: block_scaled_matmul(x, weight, path=path)


def _case(M, N, K):
    def arguments():
        x, weight, x16, weight16 = operands(M, N, K, X_SCHEME, WEIGHT_SCHEME)
        return x, weight, x16, weight16, by_columns(x.scales)

    return Case(
        "block_scaled_matmul",
        (M, N, K),
        torch.bfloat16,
        arguments,
        block_scaled_matmul_traffic(M, N, K),
        lambda x, weight, *_: block_scaled_matmul_reference(x, weight),
        {"bytes-first": _ours(), "bytes-first, plain": _ours("plain"), "torch": _torch, "torch, bf16": in_bf16},
    )


def cases() -> list[Case]:
    return [_case(*shape) for shape in SHAPES]


def sanitize(M, N, K, dtype):
    """Both kernels, where the GPU has both."""
    if dtype != torch.bfloat16:
        return
    x, weight = quantized(M, K, X_SCHEME), quantized(N, K, WEIGHT_SCHEME)
    for path in (None, "plain"):
        block_scaled_matmul(x, weight, path=path)
    block_scaled_matmul(x, weight, out_dtype=torch.float32)


def counter_calls() -> list[Call]:
    return [launch_of(cases()[0], name) for name in ("bytes-first", "bytes-first, plain")]
