"""Softmax, its backward, and causal softmax."""

import torch

from bench import peers
from bench.cases import SHAPES, Call, Case, by_columns, compiled, random
from instruments.gpus import DTYPES
from kernels.shared.clusters import fits_a_cluster
from kernels.softmax.backward import softmax_backward, softmax_backward_traffic
from kernels.softmax.causal import causal_softmax, causal_softmax_reference, causal_softmax_traffic
from kernels.softmax.forward import PATHS, softmax, softmax_reference, softmax_traffic

#: Of every power of two from 128 to 262,144 columns, enough rows to leave every L2 far behind.
SWEEP = (
    (524288, 128),
    (262144, 256),
    (131072, 512),
    (65536, 1024),
    (32768, 2048),
    (16384, 4096),
    (8192, 8192),
    (8192, 16384),
    (4096, 32768),
    (4096, 65536),
    (2048, 131072),
    (1024, 262144),
)
ODD = ((65536, 768), (8192, 5120), (8192, 12288), (4096, 50257), (2048, 100_000))
RAGGED = SHAPES


def _softmax(rows, cols, dtype=torch.bfloat16, every_form=False):

    def torch_softmax(x):
        return torch.softmax(x, -1)

    def liger():
        from liger_kernel.ops.softmax import LigerSoftmaxFunction

        return LigerSoftmaxFunction.apply

    implementations = {
        "bytes-first": lambda: softmax,
        "torch": lambda: torch_softmax,
        "torch.compile": lambda: compiled(torch_softmax),
        "liger": liger,
        "quack": peers.quack_softmax,
    }
    if every_form:
        implementations["eager ops"] = lambda: softmax_reference
        for path in PATHS:
            if cols <= path.max_cols:
                implementations[f"bytes-first, {path.name}"] = lambda name=path.name: lambda x: softmax(x, path=name)
    return Case(
        "softmax",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype),),
        softmax_traffic(rows, cols, dtype),
        lambda x: softmax_reference(x.double()),
        implementations,
    )


def _softmax_backward(rows, cols, dtype=torch.bfloat16):

    def torch_backward(dy, y):
        return torch.ops.aten._softmax_backward_data(dy, y, -1, dtype)

    def liger():
        from liger_kernel.ops.softmax import _softmax_backward, _softmax_forward

        _, *settings = _softmax_forward(random(2, cols, dtype=dtype))
        return lambda dy, y: _softmax_backward(dy, y, *settings)

    return Case(
        "softmax_backward",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), torch.softmax(random(rows, cols, dtype=dtype), -1)),
        softmax_backward_traffic(rows, cols, dtype),
        lambda dy, y: y.double() * (dy.double() - (dy.double() * y.double()).sum(-1, keepdim=True)),
        {
            "bytes-first": lambda: softmax_backward,
            "torch": lambda: torch_backward,
            "torch.compile": lambda: compiled(torch_backward),
            "liger": liger,
        },
    )


def _causal_softmax(batch, queries, keys, dtype=torch.bfloat16):

    def masked():
        later = torch.ones(queries, keys, dtype=torch.bool, device="cuda").triu(keys - queries + 1)
        return lambda scores: torch.softmax(scores.masked_fill(later, float("-inf")), -1)

    return Case(
        "causal_softmax",
        (batch, queries, keys),
        dtype,
        lambda: (random(batch, queries, keys, dtype=dtype),),
        causal_softmax_traffic(batch, queries, keys, dtype),
        lambda scores: causal_softmax_reference(scores.double()),
        {
            "bytes-first": lambda: causal_softmax,
            "torch": masked,
            "torch.compile": lambda: compiled(causal_softmax_reference),
        },
    )


def cases() -> list[Case]:
    return [
        *(_softmax(*shape, every_form=True) for shape in SWEEP),
        *(_softmax(*shape) for shape in ((8192, 1024), *ODD)),
        _softmax(8192, 8192, DTYPES["fp16"]),
        _softmax(8192, 8192, DTYPES["fp32"]),
        _softmax_backward(8192, 8192),
        _softmax_backward(4096, 32768),
        _softmax_backward(2048, 131072),
        _causal_softmax(64, 1024, 1024),
        _causal_softmax(8, 4096, 4096),
        _causal_softmax(1, 16384, 16384),
    ]


def sanitize(rows, cols, dtype):
    """Every kernel, backwards too, and a tensor whose columns lie together."""
    x = random(rows, cols, dtype=dtype)
    for path in PATHS:
        if cols <= path.max_cols:
            softmax(x, path=path.name)
    if fits_a_cluster(x):
        softmax(x, path="cluster")
    softmax(by_columns(x))
    for function in (softmax, causal_softmax):
        function(x.requires_grad_()).sum().backward()


def _call(rows, cols, path) -> Call:
    def make():
        x = random(rows, cols, dtype=torch.bfloat16)
        return lambda: softmax(x, path=path)

    return Call("softmax", path, (rows, cols), make)


def counter_calls() -> list[Call]:
    both = [_call(*shape, path) for shape in ((8192, 8192), (4096, 32768)) for path in ("resident", "streaming")]
    return [*both, _call(2048, 131072, "streaming"), _call(2048, 131072, "cluster")]
