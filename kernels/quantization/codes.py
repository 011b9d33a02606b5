"""Device functions of every quantization kernel: values to codes, blocks to scales, tiles to memory, and back.

Results equal those of formats.py and schemes.py bit for bit, on every GPU and in the interpreter. GPUs from sm_89 on
convert to FP8 with one instruction. Elsewhere, and for four bits, a single fp32 addition does the rounding: added to a
power of two that is 2^(23 - mantissa) times as large as the value's own, the value keeps just the format's bits, and
the addition rounds to nearest even as the format requires. The other operand of each such addition is an exact result
or comes from a minimum, so the bits stay the same if the compiler fuses a multiplication and an addition into one fma.
"""

from functools import cache

import torch

from instruments.backend import tl, triton
from kernels.quantization.formats import FORMATS
from kernels.quantization.schemes import SMALLEST_E4M3_SCALE, SMALLEST_SCALE, Scheme

SMALLEST = tl.constexpr(SMALLEST_SCALE)
SMALLEST_E4M3 = tl.constexpr(SMALLEST_E4M3_SCALE)
E4M3_LARGEST = tl.constexpr(FORMATS["e4m3"].largest)
E4M3_NAN = tl.constexpr(0x7F)
E8M0_NAN = tl.constexpr(255)
INF = tl.constexpr(float("inf"))  # NaN is written INF - INF: Triton rejects a global that does not equal itself
FP32_INF_BITS = tl.constexpr(0x7F800000)
#: 2^23: from here to 2^24 fp32 holds integers only, and an integer's lowest bit is the mantissa's; from 2^24 on it
#: holds even integers only.
WHOLE = tl.constexpr(8388608.0)


@cache
def has_fp8(device: torch.device) -> bool:
    """Whether the device converts to FP8 with an instruction: GPUs from sm_89 on."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def scheme_constants(scheme: Scheme, device: torch.device) -> dict:
    """The constexprs FORMAT, SCALE, LARGEST, ROUND_UP and NATIVE with which a kernel quantizes to a scheme.

    NATIVE: whether the GPU's own instruction converts to FP8, values or scales; the bits are the same either way.
    """
    return _constants(scheme, "e4m3" in (scheme.format, scheme.scale_format) and has_fp8(device))


@cache
def _constants(scheme: Scheme, native: bool) -> dict:
    return {
        "FORMAT": scheme.format,
        "SCALE": "tensor" if scheme.block == (None, None) else scheme.scale_format,
        "LARGEST": float(scheme.largest),
        "ROUND_UP": scheme.scale_rounding == "up",
        "NATIVE": native,
    }


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """An FP8 tensor as uint8, for GPUs that lack the type; any other tensor unchanged."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor


@triton.jit
def to_fp32(x):
    """x in fp32. bf16 is the upper half of fp32, so a shift converts it: the compiler needs one instruction for either
    half of a register, and two for the upper half where it sees a conversion (Triton 3.6 to 3.9)."""
    if x.dtype == tl.bfloat16:
        return (x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    else:
        return x.to(tl.float32)


@triton.jit
def round_float(magnitude, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr):
    """The nearest value of a format with EXPONENT and MANTISSA bits, for magnitudes up to its largest value."""
    FIRST: tl.constexpr = (129 - (1 << (EXPONENT - 1))) << 23  # exponent of the smallest normal value, in fp32's bits
    power = tl.maximum(magnitude.to(tl.int32, bitcast=True) & FP32_INF_BITS, FIRST).to(tl.float32, bitcast=True)
    coarse = power * (1 << (23 - MANTISSA))  # next to it, fp32 rounds as the format does
    return (magnitude + coarse) - coarse


@triton.jit
def code_of_value(value, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr):
    """The code (int32) of a non-negative value that the format holds exactly."""
    BIAS: tl.constexpr = 2.0 ** ((1 << (EXPONENT - 1)) - 128)
    return (value * BIAS).to(tl.int32, bitcast=True) >> (23 - MANTISSA)  # the exponent bias is now fp32's


@triton.jit
def encode_float(y, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, LARGEST: tl.constexpr):
    """fp32 -> code (int32) of a signed format, saturating; NaN becomes LARGEST."""
    SIGN: tl.constexpr = EXPONENT + MANTISSA  # position of the sign in a code
    value = round_float(tl.minimum(tl.abs(y), LARGEST), EXPONENT, MANTISSA)
    sign = (y.to(tl.int32, bitcast=True) >> (31 - SIGN)) & (1 << SIGN)
    return code_of_value(value, EXPONENT, MANTISSA) | sign


@triton.jit
def decode_float(code, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr):
    """code (int32) -> fp32: the bits move to fp32's positions, a multiplication corrects the exponent bias."""
    SIGN: tl.constexpr = EXPONENT + MANTISSA
    bits = ((code & ((1 << SIGN) - 1)) << (23 - MANTISSA)) | ((code >> SIGN & 1) << 31)
    return bits.to(tl.float32, bitcast=True) * (2.0 ** (128 - (1 << (EXPONENT - 1))))


@triton.jit
def _clamp_to_unit(x):
    """x clamped to [0, 1]: a modifier of the fma before it, not an instruction."""
    return tl.minimum(tl.maximum(x, 0.0), 1.0)


@triton.jit
def e2m1_bits(y):
    """The code of |y| in E2M1, minus 4, in the lowest bits of an int32; the other bits are arbitrary.

    E2M1's codes count halves up to 2, then ones up to 4; fp32 counts ones up to 2^24, then twos. So the sum of 2 |y|
    and 2^24 - 4 rounds as E2M1 does, and its bits count codes. The last code, 6, adds one for all above 5.
    """
    count = tl.fma(_clamp_to_unit(tl.abs(y) * 0.25), 8.0, 2 * WHOLE - 4)
    return tl.fma(_clamp_to_unit(tl.fma(tl.abs(y), 0.5, -2.0)), 2.0, count).to(tl.int32, bitcast=True)


@triton.jit
def integer_bits(y, LARGEST: tl.constexpr):
    """The nearest integer (ties to even) within LARGEST, plus LARGEST + 1, in the lowest bits of an int32; the other
    bits are arbitrary."""
    return (tl.minimum(tl.maximum(y, -LARGEST), LARGEST) + (WHOLE + (LARGEST + 1))).to(tl.int32, bitcast=True)


@triton.jit
def encode(y, FORMAT: tl.constexpr, LARGEST: tl.constexpr, NATIVE: tl.constexpr):
    """fp32 values in units of their scale -> codes of one byte, e4m3 or int8. NATIVE: by the GPU's own conversion."""
    if FORMAT == "int8":
        return (integer_bits(y, LARGEST) - 128).to(tl.int8)
    elif NATIVE:
        return y.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    else:
        return encode_float(y, 4, 3, LARGEST).to(tl.uint8)


@triton.jit
def encode_nibbles(y, FORMAT: tl.constexpr, LARGEST: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """fp32 values in units of their scale [ROWS, COLS] -> codes of four bits, e2m1 or int4, two per byte with the even
    column in the low nibble: [ROWS, COLS / 2]."""
    low, high = tl.split(tl.reshape(y, [ROWS, COLS // 2, 2]))
    if FORMAT == "int4":
        pair = integer_bits(low, LARGEST) + (integer_bits(high, LARGEST) << 4)
        return (pair ^ 0x88).to(tl.uint8)  # from an offset of 8 to two's complement
    else:
        pair = e2m1_bits(low) + (e2m1_bits(high) << 4) + 0x44
        signs = (low.to(tl.uint32, bitcast=True) >> 28) | ((high.to(tl.uint32, bitcast=True) >> 28) << 4)
        return (pair + (signs & 0x88).to(tl.int32)).to(tl.uint8)


@triton.jit
def decode(code, FORMAT: tl.constexpr):
    """Codes (int32) -> fp32, without their scale."""
    if FORMAT == "e4m3":
        value = decode_float(code, 4, 3)
        return tl.where((code & 127) == E4M3_NAN, INF - INF, value)
    elif FORMAT == "e2m1":
        return decode_float(code, 2, 1)
    elif FORMAT == "int4":
        return ((code & 15) ^ 8).to(tl.float32) - 8
    else:
        return code.to(tl.float32)


@triton.jit
def unpack_nibbles(packed, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Bytes [ROWS, COLS / 2] -> codes (int32) [ROWS, COLS], the even column from the low nibble."""
    both = packed.to(tl.int32)
    return tl.reshape(tl.join(both & 15, both >> 4), [ROWS, COLS])


@triton.jit
def unpack_halves(words, dtype: tl.constexpr):
    """int32 words [..., words] of two 16-bit floats -> [..., words, 2] of a dtype, the low half first."""
    low = (words & 0xFFFF).to(tl.uint16).to(dtype, bitcast=True)
    high = ((words >> 16) & 0xFFFF).to(tl.uint16).to(dtype, bitcast=True)
    return tl.join(low, high)


@triton.jit
def max_or_nan(a, b):
    """The larger of two numbers; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def absmax(x, axis: tl.constexpr):
    """max |x| along an axis; NaN if any element is."""
    return tl.reduce(tl.abs(x), axis, max_or_nan)


@triton.jit
def fp32_scale(amax, LARGEST: tl.constexpr):
    """amax * (1 / LARGEST), at least SMALLEST; NaN where amax is not finite."""
    return tl.where(amax < INF, tl.maximum(amax * (1.0 / LARGEST), SMALLEST), INF - INF)


@triton.jit
def load_tensor_scale(partial_ptr, scale_ptr, LARGEST: tl.constexpr, PARTIALS: tl.constexpr):
    """The fp32 scale of the whole tensor.

    With PARTIALS, computed from partial [PARTIALS], the absolute maxima of parts of the tensor; the first program
    stores it. PARTIALS 0: loaded, the caller knows it.
    """
    if PARTIALS > 0:
        amax = tl.reduce(tl.load(partial_ptr + tl.arange(0, PARTIALS)), 0, max_or_nan)
        scale = fp32_scale(amax, LARGEST)
        if tl.program_id(0) == 0:
            tl.store(scale_ptr, scale)
        return scale
    else:
        return tl.load(scale_ptr)


@triton.jit
def block_scale(
    amax, tensor_scale,
    SCALE: tl.constexpr, LARGEST: tl.constexpr, ROUND_UP: tl.constexpr, NATIVE: tl.constexpr,
):  # fmt: skip
    """(scale as stored, 1 / its fp32 value) of blocks. tensor_scale and NATIVE matter for SCALE e4m3 only."""
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
            scale = max_or_nan(ratio, SMALLEST_E4M3).to(tl.float8e4nv)
            return scale.to(tl.uint8, bitcast=True), tl.div_rn(1.0, scale.to(tl.float32) * tensor_scale)
        scale = round_float(tl.minimum(tl.maximum(ratio, SMALLEST_E4M3), E4M3_LARGEST), 4, 3)
        code = tl.where(ratio == ratio, code_of_value(scale, 4, 3), E4M3_NAN)
        return code.to(tl.uint8), tl.div_rn(1.0, scale * tensor_scale)


@triton.jit
def scale_value(scale, SCALE: tl.constexpr):
    """A scale as stored -> fp32, without the tensor's scale."""
    if SCALE == "fp32":
        return scale
    elif SCALE == "e4m3":
        return decode(scale.to(tl.int32), "e4m3")
    else:
        code = scale.to(tl.int32)
        bits = tl.where(code == 0, 0x400000, tl.where(code == E8M0_NAN, 0x7FC00000, code << 23))
        return bits.to(tl.float32, bitcast=True)


@triton.jit
def locate_groups(first, rows, cols, groups_per_row, FLAT: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """Where GROUPS groups from number `first` on lie: (first row (int64); row relative to it, first column, and
    number of columns from there to the row's end, each [GROUPS]).

    FLAT: every group is a row of BLOCK columns, so no index needs a division.
    """
    local = tl.arange(0, GROUPS)
    if FLAT:
        inside = tl.minimum(rows - first, GROUPS).to(tl.int32)
        return first, local, local * 0, tl.where(local < inside, BLOCK, 0)
    else:
        first_row = first // groups_per_row
        group = (first % groups_per_row).to(tl.int32) + local
        start = group % groups_per_row * BLOCK
        row = (group // groups_per_row).to(tl.int64)
        return first_row, row, start, tl.where(first_row + row < rows, cols - start, 0)


@triton.jit
def store_codes(
    codes_ptr, first, offset, count, y,
    FORMAT: tl.constexpr, LARGEST: tl.constexpr, NATIVE: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Encode y [ROWS, COLS], in units of its scales, and store the codes, two per byte where they have four bits.

    first + offset [ROWS] is the position of each row's first code in contiguous memory; both are even where two codes
    share a byte. count [ROWS]: codes to store per row.
    """
    if FORMAT == "e2m1" or FORMAT == "int4":
        codes_ptr += first // 2
        byte = tl.arange(0, COLS // 2)[None, :]
        packed = encode_nibbles(y, FORMAT, LARGEST, ROWS, COLS)
        tl.store(codes_ptr + offset[:, None] // 2 + byte, packed, mask=byte < count[:, None] // 2)
    else:
        codes_ptr += first
        col = tl.arange(0, COLS)[None, :]
        code = encode(y, FORMAT, LARGEST, NATIVE)
        tl.store(codes_ptr + offset[:, None] + col, code, mask=col < count[:, None])


@triton.jit
def quantize_tile(
    y, first, offset, count, scale_offset,
    codes_ptr, scales_ptr, partial_ptr, tensor_scale_ptr,
    FORMAT: tl.constexpr, SCALE: tl.constexpr, LARGEST: tl.constexpr, ROUND_UP: tl.constexpr, NATIVE: tl.constexpr,
    PARTIALS: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Quantize groups y [GROUPS, BLOCK], fp32 and 0 outside, and store their codes and scales.

    first, offset, count: as in `store_codes`. scale_offset [GROUPS]: positions of the groups' scales, if they have any.
    SCALE: 'tensor' for one scale of the whole tensor, else the scheme's; 'tensor' and 'e4m3' load the tensor's scale,
    see `load_tensor_scale`.
    """
    if SCALE == "tensor":
        inverse = tl.div_rn(1.0, load_tensor_scale(partial_ptr, tensor_scale_ptr, LARGEST, PARTIALS))
    else:
        tensor_scale = 1.0
        if SCALE == "e4m3":
            tensor_scale = load_tensor_scale(partial_ptr, tensor_scale_ptr, LARGEST * E4M3_LARGEST, PARTIALS)
        amax = absmax(y, 1)
        scale, inverse = block_scale(amax, tensor_scale, SCALE, LARGEST, ROUND_UP, NATIVE)  # [GROUPS]
        tl.store(scales_ptr + scale_offset, scale, mask=count > 0)
        inverse = inverse[:, None]
    store_codes(codes_ptr, first, offset, count, y * inverse, FORMAT, LARGEST, NATIVE, GROUPS, BLOCK)
