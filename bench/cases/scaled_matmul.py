"""FP8 matmuls with a scale per tensor or per row, promoted and fast; peers: torch's of the same codes, and bf16."""

import torch

from bench.cases import Call, Case, launch_of, random
from kernels.low_precision.scaled import scaled_matmul, scaled_matmul_reference, scaled_matmul_traffic
from kernels.quantization.schemes import Quantized, dequantize_reference, quantize_reference

#: M, N, K: squares, and the first product of a feed-forward layer of Llama 3 8B over 8,192 tokens.
SHAPES = ((8192, 8192, 8192), (4096, 4096, 4096), (8192, 14336, 4096))
RAGGED = ((1, 1, 1), (65, 130, 200), (130, 272, 304), (200, 528, 1040))


def quantized(rows: int, cols: int, scheme: str) -> Quantized:
    """A random matrix in a scheme."""
    return quantize_reference(random(rows, cols, dtype=torch.bfloat16), scheme)


def operands(M: int, N: int, K: int, x_scheme: str, weight_scheme: str) -> tuple:
    """x, weight, and what both are worth in bf16."""
    x, weight = quantized(M, K, x_scheme), quantized(N, K, weight_scheme)
    return x, weight, *(dequantize_reference(q).bfloat16() for q in (x, weight))


def in_bf16():
    """torch's product of the same numbers in 16 bits."""
    return lambda x, weight, x16, weight16, *_: x16 @ weight16.T


def _torch(fast: bool):
    """torch's product of the same codes and scales, of tensors or of rows."""

    def multiply(x, weight, *_):
        by_row = weight.scheme.block[0] == 1
        scales = x.scales, weight.scales.t() if by_row else weight.scales
        return torch._scaled_mm(x.codes, weight.codes.t(), *scales, out_dtype=torch.bfloat16, use_fast_accum=fast)

    return lambda: multiply


def _ours(accumulate: str, path: str | None = None):
    return lambda: lambda x, weight, *_: scaled_matmul(x, weight, accumulate=accumulate, path=path)


def _case(M, N, K, scheme, name):
    return Case(
        name,
        (M, N, K),
        torch.bfloat16,
        lambda: operands(M, N, K, scheme, scheme),
        scaled_matmul_traffic(M, N, K, scheme, scheme),
        lambda x, weight, *_: scaled_matmul_reference(x, weight),
        {
            "bytes-first": _ours("promoted"),
            "bytes-first, fast": _ours("fast"),
            "bytes-first, plain": _ours("promoted", "plain"),
            "bytes-first, plain, fast": _ours("fast", "plain"),
            "torch": _torch(fast=False),
            "torch, fast": _torch(fast=True),
            "torch, bf16": in_bf16,
        },
    )


def cases() -> list[Case]:
    whole = [_case(*shape, "fp8_tensor", "scaled_matmul") for shape in SHAPES]
    return whole + [_case(*shape, "fp8_row", "scaled_matmul_rows") for shape in SHAPES]


def sanitize(M, N, K, dtype):
    """Both kernels, where the GPU has both; sums in the matrix unit and promoted; outputs of two widths."""
    if dtype != torch.bfloat16:
        return
    for scheme in ("fp8_tensor", "fp8_row"):
        x, weight = quantized(M, K, scheme), quantized(N, K, scheme)
        for accumulate in ("fast", "promoted"):
            for path in (None, "plain"):
                scaled_matmul(x, weight, accumulate=accumulate, path=path)
        scaled_matmul(x, weight, out_dtype=torch.float32)


def counter_calls() -> list[Call]:
    return [launch_of(cases()[0], name) for name in ("bytes-first", "bytes-first, plain")]
