"""Device functions that turn codes of few bits into numbers, for GPUs and formats that have no instruction for it.

They move bits: exponent and mantissa of the code are put where a wider format has them, and one multiplication by a
power of two corrects the bias. Subnormals come out right as well: they are subnormal in the wider format, too. What the
codes mean: kernels/formats.py, against which every code is tested.
"""

from instruments.backend import tl, triton


@triton.jit
def e4m3_value(code):
    """uint8 codes of E4M3 -> fp16, exactly; NaN for S.1111.111."""
    bits = (code & 0x7F).to(tl.int16) << 7 | (code & 0x80).to(tl.int16) << 8
    value = bits.to(tl.float16, bitcast=True) * 256.0  # 2^(15 - 7), the difference of the biases
    return tl.where((code & 0x7F) == 0x7F, float("nan"), value)


@triton.jit
def e2m1_value(nibble):
    """uint8 nibbles of E2M1, whatever is in their upper half -> fp16, exactly."""
    bits = (nibble & 7).to(tl.int16) << 9 | (nibble & 8).to(tl.int16) << 12
    return bits.to(tl.float16, bitcast=True) * 16384.0  # 2^(15 - 1)


@triton.jit
def e8m0_value(code):
    """uint8 codes of E8M0 -> fp32, exactly; NaN for 255."""
    bits = code.to(tl.int32) << 23
    bits = tl.where(code == 0, 0x400000, tl.where(code == 255, 0x7FC00000, bits))  # 2^-127 is subnormal
    return bits.to(tl.float32, bitcast=True)
