"""Matmuls whose operands have 8 or 4 bits.

scaled.py              scaled_matmul: FP8 operands, one scale per tensor or per row
block_scaled.py        block_scaled_matmul: FP8 operands, one scale per block of 128
mx.py                  mx_matmul: MXFP8, MXFP4 and NVFP4, with block scales in the tensor core
hopper.py              the FP8 kernel for Hopper, in Gluon, of scaled_matmul and block_scaled_matmul
weight_only.py         weight_only_matmul: 16-bit activations, weights of 8 or 4 bits, for decode and for prefill
weight_only_unpack.py  device functions: weights of 8 or 4 bits to 16-bit floats in registers
models.py              without a kernel: where these matmuls stop being memory-bound
operators.py           the sizes of a call, for `portrait`
ablation.py            lesson 09b's experiment: how many bits the FP8 accumulator keeps
"""

from kernels.low_precision.ablation import fp8_sums, simulated_sums
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
