"""RMSNorm, with the residual added first, and backward."""

import torch
import torch.nn.functional as F

from bench.cases import SHAPES, Case, Counted, by_columns, compiled, minimum, random
from instruments.gpus import DTYPES
from kernels import rmsnorm

EPS = 1e-6
TWO_WAYS = ("two_pass", "streaming", "resident")
RAGGED = SHAPES


def _rmsnorm(rows, cols, dtype=torch.bfloat16, paths=()):

    def torch_norm(x, weight):
        return F.rms_norm(x, (cols,), weight, EPS)

    def liger():
        from liger_kernel.ops.rms_norm import rms_norm_forward

        return lambda x, weight: rms_norm_forward(x, weight, EPS, 0.0, "llama", None)[0]

    implementations = {
        "bytes-first": lambda: lambda x, weight: rmsnorm.rmsnorm(x, weight, EPS),
        "torch": lambda: torch_norm,
        "torch.compile": lambda: compiled(torch_norm),
        "liger": liger,
        "eager ops": lambda: lambda x, weight: rmsnorm.rmsnorm_reference(x, weight, EPS),
    }
    for path in paths:
        implementations[f"bytes-first, {path}"] = lambda path=path: (
            lambda x, weight: rmsnorm.rmsnorm(x, weight, EPS, path=path)
        )
    return Case(
        "rmsnorm",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(cols, dtype=dtype)),
        rmsnorm.rmsnorm_traffic(rows, cols, dtype),
        lambda x, weight: rmsnorm.rmsnorm_reference(x.double(), weight.double(), EPS),
        implementations,
    )


def _add_rmsnorm(rows, cols, dtype=torch.bfloat16):

    def eager(x, residual, weight):
        total = x + residual
        return F.rms_norm(total, (cols,), weight, EPS), total

    def liger():
        from liger_kernel.ops.fused_add_rms_norm import fused_add_rms_norm_forward

        return lambda x, residual, weight: fused_add_rms_norm_forward(x, residual, weight, EPS, 0.0, "llama")[:2]

    return Case(
        "add_rmsnorm",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype), random(cols, dtype=dtype)),
        rmsnorm.add_rmsnorm_traffic(rows, cols, dtype),
        lambda x, residual, weight: rmsnorm.rmsnorm_reference((x + residual).double(), weight.double(), EPS),
        {
            "bytes-first": lambda: lambda x, residual, weight: rmsnorm.add_rmsnorm(x, residual, weight, EPS),
            "torch": lambda: eager,
            "torch.compile": lambda: compiled(eager),
            "liger": liger,
        },
    )


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
        rmsnorm.rmsnorm_reference(x, weight.double(), EPS).backward(dy.double())
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
            "bytes-first": lambda: lambda dy, x, weight, scale: rmsnorm.rmsnorm_backward(dy, x, weight, EPS),
            "torch": torch_backward,
            "liger": liger,
        },
    )


def cases() -> list[Case]:
    return [
        _rmsnorm(1, 4096),
        _rmsnorm(1024, 8192, paths=TWO_WAYS),
        _rmsnorm(8192, 8192, paths=TWO_WAYS),
        _rmsnorm(65536, 8192, paths=TWO_WAYS),
        _rmsnorm(8192, 8192, DTYPES["fp16"]),
        _rmsnorm(8192, 8192, DTYPES["fp32"]),
        _rmsnorm(32768, 4096),
        _rmsnorm(8192, 32768, paths=TWO_WAYS),
        _rmsnorm(4096, 65536, paths=("two_pass",)),
        _rmsnorm(512, 1048576),
        _rmsnorm(131072, 1024),
        _rmsnorm(1048576, 128, paths=("resident",)),
        _add_rmsnorm(8192, 8192),
        _add_rmsnorm(32768, 4096),
        _add_rmsnorm(4096, 65536),
        _rmsnorm_backward(8192, 8192),
        _rmsnorm_backward(32768, 4096),
        _rmsnorm_backward(131072, 1024),
        _rmsnorm_backward(2048, 65536),
    ]


def sanitize(rows, cols, dtype):
    """Every kernel of kernels/rmsnorm.py, forward and backward, and a tensor whose columns lie together."""
    x, residual, weight = random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype), random(cols, dtype=dtype)
    for tensor in (x, residual, weight):
        tensor.requires_grad_()
    rmsnorm.rmsnorm(x, weight).sum().backward()
    sum(t.sum() for t in rmsnorm.add_rmsnorm(x, residual, weight)).backward()
    with torch.no_grad():
        for path in ("two_pass", "streaming", "pipelined") if cols <= 8193 else ("two_pass", "streaming"):
            rmsnorm.rmsnorm(x, weight, path=path)
        rmsnorm.rmsnorm(by_columns(x), weight)


def _counted(rows, cols, path) -> Counted:
    def make():
        x, weight = random(rows, cols, dtype=torch.bfloat16), random(cols, dtype=torch.bfloat16)
        return lambda: rmsnorm.rmsnorm(x, weight, path=path)

    return Counted("rmsnorm", path, (rows, cols), make)


def counted() -> list[Counted]:
    sizes = ((1024, 8192), (65536, 8192))
    return [_counted(*size, path) for size in sizes for path in ("two_pass", "streaming", "resident")]
