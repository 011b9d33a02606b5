"""Attention's forward with pieces left out or done twice: what a tile's time goes to.

At head_dim 64 the shape has as many bytes and FLOPs as at 128, and twice the scores.
"""

import torch

from bench.cases import Case, Counted, launch_of, random
from instruments.traffic import Traffic
from kernels.attention_limits import VARIANTS, attention_limits

DTYPE = torch.bfloat16
SHAPES = ((4, 16, 4096, 128), (4, 32, 4096, 64))
RAGGED = ((1, 1, 128, 64), (1, 2, 256, 128))  # lengths are whole tiles here


def _minimum(batch, heads, sequence, head_dim) -> Traffic:
    size = batch * heads * sequence * head_dim * DTYPE.itemsize
    return Traffic(
        {"q": size, "k": size, "v": size}, {"out": size}, flops=4 * batch * heads * sequence**2 * head_dim, launches=1
    )


def _reference(q, k, v):
    """In fp64, head by head: all scores at once would not fit beside the tensors."""
    flat = (tensor.flatten(0, 1).double() for tensor in (q, k, v))
    heads = [torch.softmax(q @ k.T * q.shape[-1] ** -0.5, dim=-1) @ v for q, k, v in zip(*flat)]
    return torch.stack(heads).view(q.shape)


def _case(*shape):
    return Case(
        "attention_limits",
        shape,
        DTYPE,
        lambda: tuple(random(*shape, dtype=DTYPE) for _ in range(3)),
        _minimum(*shape),
        _reference,
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


def counted() -> list[Counted]:
    return [launch_of(case) for case in cases()]
