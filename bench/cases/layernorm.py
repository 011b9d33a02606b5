"""LayerNorm."""

import torch
import torch.nn.functional as F

from bench.cases import ODD_WIDTHS, SHAPES, Call, Case, compiled, launch_of, random
from kernels.norms.layernorm import layernorm, layernorm_reference, layernorm_traffic

RAGGED = SHAPES
POWERS_OF_TWO = ((8192, 8192), (32768, 4096), (4096, 65536))


def _layernorm(rows, cols, dtype=torch.bfloat16):

    def torch_norm(x, weight, bias):
        return F.layer_norm(x, (cols,), weight, bias, 1e-5)

    def liger():
        from liger_kernel.ops.layer_norm import layer_norm_forward

        return lambda x, weight, bias: layer_norm_forward(x, weight, bias, 1e-5)[0]

    return Case(
        "layernorm",
        (rows, cols),
        dtype,
        lambda: (random(rows, cols, dtype=dtype), random(cols, dtype=dtype), random(cols, dtype=dtype)),
        layernorm_traffic(rows, cols, dtype),
        lambda x, weight, bias: layernorm_reference(x.double(), weight.double(), bias.double()),
        {
            "bytes-first": lambda: layernorm,
            "torch": lambda: torch_norm,
            "torch.compile": lambda: compiled(torch_norm),
            "liger": liger,
        },
    )


def cases() -> list[Case]:
    return [_layernorm(*shape) for shape in (*POWERS_OF_TWO, *ODD_WIDTHS)]


def counter_calls() -> list[Call]:
    return [launch_of(_layernorm(*shape)) for shape in POWERS_OF_TWO]


def sanitize(rows, cols, dtype):
    """Every forward kernel."""
    layernorm(random(rows, cols, dtype=dtype), random(cols, dtype=dtype), random(cols, dtype=dtype))
