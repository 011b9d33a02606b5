"""Weights of 8 or 4 bits made 16-bit floats in registers, without error, two at a time.

A 32-bit word holds four codes of 8 bits, or eight of 4. Part s of it are the codes s and s + PARTS, PARTS being half of
how many there are: they lie 16 bits apart, one in each half of a register, and what is done to the register is done to
both. A sum over K may go in any order, so the values are left in the order of the parts, and x is put into that order.

At the lower end of its range a float's value is its bits read as an integer, times the smallest number there is: 2^-133
in bf16, 2^-24 in fp16. So an integer, made positive by turning its sign bit round, is a float once it lies at the lower
end of a 16-bit half, or a nibble higher; one multiply-add for both halves makes it larger and takes away what the sign
bit had added. E2M1's sign, exponent and mantissa are moved to where the wider type has its own; its exponent counts
from another bias, and the multiplication by its scale mends that, too. No factor may be beyond the type's range, so all
are left smaller than they are, and `mended` makes up for it in the sums of their products.
"""

from instruments.backend import tl, triton


@triton.jit
def pairs(bits, like: tl.constexpr):
    """Two 16-bit floats in each of bits, [..., words] int32 -> [..., words, 2] of type `like`, the low half first."""
    low = (bits & 0xFFFF).to(tl.uint16).to(like, bitcast=True)
    high = ((bits >> 16) & 0xFFFF).to(tl.uint16).to(like, bitcast=True)
    return tl.join(low, high)


@triton.jit
def positive(words, FORMAT: tl.constexpr):
    """Words of integers in two's complement with their sign bits turned round: 0 to 255, or 15. Others as they are."""
    if FORMAT == "int8":
        return words ^ -0x7F7F7F80  # 0x80808080
    elif FORMAT == "int4":
        return words ^ -0x77777778  # 0x88888888
    else:
        return words


@triton.jit
def shifted(words, left: tl.constexpr):
    """words << left; to the right where that is negative."""
    return words << left if left > 0 else words >> -left if left < 0 else words


@triton.jit
def unpack_int8(words, s: tl.constexpr, like: tl.constexpr):
    """Part s of words of four integers, made positive: -128 to 127, times 2^-6 (bf16) or 2^-9 (fp16)."""
    values = pairs(shifted(words, -8 * s) & 0x00FF00FF, like)
    return values * 2.0**127 - 2.0 if like == tl.bfloat16 else values * 2.0**15 - 0.25


@triton.jit
def unpack_int4(words, s: tl.constexpr, like: tl.constexpr):
    """Part s of words of eight integers, made positive: -8 to 7, times the same. Odd parts lie a nibble higher."""
    words = shifted(words, -8 * (s // 2))
    values = pairs(words & (0x00F000F0 if s % 2 else 0x000F000F), like)
    up: tl.constexpr = 2.0**-4 if s % 2 else 1.0
    return values * (2.0**127 * up) - 2.0**-3 if like == tl.bfloat16 else values * (2.0**15 * up) - 2.0**-6


@triton.jit
def unpack_e2m1(words, s: tl.constexpr, like: tl.constexpr):
    """Part s of words of eight codes of E2M1, times 2^-126 (bf16) or 2^-14 (fp16), the difference of the biases."""
    if like == tl.bfloat16:  # a product puts a nibble into two places: its sign to bit 15, the others to bits 6 to 8
        words = shifted(words, -8 * (s // 2))
        twice = (words & 0x00F000F0) * 0x0104 if s % 2 else (words & 0x000F000F) * 0x1040
        return pairs(twice & -0x7E3F7E40, like)  # 0x81C081C0
    else:  # bits 9 to 11 are too near for that
        sign, others = shifted(words, 12 - 4 * s) & -0x7FFF8000, shifted(words, 9 - 4 * s) & 0x0E000E00
        return pairs(sign | others, like)


@triton.jit
def unpack_part(words, s: tl.constexpr, FORMAT: tl.constexpr, like: tl.constexpr):
    """Part s of words of codes of a format, as `positive` leaves them: [..., words, 2], too small as each says."""
    if FORMAT == "int8":
        return unpack_int8(words, s, like)
    elif FORMAT == "int4":
        return unpack_int4(words, s, like)
    else:
        return unpack_e2m1(words, s, like)


@triton.jit
def unpack(words, FORMAT: tl.constexpr, like: tl.constexpr):
    """[slices, rows, words] of codes of a format -> their values without their scales, too small as `mended` knows:
    [slices, rows, columns], part by part, in the order that `by_parts` gives to x."""
    slices: tl.constexpr = words.shape[0]
    rows: tl.constexpr = words.shape[1]
    count: tl.constexpr = words.shape[2]
    words = positive(words, FORMAT)
    first, second = unpack_part(words, 0, FORMAT, like), unpack_part(words, 1, FORMAT, like)
    values = tl.join(first, second)  # [slices, rows, words, 2 (half of a word), 2 (part)]
    if FORMAT == "int8":
        return values.permute(0, 1, 4, 2, 3).reshape(slices, rows, 4 * count)
    else:
        third, fourth = unpack_part(words, 2, FORMAT, like), unpack_part(words, 3, FORMAT, like)
        values = tl.join(values, tl.join(third, fourth))
        return values.permute(0, 1, 5, 4, 2, 3).reshape(slices, rows, 8 * count)


@triton.jit
def by_slices(tile, SLICES: tl.constexpr):
    """[rows, columns] -> [SLICES, rows, columns of a slice]; fewer columns than slices serve several slices each."""
    rows: tl.constexpr = tile.shape[0]
    cols: tl.constexpr = tile.shape[1]
    if cols < SLICES:
        tile = tl.broadcast_to(tile[:, :, None], (rows, cols, SLICES // cols)).reshape(rows, SLICES)
    return tile.reshape(rows, SLICES, max(1, cols // SLICES)).permute(1, 0, 2)


@triton.jit
def by_parts(x, PARTS: tl.constexpr):
    """The columns of x [slices, rows, columns] in the order 0, PARTS, 2 PARTS, ..., 1, PARTS + 1, ..."""
    slices: tl.constexpr = x.shape[0]
    rows: tl.constexpr = x.shape[1]
    cols: tl.constexpr = x.shape[2]
    return x.reshape(slices, rows, cols // PARTS, PARTS).permute(0, 1, 3, 2).reshape(slices, rows, cols)


@triton.jit
def factors_of(codes, like: tl.constexpr):
    """Scales of E2M1 as 16-bit factors, larger by 2^110 (bf16) or 2^6 (fp16), from the bytes of E8M0 (uint8) or E4M3
    (int8). E8M0 up to 2^17 or 2^9, what is more is infinite, as is its NaN."""
    bits = codes.to(tl.int32)
    if codes.dtype == tl.uint8:  # an exponent whose bias is fp32's
        if like == tl.bfloat16:
            return (tl.minimum(bits + 110, 255) << 7).to(tl.uint16).to(like, bitcast=True)
        else:
            return (tl.minimum(tl.maximum(bits - 106, 0), 31) << 10).to(tl.uint16).to(like, bitcast=True)
    else:  # exponent and mantissa moved to where fp32's are, and so 2^120 too small
        value = ((bits << 20) & -0x78100000).to(tl.float32, bitcast=True) * 2.0**120
        value = tl.where((bits & 0x7F) == 0x7F, float("nan"), value)
        return (value * (2.0**110 if like == tl.bfloat16 else 2.0**6)).to(like)


@triton.jit
def spread(factors, GROUP: tl.constexpr):
    """[slices, rows, groups] -> one for each column of words of eight codes, in the parts' order."""
    slices: tl.constexpr = factors.shape[0]
    rows: tl.constexpr = factors.shape[1]
    groups: tl.constexpr = factors.shape[2]
    each = tl.broadcast_to(factors[:, :, None, :, None], (slices, rows, 4, groups, GROUP // 4))
    return each.reshape(slices, rows, groups * GROUP)


@triton.jit
def mended(total, FORMAT: tl.constexpr, like: tl.constexpr):
    """Sums of products with what `unpack` gives, E2M1's times `factors_of`, as large as they are."""
    if FORMAT == "e2m1":
        return total * (2.0**16 if like == tl.bfloat16 else 2.0**8)
    else:
        return total * (2.0**6 if like == tl.bfloat16 else 2.0**9)
