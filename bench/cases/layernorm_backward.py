"""LayerNorm's backward."""

import torch

from bench.cases import SHAPES, Case, minimum, random, with_gradients
from kernels.norms.layernorm import layernorm, layernorm_reference
from kernels.norms.layernorm_backward import layernorm_backward

RAGGED = SHAPES


def _layernorm_backward(rows, cols, dtype=torch.bfloat16):

    def torch_backward():
        backward = torch.ops.aten.native_layer_norm_backward
        return lambda dy, x, weight, bias, mean, scale: backward(dy, x, [cols], mean, scale, weight, bias, [True] * 3)

    def liger():
        from liger_kernel.ops.layer_norm import layer_norm_backward

        return lambda dy, x, weight, bias, mean, scale: layer_norm_backward(
            dy, x, weight, bias, mean.view(-1), scale.view(-1)
        )

    def reference(dy, x, weight, bias, mean, scale):
        x = x.double().requires_grad_()
        layernorm_reference(x, weight.double(), bias.double()).backward(dy.double())
        return x.grad

    def arguments():
        x = random(rows, cols, dtype=dtype)
        mean = x.float().mean(-1, keepdim=True)
        scale = torch.rsqrt(x.float().var(-1, unbiased=False, keepdim=True) + 1e-5)
        return (random(rows, cols, dtype=dtype), x, random(cols, dtype=dtype), random(cols, dtype=dtype), mean, scale)

    return Case(
        "layernorm_backward",
        (rows, cols),
        dtype,
        arguments,
        minimum({"x": 1, "dy": 1}, {"dx": 1}, rows, cols, dtype),
        reference,
        {
            "bytes-first": lambda: (
                lambda dy, x, weight, bias, mean, scale: layernorm_backward(dy, x, weight, bias, 1e-5)
            ),
            "torch": torch_backward,
            "liger": liger,
        },
    )


def cases() -> list[Case]:
    return [_layernorm_backward(8192, 8192), _layernorm_backward(32768, 4096)]


def sanitize(rows, cols, dtype):
    x, weight, bias = random(rows, cols, dtype=dtype), random(cols, dtype=dtype), random(cols, dtype=dtype)
    layernorm(*with_gradients(x, weight, bias)).sum().backward()
