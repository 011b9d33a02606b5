"""The sizes of grouped matmuls, for `portrait`; a record's rows are taken as evenly spread over the groups."""

from kernels.grouped_matmul import (
    grouped_matmul,
    grouped_matmul_reference,
    grouped_matmul_traffic,
    grouped_matmul_weight_gradient,
    grouped_matmul_weight_gradient_reference,
    grouped_matmul_weight_gradient_traffic,
)
from kernels.shared.operator import Operator, even_counts


def _sizes(x, weight, offsets, *_, **__) -> dict:
    """Of x [rows, K], weight [groups, K, N] and offsets [groups + 1]."""
    return {"counts": offsets.diff().tolist(), "K": weight.shape[1], "N": weight.shape[2], "dtype": x.dtype}


def _gradient_sizes(x, dy, offsets, *_, **__) -> dict:
    """Of x [rows, K], dy [rows, N] and offsets [groups + 1]."""
    return {"counts": offsets.diff().tolist(), "K": x.shape[1], "N": dy.shape[1], "dtype": x.dtype}


def _evenly(tokens: int, groups: int, top_k: int, K: int, N: int) -> dict:
    return {"counts": even_counts(tokens, groups, top_k), "K": K, "N": N}


OPERATORS = {
    "grouped_matmul": Operator(
        grouped_matmul,
        grouped_matmul_traffic,
        _sizes,
        "grouped_matmul",
        from_lengths=_evenly,
        reference=grouped_matmul_reference,
    ),
    "grouped_matmul_weight_gradient": Operator(
        grouped_matmul_weight_gradient,
        grouped_matmul_weight_gradient_traffic,
        _gradient_sizes,
        "grouped_matmul_weight_gradient",
        from_lengths=_evenly,
        reference=grouped_matmul_weight_gradient_reference,
    ),
}
