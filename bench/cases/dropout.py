"""Bias, GELU and dropout in one."""

import torch
import torch.nn.functional as F

from bench.cases import SHAPES, Case, by_columns, compiled, random
from kernels.elementwise.dropout import (
    bias_gelu_dropout,
    bias_gelu_dropout_reference,
    bias_gelu_dropout_traffic,
    dropout_mask,
)

RAGGED = SHAPES


def _bias_gelu_dropout(rows, cols, dtype=torch.bfloat16, p=0.1, seed=1):

    def torch_dropout(x, bias):  # another mask: its error means nothing
        return F.dropout(F.gelu(x + bias, approximate="tanh"), p)

    def reference(x, bias):
        mask = dropout_mask((rows, cols), p, seed)
        return bias_gelu_dropout_reference(x.double(), bias.double(), mask, p)

    return Case(
        "bias_gelu_dropout",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(cols, dtype=dtype)),
        bias_gelu_dropout_traffic(rows, cols, dtype),
        reference,
        {
            "bytes-first": lambda: lambda x, bias: bias_gelu_dropout(x, bias, p, seed),
            "torch": lambda: torch_dropout,
            "torch.compile": lambda: compiled(torch_dropout),
        },
    )


def cases() -> list[Case]:
    return [_bias_gelu_dropout(16384, 11008)]


def sanitize(rows, cols, dtype):
    """The mask alone, and x laid out both ways."""
    x, bias = random(rows, cols, dtype=dtype), random(cols, dtype=dtype)
    dropout_mask((rows, cols), 0.1, 1)
    for tensor in (x, by_columns(x)):
        bias_gelu_dropout(tensor, bias, 0.1, 1)
