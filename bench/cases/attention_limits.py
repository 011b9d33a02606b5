"""Attention's limits: the forward with pieces left out or done twice, and the memory that it needs by sequence length.

At head_dim 64 the shape has as many bytes and FLOPs as at 128, and twice the scores.
"""

from functools import partial

import torch

from bench.cases import Call, Case, launch_of, random
from bench.cases.attention import by_head, eager, triton_path
from kernels.attention import attention_limits, attention_reference, attention_traffic, flash_attention
from kernels.attention.ablation import VARIANTS

DTYPE = torch.bfloat16
SHAPES = ((4, 16, 4096, 128), (4, 32, 4096, 64))
GROWN = tuple((1, 32, 1 << power, 128) for power in range(10, 18))  # a layer of Llama 3 8B, less its shared key heads
RAGGED = ((1, 1, 128, 64), (1, 2, 256, 128))  # lengths are whole tiles here


def _case(*shape):
    batch, heads, sequence, head_dim = shape
    return Case(
        "attention_limits",
        shape,
        DTYPE,
        lambda: tuple(random(*shape, dtype=DTYPE) for _ in range(3)),
        attention_traffic(batch, heads, sequence, sequence, head_dim, DTYPE),
        lambda q, k, v: by_head(attention_reference, q, k, v)[0],
        {name: lambda name=name: lambda q, k, v: attention_limits(q, k, v, name) for name in VARIANTS},
    )


def cases() -> list[Case]:
    return [_case(*shape) for shape in SHAPES]


def sanitize(*size_and_dtype):
    """Every variant."""
    *size, dtype = size_and_dtype
    q, k, v = (random(*size, dtype=torch.bfloat16 if dtype == torch.float32 else dtype) for _ in range(3))
    for name in VARIANTS:
        attention_limits(q, k, v, name)


def counter_calls() -> list[Call]:
    return [launch_of(case) for case in cases()]


def _peak_call(kernel, shape, variant, attend, backward):
    def make():
        q, k, v = (random(*shape, dtype=DTYPE).requires_grad_(backward) for _ in range(3))
        if not backward:
            return lambda: attend(q, k, v, causal=True)
        dout = random(*shape, dtype=DTYPE)
        return lambda: torch.autograd.grad(attend(q, k, v, causal=True), (q, k, v), dout)

    return Call(kernel, variant, shape, make)


def peak_calls() -> list[Call]:
    """Forward, and forward with backward, causal: eager ops and flash_attention, until out of memory."""
    with_backward = {"attention_causal": False, "attention_backward_causal": True}
    variants = {"eager ops": eager, "bytes-first": partial(flash_attention, path=triton_path())}
    return [
        _peak_call(kernel, shape, variant, attend, backward)
        for kernel, backward in with_backward.items()
        for variant, attend in variants.items()
        for shape in GROWN
    ]
