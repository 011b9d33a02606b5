"""SwiGLU, bias with GELU and dropout, forward and backward, additions, and chains of pointwise ops."""

import torch
import torch.nn.functional as F

from bench.cases import SHAPES, Case, by_columns, compiled, minimum, random
from kernels import elementwise

RAGGED = SHAPES


def _swiglu(rows, cols, dtype=torch.bfloat16):

    def liger():
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction

        return LigerSiLUMulFunction.apply

    return Case(
        "swiglu",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype)),
        elementwise.swiglu_traffic(rows * cols, dtype),
        lambda gate, up: elementwise.swiglu_reference(gate.double(), up.double()),
        {
            "bytes-first": lambda: elementwise.swiglu,
            "torch": lambda: elementwise.swiglu_reference,
            "torch.compile": lambda: compiled(elementwise.swiglu_reference),
            "liger": liger,
        },
    )


def _swiglu_backward(rows, cols, dtype=torch.bfloat16):

    def eager(dy, gate, up):
        return torch.ops.aten.silu_backward(dy * up, gate), dy * F.silu(gate)

    def reference(dy, gate, up):
        gate = gate.double().requires_grad_()
        elementwise.swiglu_reference(gate, up.double()).backward(dy.double())
        return gate.grad

    return Case(
        "swiglu_backward",
        (rows, cols),
        dtype,
        lambda: tuple(random(rows, cols, dtype=dtype) for _ in range(3)),
        elementwise.swiglu_backward_traffic(rows * cols, dtype),
        reference,
        {
            "bytes-first": lambda: elementwise.swiglu_backward,
            "torch": lambda: eager,
            "torch.compile": lambda: compiled(eager),
        },
    )


def _bias_gelu(rows, cols, dtype=torch.bfloat16):

    def torch_gelu(x, bias):
        return F.gelu(x + bias, approximate="tanh")

    return Case(
        "bias_gelu",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(cols, dtype=dtype)),
        elementwise.bias_gelu_traffic(rows, cols, dtype),
        lambda x, bias: elementwise.bias_gelu_reference(x.double(), bias.double()),
        {
            "bytes-first": lambda: elementwise.bias_gelu,
            "torch": lambda: torch_gelu,
            "torch.compile": lambda: compiled(torch_gelu),
            "eager ops": lambda: elementwise.bias_gelu_reference,
        },
    )


def _bias_gelu_backward(rows, cols, dtype=torch.bfloat16):

    def eager(dy, x, bias):
        dx = torch.ops.aten.gelu_backward(dy, x + bias, approximate="tanh")
        return dx, dx.sum(0)

    def reference(dy, x, bias):
        x = x.double().requires_grad_()
        elementwise.bias_gelu_reference(x, bias.double()).backward(dy.double())
        return x.grad

    return Case(
        "bias_gelu_backward",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype), random(cols, dtype=dtype)),
        minimum({"dy": 1, "x": 1}, {"dx": 1}, rows, cols, dtype),
        reference,
        {
            "bytes-first": lambda: elementwise.bias_gelu_backward,
            "torch": lambda: eager,
            "torch.compile": lambda: compiled(eager),
        },
    )


def _bias_gelu_dropout(rows, cols, dtype=torch.bfloat16, p=0.1, seed=1):

    def torch_dropout(x, bias):  # another mask: its error means nothing
        return F.dropout(F.gelu(x + bias, approximate="tanh"), p)

    def reference(x, bias):
        mask = elementwise.dropout_mask((rows, cols), p, seed)
        return elementwise.bias_gelu_dropout_reference(x.double(), bias.double(), mask, p)

    return Case(
        "bias_gelu_dropout",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(cols, dtype=dtype)),
        elementwise.bias_gelu_dropout_traffic(rows, cols, dtype),
        reference,
        {
            "bytes-first": lambda: lambda x, bias: elementwise.bias_gelu_dropout(x, bias, p, seed),
            "torch": lambda: torch_dropout,
            "torch.compile": lambda: compiled(torch_dropout),
        },
    )


def _add(rows, cols, dtype=torch.bfloat16):
    return Case(
        "add",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype)),
        elementwise.add_traffic(rows * cols, dtype),
        lambda x, y: (x + y).double(),
        {"bytes-first": lambda: elementwise.add, "torch": lambda: elementwise.add_reference},
    )


def _pointwise_chain(rows, cols, steps, dtype=torch.bfloat16):
    size = rows * cols

    def eager(x):
        return elementwise.pointwise_chain_reference(x, steps)

    return Case(
        f"pointwise_chain_{steps}",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype),),
        elementwise.pointwise_chain_traffic(size, dtype, steps),
        lambda x: elementwise.pointwise_chain_reference(x.double(), steps),
        {
            "bytes-first": lambda: lambda x: elementwise.pointwise_chain(x, steps),
            "one launch per op": lambda: lambda x: elementwise.pointwise_chain(x, steps, fused=False),
            "torch": lambda: eager,
            "torch.compile": lambda: compiled(eager),
        },
    )


def cases() -> list[Case]:
    return [
        _swiglu(16384, 11008),
        _swiglu(1024, 11008),
        _swiglu_backward(16384, 11008),
        _bias_gelu(16384, 11008),
        _bias_gelu(1024, 11008),
        _bias_gelu_backward(16384, 11008),
        _bias_gelu_dropout(16384, 11008),
        _add(8192, 8192),
        *(_pointwise_chain(8192, 8192, steps) for steps in (1, 2, 4, 8, 16)),
        *(_pointwise_chain(size, 1024, 8) for size in (1, 64, 1024)),  # where launches stop mattering
    ]


def sanitize(rows, cols, dtype):
    """Every kernel of kernels/elementwise.py, forward and backward, and on a tensor whose columns lie together."""
    x, y, bias = random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype), random(cols, dtype=dtype)
    for tensor in (x, y, bias):
        tensor.requires_grad_()
    for result in (elementwise.add(x, y), elementwise.swiglu(x, y), elementwise.bias_gelu(x, bias)):
        result.sum().backward()
    with torch.no_grad():
        elementwise.dropout_mask((rows, cols), 0.1, 1)
        for tensor in (x, by_columns(x)):
            elementwise.bias_gelu_dropout(tensor, bias, 0.1, 1)
            elementwise.bias_gelu(tensor, bias)
            elementwise.swiglu(tensor, y)
            elementwise.add(y, tensor)
            for fused in (True, False):
                elementwise.pointwise_chain(tensor, 3, fused)
