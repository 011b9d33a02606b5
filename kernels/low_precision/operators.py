"""The sizes of matmuls of quantized matrices, x [M, K] and weight [N, K], for `portrait`."""

import torch

from kernels.low_precision.block_scaled import (
    block_scaled_matmul,
    block_scaled_matmul_reference,
    block_scaled_matmul_traffic,
)
from kernels.low_precision.mx import mx_matmul, mx_matmul_reference, mx_matmul_traffic
from kernels.low_precision.scaled import scaled_matmul, scaled_matmul_reference, scaled_matmul_traffic
from kernels.low_precision.weight_only import (
    weight_only_matmul,
    weight_only_matmul_reference,
    weight_only_matmul_traffic,
)
from kernels.shared.operator import MATMUL, Operator


def _sizes(x, weight, *_, **__) -> dict:
    return {"M": x.shape[0], "N": weight.shape[0], "K": weight.shape[1]}


def _scheme_sizes(x, weight, *_, **__) -> dict:
    x_scheme = x.dtype if isinstance(x, torch.Tensor) else x.scheme.name
    return {**_sizes(x, weight), "x_scheme": x_scheme, "weight_scheme": weight.scheme.name}


def _weight_only_sizes(x, weight, *_, **__) -> dict:
    return {**_sizes(x, weight), "scheme": weight.scheme.name, "dtype": x.dtype}


OPERATORS = {
    "scaled_matmul": Operator(
        scaled_matmul, scaled_matmul_traffic, _scheme_sizes, "scaled_matmul", MATMUL, reference=scaled_matmul_reference
    ),
    "block_scaled_matmul": Operator(
        block_scaled_matmul,
        block_scaled_matmul_traffic,
        _scheme_sizes,
        "block_scaled_matmul",
        MATMUL,
        reference=block_scaled_matmul_reference,
    ),
    "mx_matmul": Operator(
        mx_matmul, mx_matmul_traffic, _scheme_sizes, "mx_matmul", MATMUL, reference=mx_matmul_reference
    ),
    "weight_only_matmul": Operator(
        weight_only_matmul,
        weight_only_matmul_traffic,
        _weight_only_sizes,
        "weight_only_matmul_{scheme}",
        MATMUL,
        reference=weight_only_matmul_reference,
    ),
}
