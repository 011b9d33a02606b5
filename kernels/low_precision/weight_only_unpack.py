"""Device functions that turn weights of 8 or 4 bits into 16-bit floats in registers, exactly, two at a time.

A 32-bit word holds four codes of 8 bits, or eight of 4. Part s of a word is codes s and s + PARTS, where PARTS is half
the number of codes: they lie 16 bits apart, one in each half of a register, so one instruction works on both. A sum
over K may go in any order, so the values stay in the order of the parts, and x is put into that order.

At the low end of its range, a float's value is its bits read as an integer times the smallest subnormal: 2^-133 in
bf16, 2^-24 in fp16. So an integer whose sign bit is flipped, which makes it non-negative, is a float once it lies at
the low end of a 16-bit half, or a nibble higher; one multiply-add for both halves scales it up and subtracts the
offset that the sign bit added. E2M1's sign, exponent and mantissa move to the wider type's positions; its exponent has
another bias, which the multiplication by the scale corrects. No factor may exceed the type's range, so the values stay
smaller than the weights by a power of two, and `rescale` corrects the sums of their products.
"""

from instruments.backend import tl, triton
from kernels.quantization.codes import unpack_halves


@triton.jit
def flip_signs(words, FORMAT: tl.constexpr):
    """Words of two's complement integers with their sign bits flipped: 0 to 255, or 15. Other formats unchanged."""
    if FORMAT == "int8":
        return words ^ -0x7F7F7F80  # 0x80808080
    elif FORMAT == "int4":
        return words ^ -0x77777778  # 0x88888888
    else:
        return words


@triton.jit
def shift_left(words, bits: tl.constexpr):
    """words << bits; negative bits shift right."""
    return words << bits if bits > 0 else words >> -bits if bits < 0 else words


@triton.jit
def unpack_int8(words, s: tl.constexpr, dtype: tl.constexpr):
    """Part s of words of four integers, signs flipped: -128 to 127, times 2^-6 (bf16) or 2^-9 (fp16)."""
    values = unpack_halves(shift_left(words, -8 * s) & 0x00FF00FF, dtype)
    return values * 2.0**127 - 2.0 if dtype == tl.bfloat16 else values * 2.0**15 - 0.25


@triton.jit
def unpack_int4(words, s: tl.constexpr, dtype: tl.constexpr):
    """Part s of words of eight integers, signs flipped: -8 to 7, times the same. Odd parts lie a nibble higher."""
    words = shift_left(words, -8 * (s // 2))
    values = unpack_halves(words & (0x00F000F0 if s % 2 else 0x000F000F), dtype)
    up: tl.constexpr = 2.0**-4 if s % 2 else 1.0
    return values * (2.0**127 * up) - 2.0**-3 if dtype == tl.bfloat16 else values * (2.0**15 * up) - 2.0**-6


@triton.jit
def unpack_e2m1(words, s: tl.constexpr, dtype: tl.constexpr):
    """Part s of words of eight E2M1 codes, as pairs of 16-bit floats.

    Args:
        words: [...], int32, eight codes each.
        s: 0 to 3, for codes s and s + 4.
        dtype: bf16 or fp16.

    Returns:
        [..., 2] of dtype: the values times 2^-126 (bf16) or 2^-14 (fp16), the difference of the biases.
    """
    if dtype == tl.bfloat16:  # a multiplication copies a nibble: its sign to bit 15, the others to bits 6 to 8
        words = shift_left(words, -8 * (s // 2))
        twice = (words & 0x00F000F0) * 0x0104 if s % 2 else (words & 0x000F000F) * 0x1040
        return unpack_halves(twice & -0x7E3F7E40, dtype)  # 0x81C081C0
    else:  # bits 9 to 11 are too close for that
        sign, others = shift_left(words, 12 - 4 * s) & -0x7FFF8000, shift_left(words, 9 - 4 * s) & 0x0E000E00
        return unpack_halves(sign | others, dtype)


@triton.jit
def unpack_part(words, s: tl.constexpr, FORMAT: tl.constexpr, dtype: tl.constexpr):
    """Part s of words of a format's codes, signs flipped: [..., words, 2], smaller as each function says."""
    if FORMAT == "int8":
        return unpack_int8(words, s, dtype)
    elif FORMAT == "int4":
        return unpack_int4(words, s, dtype)
    else:
        return unpack_e2m1(words, s, dtype)


@triton.jit
def unpack(words, FORMAT: tl.constexpr, dtype: tl.constexpr):
    """[slices, rows, words] of codes -> values without their scales, smaller as `rescale` knows: [slices, rows,
    columns], part by part, in the order of `order_by_parts`."""
    slices: tl.constexpr = words.shape[0]
    rows: tl.constexpr = words.shape[1]
    count: tl.constexpr = words.shape[2]
    words = flip_signs(words, FORMAT)
    first, second = unpack_part(words, 0, FORMAT, dtype), unpack_part(words, 1, FORMAT, dtype)
    values = tl.join(first, second)  # [slices, rows, words, 2 (half of a word), 2 (part)]
    if FORMAT == "int8":
        return values.permute(0, 1, 4, 2, 3).reshape(slices, rows, 4 * count)
    else:
        third, fourth = unpack_part(words, 2, FORMAT, dtype), unpack_part(words, 3, FORMAT, dtype)
        values = tl.join(values, tl.join(third, fourth))
        return values.permute(0, 1, 5, 4, 2, 3).reshape(slices, rows, 8 * count)


@triton.jit
def split_slices(tile, SLICES: tl.constexpr):
    """[rows, columns] -> [SLICES, rows, columns of a slice]; where there are fewer columns, slices share one."""
    rows: tl.constexpr = tile.shape[0]
    cols: tl.constexpr = tile.shape[1]
    if cols < SLICES:
        tile = tl.broadcast_to(tile[:, :, None], (rows, cols, SLICES // cols)).reshape(rows, SLICES)
    return tile.reshape(rows, SLICES, max(1, cols // SLICES)).permute(1, 0, 2)


@triton.jit
def order_by_parts(x, PARTS: tl.constexpr):
    """The columns of x [slices, rows, columns] in the order 0, PARTS, 2 PARTS, ..., 1, PARTS + 1, ..."""
    slices: tl.constexpr = x.shape[0]
    rows: tl.constexpr = x.shape[1]
    cols: tl.constexpr = x.shape[2]
    return x.reshape(slices, rows, cols // PARTS, PARTS).permute(0, 1, 3, 2).reshape(slices, rows, cols)


@triton.jit
def scale_factors(codes, dtype: tl.constexpr):
    """E2M1's scales as 16-bit factors, larger by 2^110 (bf16) or 2^6 (fp16), from the bytes of E8M0 (uint8) or E4M3
    (int8). E8M0 scales above 2^17 or 2^9, and its NaN, become infinite."""
    bits = codes.to(tl.int32)
    if codes.dtype == tl.uint8:  # an exponent whose bias is fp32's
        if dtype == tl.bfloat16:
            return (tl.minimum(bits + 110, 255) << 7).to(tl.uint16).to(dtype, bitcast=True)
        else:
            return (tl.minimum(tl.maximum(bits - 106, 0), 31) << 10).to(tl.uint16).to(dtype, bitcast=True)
    else:  # exponent and mantissa at fp32's positions: 2^120 too small
        value = ((bits << 20) & -0x78100000).to(tl.float32, bitcast=True) * 2.0**120
        value = tl.where((bits & 0x7F) == 0x7F, float("nan"), value)
        return (value * (2.0**110 if dtype == tl.bfloat16 else 2.0**6)).to(dtype)


@triton.jit
def repeat_factors(factors, GROUP: tl.constexpr):
    """[slices, rows, groups] -> one factor per column of words of eight codes, in the order of the parts."""
    slices: tl.constexpr = factors.shape[0]
    rows: tl.constexpr = factors.shape[1]
    groups: tl.constexpr = factors.shape[2]
    each = tl.broadcast_to(factors[:, :, None, :, None], (slices, rows, 4, groups, GROUP // 4))
    return each.reshape(slices, rows, groups * GROUP)


@triton.jit
def rescale(sums, FORMAT: tl.constexpr, dtype: tl.constexpr):
    """Sums of products with values of `unpack` (E2M1's times `scale_factors`), corrected to their true magnitude."""
    if FORMAT == "e2m1":
        return sums * (2.0**16 if dtype == tl.bfloat16 else 2.0**8)
    else:
        return sums * (2.0**6 if dtype == tl.bfloat16 else 2.0**9)
