"""Attention's backward."""

from functools import partial

import torch

from bench import peers
from bench.cases import Call, Case, launch_of, random, with_gradients
from bench.cases.attention import BACKENDS, RAGGED, by_head, forced, ragged, triton_path
from kernels.attention import attention_backward, attention_backward_traffic, attention_reference, flash_attention

__all__ = ["RAGGED", "cases", "counter_calls", "sanitize"]
BF16 = torch.bfloat16


def _node(backend, causal):
    """The backward alone of torch's attention: the node that its forward leaves, called without autograd's engine, so
    that it runs on the stream that a graph is captured from. The forward runs once, on the first tensors."""
    nodes = []

    def backward(dout, q, k, v, out, lse):
        if not nodes:
            with torch.enable_grad():
                q, k, v = with_gradients(*(x.detach().clone() for x in (q, k, v)))
                nodes.append(forced(backend, causal)(q, k, v).grad_fn)
        with torch.no_grad():
            return nodes[0](dout, *[None] * (len(nodes[0]._input_metadata) - 1))[:3]

    return backward


def _reference(causal, dout, q, k, v, out, lse):
    def backward(dout, q, k, v):
        inputs = with_gradients(q, k, v)
        return torch.autograd.grad(attention_reference(*inputs, causal)[0], inputs, dout)

    with torch.enable_grad():
        return by_head(backward, dout, q, k, v)[0]


def _attention_backward(batch, heads, sequence, head_dim, causal, dtype=BF16):
    size = batch, heads, sequence, head_dim

    def arguments():
        dout, q, k, v = (random(*size, dtype=dtype) for _ in range(4))
        return dout, q, k, v, *flash_attention(q, k, v, causal, return_lse=True, path=triton_path())

    return Case(
        "attention_backward_causal" if causal else "attention_backward",
        size,
        dtype,
        arguments,
        attention_backward_traffic(batch, heads, sequence, sequence, head_dim, dtype, causal=causal),
        partial(_reference, causal),
        {
            "bytes-first": lambda: partial(attention_backward, causal=causal, path=triton_path()),
            "bytes-first, gluon": lambda: partial(attention_backward, causal=causal, path="hopper"),
            "bytes-first, plain": lambda: partial(attention_backward, causal=causal, path="plain"),
            **{name: partial(_node, backend, causal) for name, backend in BACKENDS.items()},
            "fa4": partial(peers.flash_attention_4_backward, causal),
        },
    )


def cases() -> list[Case]:
    return [
        _attention_backward(4, 16, 4096, 128, causal=False),
        _attention_backward(4, 16, 4096, 128, causal=True),
        _attention_backward(4, 32, 4096, 64, causal=True),
        _attention_backward(1, 32, 16384, 128, causal=True),
    ]


def counter_calls() -> list[Call]:
    case = _attention_backward(4, 16, 4096, 128, causal=False)
    return [launch_of(case, name) for name in ("bytes-first", "bytes-first, gluon", "cudnn")]


def sanitize(*size):
    """Every path; 16 bits alone."""
    if size[-1].itemsize > 2:
        return
    (q, k, v), options = ragged(*size)
    out, lse = flash_attention(q, k, v, **options, return_lse=True)
    attention_backward(out, q, k, v, out, lse, **options, deterministic=True)  # the fastest of Triton's
    attention_backward(out, q, k, v, out, lse, **options, path="plain")
