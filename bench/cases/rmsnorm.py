"""RMSNorm."""

from functools import partial

import torch
import torch.nn.functional as F

from bench import peers
from bench.cases import ODD_WIDTHS, SHAPES, Call, Case, by_columns, compiled, random
from instruments.gpus import DTYPES
from kernels.norms.rmsnorm import rmsnorm, rmsnorm_reference, rmsnorm_traffic
from kernels.shared.clusters import fits_a_cluster

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
        "bytes-first": lambda: lambda x, weight: rmsnorm(x, weight, EPS),
        "torch": lambda: torch_norm,
        "torch.compile": lambda: compiled(torch_norm),
        "liger": liger,
        "quack": partial(peers.quack_rmsnorm, EPS),
        "eager ops": lambda: lambda x, weight: rmsnorm_reference(x, weight, EPS),
    }
    for path in paths:
        implementations[f"bytes-first, {path}"] = lambda path=path: lambda x, weight: rmsnorm(x, weight, EPS, path=path)
    return Case(
        "rmsnorm",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(cols, dtype=dtype)),
        rmsnorm_traffic(rows, cols, dtype),
        lambda x, weight: rmsnorm_reference(x.double(), weight.double(), EPS),
        implementations,
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
        _rmsnorm(2048, 131072, paths=("streaming",)),
        _rmsnorm(512, 1048576),
        _rmsnorm(131072, 1024),
        _rmsnorm(1048576, 128, paths=("resident",)),
        *(_rmsnorm(*shape) for shape in ODD_WIDTHS),
    ]


def sanitize(rows, cols, dtype):
    """Every forward kernel, and a tensor whose columns lie together."""
    x, weight = random(rows, cols, dtype=dtype), random(cols, dtype=dtype)
    rmsnorm(x, weight)
    for path in ("two_pass", "streaming"):
        rmsnorm(x, weight, path=path)
    if fits_a_cluster(x):
        rmsnorm(x, weight, path="cluster")
    rmsnorm(by_columns(x), weight)


def _call(rows, cols, path) -> Call:
    def make():
        x, weight = random(rows, cols, dtype=torch.bfloat16), random(cols, dtype=torch.bfloat16)
        return lambda: rmsnorm(x, weight, path=path)

    return Call("rmsnorm", path, (rows, cols), make)


def counter_calls() -> list[Call]:
    sizes = ((1024, 8192), (65536, 8192))
    return [_call(*size, path) for size in sizes for path in ("two_pass", "streaming", "resident")]
