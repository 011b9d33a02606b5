"""Cross-entropy over a vocabulary of 128,256, and of a linear layer, with gradients."""

from functools import partial

import torch
import torch.nn.functional as F

from bench import peers
from bench.cases import Call, Case, compiled, launch_of, random
from instruments.backend import device
from instruments.traffic import Traffic
from kernels.losses import (
    cross_entropy,
    cross_entropy_with_gradient,
    linear_cross_entropy,
    linear_cross_entropy_traffic,
)

BF16 = torch.bfloat16
RAGGED = ((1, 1, 8), (5, 1000, 40), (3, 4097, 64))  # rows, vocabulary, width
LOGITS = (8192, 128_256)
LAYER = (8192, 128_256, 4096)


def _targets(rows, cols):
    return torch.randint(0, cols, (rows,), device=device())


def _logits(rows, cols):
    return random(rows, cols, dtype=BF16), _targets(rows, cols)


def _with_gradient(logits, targets):
    logits = logits.detach().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(logits, targets), logits)[0]


def _layer(x, weight, targets):
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(F.linear(x, weight).float(), targets), (x, weight))


def _of_the_sum(logits, targets):
    """The gradient of the losses' sum in fp64."""
    return logits.double().softmax(1) - F.one_hot(targets, logits.shape[1])


def _dx(x, weight, targets, **options):
    return linear_cross_entropy(x, weight, targets, **options)[1]


def _layer_reference(x, weight, targets):
    """dx in fp32 by chunks of tokens: all logits in fp64 would take 8 GB."""
    scale, parts = 1 / len(x), []
    for start in range(0, len(x), 512):
        rows = x[start : start + 512].float()
        gradient = torch.softmax(rows @ weight.float().T, dim=1)
        gradient[torch.arange(len(rows), device=x.device), targets[start : start + 512]] -= 1
        parts.append(gradient @ weight.float() * scale)
    return torch.cat(parts).double()


def layer_case(rows: int, cols: int, width: int) -> Case:
    """The gradients of a linear layer with its loss: x [rows, width], weight [cols, width]."""
    return Case(
        "linear_cross_entropy",
        (rows, cols, width),
        BF16,
        lambda: (random(rows, width, dtype=BF16), random(cols, width, dtype=BF16) * width**-0.5, _targets(rows, cols)),
        linear_cross_entropy_traffic(rows, cols, width, BF16),
        _layer_reference,
        {
            "bytes-first": lambda: _dx,
            "bytes-first, chunks of 1,024": lambda: partial(_dx, chunk=1024),
            "bytes-first, chunks of 2,048": lambda: partial(_dx, chunk=2048),
            "bytes-first, chunks of 8,448 of the vocabulary": lambda: partial(_dx, vocabulary_chunk=8448),
            "torch": lambda: _layer,
            "liger": peers.liger_linear_cross_entropy,
            "quack": peers.quack_linear_cross_entropy,
            "torch.compile": lambda: compiled(_layer),
        },
    )


def cases() -> list[Case]:
    rows, cols = LOGITS
    full = rows * cols * BF16.itemsize
    loss = Case(
        "cross_entropy",
        LOGITS,
        BF16,
        lambda: _logits(*LOGITS),
        Traffic({"logits": full}, {"loss": rows * 4}, launches=1),
        lambda logits, targets: F.cross_entropy(logits.double(), targets)[None],
        {
            "bytes-first": lambda: lambda logits, targets: cross_entropy(logits, targets)[None],
            "torch": lambda: lambda logits, targets: F.cross_entropy(logits, targets)[None],
            "quack": partial(peers.quack_cross_entropy, gradient=False),
            "torch.compile": lambda: compiled(lambda logits, targets: F.cross_entropy(logits, targets)[None]),
        },
    )
    gradient = Case(
        "cross_entropy_with_gradient",
        LOGITS,
        BF16,
        lambda: _logits(*LOGITS),
        Traffic({"logits": full}, {"gradient": full}, launches=1),
        lambda logits, targets: _of_the_sum(logits, targets) / rows,
        {
            "bytes-first": lambda: lambda logits, targets: cross_entropy_with_gradient(logits, targets)[1],
            "torch": lambda: _with_gradient,
            "quack": partial(peers.quack_cross_entropy, gradient=True),
            "torch.compile": lambda: compiled(_with_gradient),
        },
        {"quack": _of_the_sum},
    )
    return [loss, gradient, layer_case(*LAYER)]


def counter_calls() -> list[Call]:
    return [launch_of(case) for case in cases()]


def peak_calls() -> list[Call]:
    """The gradients of the linear layer, in all ways."""
    layer = layer_case(*LAYER)
    return [launch_of(layer, name) for name in layer.implementations]


def sanitize(rows, cols, width, dtype):
    """The loss, its gradient in one launch and by autograd, and the linear layer in chunks of both kinds."""
    logits, targets = random(rows, cols, dtype=dtype), _targets(rows, cols)
    cross_entropy_with_gradient(logits, targets, label_smoothing=0.1)
    cross_entropy(logits.requires_grad_(), targets).backward()
    x, weight = random(rows, width, dtype=dtype), random(cols, width, dtype=dtype)
    linear_cross_entropy(x, weight, targets, chunk=2)
    linear_cross_entropy(x, weight, targets, vocabulary_chunk=cols // 3 + 1)
