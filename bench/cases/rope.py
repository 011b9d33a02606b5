"""RoPE of queries and keys."""

import torch

from bench.cases import Case, compiled, random
from instruments.backend import device
from kernels.elementwise.rope import rope, rope_reference, rope_tables, rope_traffic

#: (batch, tokens, heads, KV heads, head_dim).
RAGGED = ((1, 1, 1, 1, 2), (2, 7, 3, 1, 10), (1, 33, 8, 2, 64), (3, 1, 5, 5, 128))


def _arguments(batch, tokens, heads, kv_heads, head_dim, dtype):
    q, k = (random(batch, tokens, n, head_dim, dtype=dtype).transpose(1, 2) for n in (heads, kv_heads))
    return q, k, *rope_tables(torch.arange(tokens, device=device()), head_dim, dtype)


def _rope(*shape, dtype=torch.bfloat16):
    return Case(
        "rope",
        shape,
        dtype,
        lambda: _arguments(*shape, dtype),
        rope_traffic(*shape, dtype),
        lambda q, k, cos, sin: rope_reference(q.double(), k.double(), cos.double(), sin.double())[0],
        {
            "bytes-first": lambda: rope,
            "torch": lambda: rope_reference,
            "torch.compile": lambda: compiled(rope_reference),
        },
    )


def cases() -> list[Case]:
    return [_rope(1, 8192, 32, 8, 128)]


def sanitize(batch, tokens, heads, kv_heads, head_dim, dtype):
    rope(*_arguments(batch, tokens, heads, kv_heads, head_dim, dtype))
