"""Quantization to 8 and 4 bits, and back.

formats.py     FP8, FP4 and other floating-point formats: encoded and decoded exactly, in PyTorch
schemes.py     scale granularity and scale formats (MX, NVFP4, FP8 by blocks, integers); the reference of every kernel
codes.py       device functions: rounding to codes, scales of blocks, stores of tiles
quantize.py    quantize: a tensor to codes and scales (FP8, MXFP8, MXFP4, NVFP4, integers)
dequantize.py  dequantize: codes and scales back to 16 or 32 bits
fused.py       rmsnorm_quantize and swiglu_quantize: quantization as an epilogue
operators.py   the sizes of a call, for `portrait`
"""

from kernels.quantization.dequantize import dequantize, dequantize_traffic
from kernels.quantization.formats import FORMATS, Format, decode, encode, pack_fp4, unpack_fp4
from kernels.quantization.fused import (
    rmsnorm_quantize,
    rmsnorm_quantize_traffic,
    swiglu_quantize,
    swiglu_quantize_traffic,
)
from kernels.quantization.quantize import quantize, quantize_ops, quantize_traffic
from kernels.quantization.schemes import SCHEMES, Quantized, Scheme, dequantize_reference, quantize_reference
