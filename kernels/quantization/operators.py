"""The sizes of quantization, alone and fused into other operators, for `portrait`."""

from kernels.quantization.dequantize import dequantize, dequantize_traffic
from kernels.quantization.fused import (
    rmsnorm_quantize,
    rmsnorm_quantize_traffic,
    swiglu_quantize,
    swiglu_quantize_traffic,
)
from kernels.quantization.quantize import quantize, quantize_traffic
from kernels.shared.operator import ROWS, Operator, row_sizes


def _dequantize_sizes(q, *_, **__) -> dict:
    rows, cols = q.shape
    return {"rows": rows, "cols": cols, "scheme": q.scheme.name}


OPERATORS = {
    "quantize": Operator(quantize, quantize_traffic, row_sizes, "quantize_{scheme}", ROWS),
    "dequantize": Operator(dequantize, dequantize_traffic, _dequantize_sizes, "dequantize_{scheme}", ROWS),
    "rmsnorm_quantize": Operator(
        rmsnorm_quantize, rmsnorm_quantize_traffic, row_sizes, "rmsnorm_quantize_{scheme}", ROWS
    ),
    "swiglu_quantize": Operator(swiglu_quantize, swiglu_quantize_traffic, row_sizes, "swiglu_quantize_{scheme}", ROWS),
}
