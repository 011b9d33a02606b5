"""The sizes of the elementwise operators, for `portrait`."""

from kernels.elementwise.bias_gelu import (
    bias_gelu,
    bias_gelu_backward,
    bias_gelu_backward_traffic,
    bias_gelu_reference,
    bias_gelu_traffic,
)
from kernels.elementwise.copy import copy, copy_reference, copy_traffic
from kernels.elementwise.dropout import bias_gelu_dropout, bias_gelu_dropout_reference, bias_gelu_dropout_traffic
from kernels.elementwise.pointwise import (
    add,
    add_reference,
    add_traffic,
    pointwise_chain,
    pointwise_chain_reference,
    pointwise_chain_traffic,
)
from kernels.elementwise.swiglu import (
    swiglu,
    swiglu_backward,
    swiglu_backward_traffic,
    swiglu_reference,
    swiglu_traffic,
)
from kernels.shared.operator import ROWS, Operator, element_sizes, elements, row_sizes


def _bias_gelu_sizes(x, bias=None, *_, **__) -> dict:
    return {**row_sizes(x), "bias_dtype": None if bias is None else bias.dtype}


OPERATORS = {
    "copy": Operator(copy, copy_traffic, element_sizes, "copy", (), elements, copy_reference),
    "add": Operator(add, add_traffic, element_sizes, "add", (), elements, add_reference),
    "pointwise_chain": Operator(
        pointwise_chain,
        pointwise_chain_traffic,
        element_sizes,
        "pointwise_chain_{steps}",
        (),
        elements,
        pointwise_chain_reference,
    ),
    "swiglu": Operator(swiglu, swiglu_traffic, element_sizes, "swiglu", (), elements, swiglu_reference),
    "swiglu_backward": Operator(
        swiglu_backward, swiglu_backward_traffic, element_sizes, "swiglu_backward", (), elements
    ),
    "bias_gelu": Operator(
        bias_gelu, bias_gelu_traffic, _bias_gelu_sizes, "bias_gelu", ROWS, reference=bias_gelu_reference
    ),
    "bias_gelu_backward": Operator(
        bias_gelu_backward, bias_gelu_backward_traffic, row_sizes, "bias_gelu_backward", ROWS
    ),
    "bias_gelu_dropout": Operator(
        bias_gelu_dropout,
        bias_gelu_dropout_traffic,
        row_sizes,
        "bias_gelu_dropout",
        ROWS,
        reference=bias_gelu_dropout_reference,
    ),
}
