"""A matmul, then a bias and GELU: two launches, or one where a compiler fuses them."""

import torch
import torch.nn.functional as F

from bench.cases import Case, compiled, random
from instruments.traffic import Traffic
from kernels.elementwise.bias_gelu import bias_gelu, bias_gelu_reference
from kernels.matmul.tiled import matmul, matmul_traffic

RAGGED = ((1, 1, 1), (33, 65, 17), (130, 129, 70))


def _torch(x, weight, bias):
    return F.gelu(x @ weight + bias, approximate="tanh")


def _case(rows, cols, inner, dtype=torch.bfloat16):
    plain = matmul_traffic(rows, cols, inner, dtype)
    minimum = Traffic({**plain.read, "bias": cols * dtype.itemsize}, plain.written, plain.flops, launches=1)
    return Case(
        "matmul_bias_gelu",
        (rows, cols, inner),
        dtype,
        lambda: (
            random(rows, inner, dtype=dtype),
            random(inner, cols, dtype=dtype) / inner**0.5,
            random(cols, dtype=dtype),
        ),
        minimum,
        lambda x, weight, bias: bias_gelu_reference(x.double() @ weight.double(), bias.double()),
        {
            "bytes-first": lambda: lambda x, weight, bias: bias_gelu(matmul(x, weight), bias),
            "torch": lambda: _torch,
            "torch.compile": lambda: compiled(_torch),
            "torch.compile, max-autotune": lambda: compiled(_torch, mode="max-autotune-no-cudagraphs"),
        },
    )


def cases() -> list[Case]:
    return [_case(8192, 14336, 4096)]


def sanitize(rows, cols, inner, dtype):
    bias_gelu(matmul(random(rows, inner, dtype=dtype), random(inner, cols, dtype=dtype)), random(cols, dtype=dtype))
