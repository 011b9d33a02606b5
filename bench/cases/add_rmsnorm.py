"""The residual added, then RMSNorm."""

import torch
import torch.nn.functional as F

from bench.cases import SHAPES, Call, Case, compiled, launch_of, random, with_gradients
from bench.cases.rmsnorm import EPS
from kernels.norms.add_rmsnorm import add_rmsnorm, add_rmsnorm_traffic
from kernels.norms.rmsnorm import rmsnorm_reference

RAGGED = SHAPES


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
        add_rmsnorm_traffic(rows, cols, dtype),
        lambda x, residual, weight: rmsnorm_reference((x + residual).double(), weight.double(), EPS),
        {
            "bytes-first": lambda: lambda x, residual, weight: add_rmsnorm(x, residual, weight, EPS),
            "torch": lambda: eager,
            "torch.compile": lambda: compiled(eager),
            "liger": liger,
        },
    )


def cases() -> list[Case]:
    return [_add_rmsnorm(8192, 8192), _add_rmsnorm(32768, 4096), _add_rmsnorm(4096, 65536)]


def counter_calls() -> list[Call]:
    return [launch_of(_add_rmsnorm(8192, 8192))]


def sanitize(rows, cols, dtype):
    """Forward and backward."""
    x, residual = random(rows, cols, dtype=dtype), random(rows, cols, dtype=dtype)
    results = add_rmsnorm(*with_gradients(x, residual, random(cols, dtype=dtype)))
    sum(t.sum() for t in results).backward()
