"""The sizes of a mixture of experts' steps, for `portrait`."""

from kernels.moe import combine, combine_reference, combine_traffic, permute, permute_reference, permute_traffic
from kernels.shared.operator import Operator


def _combine_sizes(y, permutation, *_, **__) -> dict:
    tokens, top_k = permutation.rows.shape
    return {"tokens": tokens, "top_k": top_k, "hidden": y.shape[1], "dtype": y.dtype}


def _permute_sizes(experts, *_, **__) -> dict:
    tokens, top_k = experts.shape
    return {"tokens": tokens, "top_k": top_k}


def _of_combine(tokens: int, hidden: int, experts: int, top_k: int) -> dict:
    return {"tokens": tokens, "top_k": top_k, "hidden": hidden}


def _of_sort(tokens: int, experts: int, top_k: int) -> dict:
    return {"tokens": tokens, "top_k": top_k, "num_experts": experts}


OPERATORS = {
    "combine": Operator(
        combine, combine_traffic, _combine_sizes, "moe_combine", from_lengths=_of_combine, reference=combine_reference
    ),
    "permute": Operator(
        permute, permute_traffic, _permute_sizes, "moe_sort", from_lengths=_of_sort, reference=permute_reference
    ),
}
