"""A bias added and GELU, forward and backward."""

import torch
import torch.nn.functional as F

from bench.cases import SHAPES, Call, Case, by_columns, compiled, launch_of, minimum, random, with_gradients
from kernels.elementwise.bias_gelu import bias_gelu, bias_gelu_backward, bias_gelu_reference, bias_gelu_traffic

RAGGED = SHAPES


def _bias_gelu(rows, cols, dtype=torch.bfloat16):

    def torch_gelu(x, bias):
        return F.gelu(x + bias, approximate="tanh")

    return Case(
        "bias_gelu",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(cols, dtype=dtype)),
        bias_gelu_traffic(rows, cols, dtype),
        lambda x, bias: bias_gelu_reference(x.double(), bias.double()),
        {
            "bytes-first": lambda: bias_gelu,
            "torch": lambda: torch_gelu,
            "torch.compile": lambda: compiled(torch_gelu),
            "eager ops": lambda: bias_gelu_reference,
        },
    )


def _bias_gelu_backward(rows, cols, dtype=torch.bfloat16):

    def eager(dy, x, bias):
        dx = torch.ops.aten.gelu_backward(dy, x + bias, approximate="tanh")
        return dx, dx.sum(0)

    def reference(dy, x, bias):
        x = x.double().requires_grad_()
        bias_gelu_reference(x, bias.double()).backward(dy.double())
        return x.grad

    return Case(
        "bias_gelu_backward",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype), random(cols, dtype=dtype)),
        minimum({"dy": 1, "x": 1}, {"dx": 1}, rows, cols, dtype),
        reference,
        {"bytes-first": lambda: bias_gelu_backward, "torch": lambda: eager, "torch.compile": lambda: compiled(eager)},
    )


def cases() -> list[Case]:
    return [_bias_gelu(16384, 11008), _bias_gelu(1024, 11008), _bias_gelu_backward(16384, 11008)]


def counter_calls() -> list[Call]:
    return [launch_of(_bias_gelu(16384, 11008))]


def sanitize(rows, cols, dtype):
    """Forward and backward, and an x whose columns lie together."""
    x, bias = random(rows, cols, dtype=dtype), random(cols, dtype=dtype)
    bias_gelu(by_columns(x), bias)
    bias_gelu(*with_gradients(x, bias)).sum().backward()
