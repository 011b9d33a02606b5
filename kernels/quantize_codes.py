"""Device functions that kernels of few bits share: codes of values, scales of blocks, and back.

They give, bit by bit, what kernels/formats.py and kernels/quantize_schemes.py define, on every GPU and in the
interpreter. GPUs from sm_89 on round to FP8 by an instruction. Elsewhere, and to four bits, a value is rounded by one
addition: beside a power of two that is 2^(23 - mantissa) times the value's own, fp32 has room for the format's digits
and no more, so the sum is rounded as the format wants it, to nearest even. What goes into such a sum is an exact
product or has passed a minimum, so nothing changes where the compiler makes one multiply-add of both.
"""

from functools import cache

import torch

from instruments.backend import tl, triton
from kernels.formats import FORMATS
from kernels.quantize_schemes import SMALLEST_E4M3_SCALE, SMALLEST_SCALE, Scheme

SMALLEST = tl.constexpr(SMALLEST_SCALE)
SMALLEST_E4M3 = tl.constexpr(SMALLEST_E4M3_SCALE)
E4M3_LARGEST = tl.constexpr(FORMATS["e4m3"].largest)
E4M3_NAN = tl.constexpr(0x7F)
E8M0_NAN = tl.constexpr(255)
INF = tl.constexpr(float("inf"))  # and INF - INF is NaN: Triton refuses a global that does not equal itself
FP32_INF_BITS = tl.constexpr(0x7F800000)
#: 2^23: beside it fp32 holds integers alone, the even ones with even bits; from 2^24 on, the even ones alone
WHOLE = tl.constexpr(8388608.0)


@cache
def has_fp8(device: torch.device) -> bool:
    """Whether kernels there convert to FP8 by an instruction: on GPUs from sm_89 on."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def coding(scheme: Scheme, device: torch.device) -> dict:
    """What kernels that quantise want to know of a scheme, by the names of their constexprs.

    NATIVE: whether FP8, of values or scales, is rounded by the GPU's own conversion, which gives the same.
    """
    return {
        "FORMAT": scheme.format,
        "SCALE": "tensor" if scheme.block == (None, None) else scheme.scale_format,
        "LARGEST": float(scheme.largest),
        "ROUND_UP": scheme.scale_rounding == "up",
        "NATIVE": "e4m3" in (scheme.format, scheme.scale_format) and has_fp8(device),
    }


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of FP8 as the bytes it is, for GPUs that lack the type; any other as it is."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor


@triton.jit
def float_rounded(magnitude, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr):
    """The nearest value that a format with so many bits of each has, for magnitudes within its largest value."""
    FIRST: tl.constexpr = (129 - (1 << (EXPONENT - 1))) << 23  # the smallest normal value's exponent, where fp32 has it
    power = tl.maximum(magnitude.to(tl.int32, bitcast=True) & FP32_INF_BITS, FIRST).to(tl.float32, bitcast=True)
    coarse = power * (1 << (23 - MANTISSA))  # beside it, fp32 rounds as the format does
    return (magnitude + coarse) - coarse


@triton.jit
def rounded_code(rounded, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr):
    """The code (int32) of a value that such a format has."""
    BIAS: tl.constexpr = 2.0 ** ((1 << (EXPONENT - 1)) - 128)
    return (rounded * BIAS).to(tl.int32, bitcast=True) >> (23 - MANTISSA)  # its exponents are now fp32's smallest


@triton.jit
def float_code(y, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, LARGEST: tl.constexpr):
    """fp32 -> code (int32) of a signed format with so many bits of each, saturating; a NaN as LARGEST."""
    SIGN: tl.constexpr = EXPONENT + MANTISSA  # the sign's place in a code
    rounded = float_rounded(tl.minimum(tl.abs(y), LARGEST), EXPONENT, MANTISSA)
    sign = (y.to(tl.int32, bitcast=True) >> (31 - SIGN)) & (1 << SIGN)
    return rounded_code(rounded, EXPONENT, MANTISSA) | sign


@triton.jit
def float_value(code, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr):
    """code (int32) -> fp32, of such a format: its bits put where fp32 has them, and the bias made good."""
    SIGN: tl.constexpr = EXPONENT + MANTISSA
    bits = ((code & ((1 << SIGN) - 1)) << (23 - MANTISSA)) | ((code >> SIGN & 1) << 31)
    return bits.to(tl.float32, bitcast=True) * (2.0 ** (128 - (1 << (EXPONENT - 1))))


@triton.jit
def _part(x):
    """x, or the nearer of 0 and 1: what a multiply-add does by itself, as its last step."""
    return tl.minimum(tl.maximum(x, 0.0), 1.0)


@triton.jit
def e2m1_steps(y):
    """An int32 whose lowest bits are the code of |y| in E2M1 less 4, with anything above. Codes count halves up to 2,
    then ones up to 4; fp32 counts ones up to 2^24, then twos. So 2 |y| added to 2^24 - 4 is rounded as E2M1 has it, and
    the bits of the sum count codes. The last code, 6, is a two more, for all above 5."""
    steps = tl.fma(_part(tl.abs(y) * 0.25), 8.0, 2 * WHOLE - 4)
    return tl.fma(_part(tl.fma(tl.abs(y), 0.5, -2.0)), 2.0, steps).to(tl.int32, bitcast=True)


@triton.jit
def integer_steps(y, LARGEST: tl.constexpr):
    """The nearest integer, of two the even one, within LARGEST, plus LARGEST + 1, in the lowest bits of an int32, with
    anything above."""
    return (tl.minimum(tl.maximum(y, -LARGEST), LARGEST) + (WHOLE + (LARGEST + 1))).to(tl.int32, bitcast=True)


@triton.jit
def encode(y, FORMAT: tl.constexpr, LARGEST: tl.constexpr, NATIVE: tl.constexpr):
    """Values in units of their scale, fp32 -> codes of a byte, e4m3 or int8. NATIVE: by the GPU's own conversion."""
    if FORMAT == "int8":
        return (integer_steps(y, LARGEST) - 128).to(tl.int8)
    elif NATIVE:
        return y.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    else:
        return float_code(y, 4, 3, LARGEST).to(tl.uint8)


@triton.jit
def encode_pairs(y, FORMAT: tl.constexpr, LARGEST: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Values in units of their scale, fp32 [ROWS, COLS] -> codes of four bits, e2m1 or int4, two a byte, the even
    column in the low nibble: [ROWS, COLS / 2]."""
    low, high = tl.split(tl.reshape(y, [ROWS, COLS // 2, 2]))
    if FORMAT == "int4":
        pair = integer_steps(low, LARGEST) + (integer_steps(high, LARGEST) << 4)
        return (pair ^ 0x88).to(tl.uint8)  # from 8 more to two's complement
    else:
        pair = e2m1_steps(low) + (e2m1_steps(high) << 4) + 0x44
        signs = (low.to(tl.uint32, bitcast=True) >> 28) | ((high.to(tl.uint32, bitcast=True) >> 28) << 4)
        return (pair + (signs & 0x88).to(tl.int32)).to(tl.uint8)


@triton.jit
def decode(code, FORMAT: tl.constexpr):
    """Codes as loaded (int32) -> fp32, without their scale."""
    if FORMAT == "e4m3":
        value = float_value(code, 4, 3)
        return tl.where((code & 127) == E4M3_NAN, INF - INF, value)
    elif FORMAT == "e2m1":
        return float_value(code, 2, 1)
    elif FORMAT == "int4":
        return ((code & 15) ^ 8).to(tl.float32) - 8
    else:
        return code.to(tl.float32)


@triton.jit
def larger(a, b):
    """The larger of two numbers; NaN where one of them is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def largest_magnitude(x, axis: tl.constexpr):
    """The largest |x| along an axis; NaN where there is one."""
    return tl.reduce(tl.abs(x), axis, larger)


@triton.jit
def fp32_scale(amax, LARGEST: tl.constexpr):
    """amax * (1 / LARGEST), at least SMALLEST; NaN where amax is not finite."""
    return tl.where(amax < INF, tl.maximum(amax * (1.0 / LARGEST), SMALLEST), INF - INF)


@triton.jit
def scale_of_tensor(partial_ptr, scale_ptr, LARGEST: tl.constexpr, PARTIALS: tl.constexpr):
    """The fp32 scale of a whole tensor: of its largest magnitudes partial [PARTIALS], which this program then stores if
    it is the first; or, where PARTIALS is 0, the one that was given."""
    if PARTIALS > 0:
        amax = tl.reduce(tl.load(partial_ptr + tl.arange(0, PARTIALS)), 0, larger)
        scale = fp32_scale(amax, LARGEST)
        if tl.program_id(0) == 0:
            tl.store(scale_ptr, scale)
        return scale
    else:
        return tl.load(scale_ptr)


@triton.jit
def block_scale(
    amax, tensor_scale, SCALE: tl.constexpr, LARGEST: tl.constexpr, ROUND_UP: tl.constexpr, NATIVE: tl.constexpr
):
    """(scale as it is stored, 1 / what it is worth in fp32) of blocks; tensor_scale and NATIVE are looked at for SCALE
    e4m3."""
    if SCALE == "fp32":
        scale = fp32_scale(amax, LARGEST)
        return scale, tl.div_rn(1.0, scale)
    elif SCALE == "e8m0":
        bits, largest = amax.to(tl.int32, bitcast=True), tl.full([], LARGEST, tl.float32).to(tl.int32, bitcast=True)
        code = (bits >> 23) - ((largest >> 23) - 127)
        if ROUND_UP:
            code += ((bits & 0x7FFFFF) > (largest & 0x7FFFFF)).to(tl.int32)
        code = tl.where(bits >= FP32_INF_BITS, E8M0_NAN, tl.maximum(code, 0))
        return code.to(tl.uint8), ((254 - code) << 23).to(tl.float32, bitcast=True)
    else:
        ratio = fp32_scale(amax, LARGEST) * tl.div_rn(1.0, tensor_scale)
        if NATIVE:
            rounded = larger(ratio, SMALLEST_E4M3).to(tl.float8e4nv)
            return rounded.to(tl.uint8, bitcast=True), tl.div_rn(1.0, rounded.to(tl.float32) * tensor_scale)
        rounded = float_rounded(tl.minimum(tl.maximum(ratio, SMALLEST_E4M3), E4M3_LARGEST), 4, 3)
        code = tl.where(ratio == ratio, rounded_code(rounded, 4, 3), E4M3_NAN)
        return code.to(tl.uint8), tl.div_rn(1.0, rounded * tensor_scale)


@triton.jit
def scale_value(scale, SCALE: tl.constexpr):
    """A scale as it is stored -> fp32, without the tensor's."""
    if SCALE == "fp32":
        return scale
    elif SCALE == "e4m3":
        return decode(scale.to(tl.int32), "e4m3")
    else:
        code = scale.to(tl.int32)
        bits = tl.where(code == 0, 0x400000, tl.where(code == E8M0_NAN, 0x7FC00000, code << 23))
        return bits.to(tl.float32, bitcast=True)


@triton.jit
def unpack(packed, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Bytes [ROWS, COLS / 2] -> codes (int32) [ROWS, COLS], the even column from the low nibble."""
    both = packed.to(tl.int32)
    return tl.reshape(tl.join(both & 15, both >> 4), [ROWS, COLS])
