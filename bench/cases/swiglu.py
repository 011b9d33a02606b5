"""SwiGLU, forward and backward."""

import torch
import torch.nn.functional as F

from bench.cases import SHAPES, Call, Case, by_columns, compiled, launch_of, random, with_gradients
from kernels.elementwise.swiglu import (
    swiglu,
    swiglu_backward,
    swiglu_backward_traffic,
    swiglu_reference,
    swiglu_traffic,
)

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
        swiglu_traffic(rows * cols, dtype),
        lambda gate, up: swiglu_reference(gate.double(), up.double()),
        {
            "bytes-first": lambda: swiglu,
            "torch": lambda: swiglu_reference,
            "torch.compile": lambda: compiled(swiglu_reference),
            "liger": liger,
        },
    )


def _swiglu_backward(rows, cols, dtype=torch.bfloat16):

    def eager(dy, gate, up):
        return torch.ops.aten.silu_backward(dy * up, gate), dy * F.silu(gate)

    def reference(dy, gate, up):
        gate = gate.double().requires_grad_()
        swiglu_reference(gate, up.double()).backward(dy.double())
        return gate.grad

    return Case(
        "swiglu_backward",
        (rows, cols),
        dtype,
        lambda: tuple(random(rows, cols, dtype=dtype) for _ in range(3)),
        swiglu_backward_traffic(rows * cols, dtype),
        reference,
        {"bytes-first": lambda: swiglu_backward, "torch": lambda: eager, "torch.compile": lambda: compiled(eager)},
    )


def cases() -> list[Case]:
    return [_swiglu(16384, 11008), _swiglu(1024, 11008), _swiglu_backward(16384, 11008)]


def counter_calls() -> list[Call]:
    return [launch_of(_swiglu(16384, 11008))]


def sanitize(rows, cols, dtype):
    """Forward and backward, and a gate whose columns lie together."""
    gate, up = random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype)
    swiglu(by_columns(gate), up)
    swiglu(*with_gradients(gate, up)).sum().backward()
