"""RMSNorm's backward."""

import torch

from bench.cases import SHAPES, Case, minimum, random, with_gradients
from bench.cases.rmsnorm import EPS
from kernels.norms.rmsnorm import rmsnorm, rmsnorm_reference
from kernels.norms.rmsnorm_backward import rmsnorm_backward

RAGGED = SHAPES


def _rmsnorm_backward(rows, cols, dtype=torch.bfloat16):

    def scale_of(x):
        return torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + EPS)

    def torch_backward():
        backward = torch.ops.aten._fused_rms_norm_backward
        return lambda dy, x, weight, scale: backward(dy, x, [cols], scale, weight, [True, True])

    def liger():
        from liger_kernel.ops.rms_norm import rms_norm_backward, rms_norm_forward

        x, weight = random(2, cols, dtype=dtype), random(cols, dtype=dtype)
        *_, block, warps, casting = rms_norm_forward(x, weight, EPS, 0.0, "llama", None)
        return lambda dy, x, weight, scale: rms_norm_backward(
            dy, x, weight, scale.view(-1), 0.0, casting, block, warps, False, None
        )[:2]

    def reference(dy, x, weight, scale):
        x = x.double().requires_grad_()
        rmsnorm_reference(x, weight.double(), EPS).backward(dy.double())
        return x.grad

    def arguments():
        x = random(rows, cols, dtype=dtype)
        return random(rows, cols, dtype=dtype), x, random(cols, dtype=dtype), scale_of(x)

    return Case(
        "rmsnorm_backward",
        (rows, cols),
        dtype,
        arguments,
        minimum({"x": 1, "dy": 1}, {"dx": 1}, rows, cols, dtype),
        reference,
        {
            "bytes-first": lambda: lambda dy, x, weight, scale: rmsnorm_backward(dy, x, weight, EPS),
            "torch": torch_backward,
            "liger": liger,
        },
    )


def cases() -> list[Case]:
    return [
        _rmsnorm_backward(8192, 8192),
        _rmsnorm_backward(8192, 4096),
        _rmsnorm_backward(32768, 4096),
        _rmsnorm_backward(131072, 1024),
        _rmsnorm_backward(2048, 65536),
    ]


def sanitize(rows, cols, dtype):
    x, weight = with_gradients(random(rows, cols, dtype=dtype), random(cols, dtype=dtype))
    rmsnorm(x, weight).sum().backward()
