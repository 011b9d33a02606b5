"""Floating-point formats of 4, 8 and 16 bits: encoded and decoded exactly, by integer arithmetic on fp32's bits.

A value is (-1)^sign * significand * 2^exponent; its code holds sign, biased exponent and mantissa, from the highest bit
down. `encode` rounds to nearest, ties to even, with one routine for all formats, subnormals included. The formats
differ beyond their largest value:

    format  standard                          beyond the largest     infinity, NaN
    fp16    IEEE 754                          infinity               both
    bf16    upper half of fp32                infinity               both
    e5m2    OCP FP8, torch.float8_e5m2        infinity               both
    e4m3    OCP FP8, torch.float8_e4m3fn      saturates at 448       NaN only: S.1111.111
    e2m1    OCP MX                            saturates at 6         none
    e8m0    OCP MX, scales                    saturates at 2^127     NaN only: 255; no sign, no zero

OCP's FP8 lets a conversion saturate or not, in both formats; `saturate` chooses. Others differ: torch's cast to e4m3
saturates in recent versions and gave NaN in older ones, ml_dtypes gives NaN, a GPU's cvt.satfinite saturates e5m2 too.
NaN becomes 6 in e2m1, as in a GPU's conversion; OCP MX leaves that open. In e8m0, values below 2^-127 become 2^-127,
zero included, and negative numbers NaN (torch drops the sign, ml_dtypes turns zero into NaN; beyond 2^127 both give
NaN, and just above 2^-127, where fp32 is subnormal, both round up).

Codes of up to 8 bits are uint8, one per value; `pack_fp4` puts two FP4 codes into a byte. Formats: OCP 8-bit Floating
Point Specification 1.0 (2023); OCP Microscaling Formats (MX) Specification 1.0 (2023).
"""

import math
from dataclasses import dataclass
from functools import cache

import torch

FP32_MANTISSA, FP32_BIAS, FP32_INF = 23, 127, 0x7F800000


@dataclass(frozen=True)
class Format:
    """A floating-point format.

    Args:
        name: as in FORMATS.
        exponent, mantissa: their number of bits.
        bias: of the exponent.
        has_inf: whether the highest exponent is reserved for infinity and NaN, as in IEEE 754.
        has_nan: whether there is a NaN; without infinity it takes only the last code of the highest exponent.
        signed: whether there is a sign bit.
    """

    name: str
    exponent: int
    mantissa: int
    bias: int
    has_inf: bool
    has_nan: bool
    signed: bool = True

    @property
    def bits(self) -> int:
        return self.signed + self.exponent + self.mantissa

    @property
    def largest_code(self) -> int:
        """Code of the largest finite value; codes above it, up to the sign, are infinity and NaN."""
        last = (1 << (self.exponent + self.mantissa)) - 1
        return last - (1 << self.mantissa) if self.has_inf else last - self.has_nan

    @property
    def largest(self) -> float:
        return self.value(self.largest_code)

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (self.signed - self.bias)  # e8m0 has no subnormals

    @property
    def smallest_subnormal(self) -> float | None:
        """None for e8m0, which has no subnormals."""
        return self.value(1) if self.signed else None

    @property
    def code_dtype(self) -> torch.dtype:
        return torch.uint8 if self.bits <= 8 else torch.int32

    def value(self, code: int) -> float:
        """The value of a code."""
        magnitude = code & ((1 << (self.exponent + self.mantissa)) - 1)
        if magnitude > self.largest_code:
            value = math.inf if self.has_inf and magnitude == self.largest_code + 1 else math.nan
        elif not self.signed:
            value = math.ldexp(1, magnitude - self.bias)
        else:
            exponent, fraction = magnitude >> self.mantissa, magnitude & ((1 << self.mantissa) - 1)
            significand = fraction + (1 << self.mantissa if exponent else 0)
            value = math.ldexp(significand, max(exponent, 1) - self.bias - self.mantissa)
        return -value if code > magnitude else value


FORMATS = {
    f.name: f
    for f in (
        # name, exponent, mantissa, bias, has_inf, has_nan, signed
        Format("fp16", 5, 10, 15, True, True),
        Format("bf16", 8, 7, 127, True, True),
        Format("e5m2", 5, 2, 15, True, True),
        Format("e4m3", 4, 3, 7, False, True),
        Format("e2m1", 2, 1, 1, False, False),
        Format("e8m0", 8, 0, 127, False, True, signed=False),
    )
}


def format_of(name: Format | str) -> Format:
    """A format, or the one of that name; ValueError for any other name."""
    if isinstance(name, Format):
        return name
    if name not in FORMATS:
        raise ValueError(f"format: got {name!r}, expected one of {', '.join(FORMATS)}")
    return FORMATS[name]


@cache
def table(format: str, device: torch.device | str = "cpu") -> torch.Tensor:
    """The value of each code, fp32 [2^bits]. The tensor is cached: do not write to it."""
    of = format_of(format)
    return torch.tensor([of.value(code) for code in range(1 << of.bits)], dtype=torch.float64).float().to(device)


def values(format: str) -> torch.Tensor:
    """All finite values of a format in ascending order, fp32; the two zeros count once."""
    worth = table(format)
    return worth[worth.isfinite()].unique()


def encode(values: torch.Tensor, format: Format | str, saturate: bool | None = None) -> torch.Tensor:
    """The codes of fp32 values, rounded to nearest, ties to even.

    Args:
        values: fp32, of any shape and device.
        format: a Format, or the name of one of FORMATS.
        saturate: True turns values that are too large, infinity included, into the largest value; False into infinity,
            or NaN in a format without infinity. None: True for formats without infinity.

    Returns:
        Codes of values' shape, uint8, or int32 for formats of 16 bits.

    Raises:
        ValueError: names the argument.

    Note:
        A format with neither infinity nor NaN always saturates.
    """
    of = format_of(format)
    if values.dtype != torch.float32:
        raise ValueError(f"values: got dtype {values.dtype}, expected torch.float32")
    bits = values.contiguous().view(torch.int32)
    magnitude = bits & 0x7FFFFFFF
    code = _round_to_power(magnitude) if not of.signed else _round(magnitude, of)
    if saturate or saturate is None and not of.has_inf or not of.has_nan:
        beyond = of.largest_code
    else:
        beyond = of.largest_code + 1  # infinity where there is one, else NaN
    code = torch.where((code > of.largest_code) | (magnitude == FP32_INF), beyond, code)
    nan = (1 << (of.exponent + of.mantissa)) - 1  # all bits set; without a NaN, the largest value
    code = torch.where(magnitude > FP32_INF, nan, code)
    if of.signed:
        code |= (bits >> 31 & 1) << (of.bits - 1)
    else:
        code = torch.where((bits < 0) & (magnitude > 0), nan, code)
    return code.to(of.code_dtype)


def _round(magnitude: torch.Tensor, of: Format) -> torch.Tensor:
    """fp32 bits without the sign -> code without the sign, as if exponents continued beyond the largest."""
    field = magnitude >> FP32_MANTISSA
    significand = (magnitude & 0x7FFFFF) | torch.where(field > 0, 1 << FP32_MANTISSA, 0)  # value * 2^(23 - exponent)
    exponent = field.clamp(min=1) - FP32_BIAS
    smallest = 1 - of.bias  # exponent of subnormals, which have one bit less for each power of two below it
    shift = (FP32_MANTISSA - of.mantissa + (smallest - exponent).clamp(min=0)).clamp(max=FP32_MANTISSA + 2)
    high = significand >> shift
    rest, half = significand - (high << shift), 1 << (shift - 1)
    high += (rest > half) | (rest == half) & (high & 1 == 1)
    return ((exponent - smallest).clamp(min=0) << of.mantissa) + high  # high holds the leading one, and any carry


def _round_to_power(magnitude: torch.Tensor) -> torch.Tensor:
    """fp32 bits without the sign -> code of the nearest power of two, at least 2^-127; ties to the larger."""
    return torch.where(magnitude < 0x600000, 0, (magnitude + 0x400000) >> FP32_MANTISSA)  # 0x600000: 1.5 * 2^-127


def decode(codes: torch.Tensor, format: Format | str) -> torch.Tensor:
    """The fp32 values of integer codes of any shape, exactly; bits above the format's are ignored."""
    return table(format, codes.device)[codes.int() & ((1 << format_of(format).bits) - 1)]


def pack_fp4(codes: torch.Tensor) -> torch.Tensor:
    """Codes of four bits packed two per byte, the even column in the low nibble.

    Args:
        codes: [..., cols], integers; bits above the fourth are ignored, so int4 in two's complement packs as it is.

    Returns:
        uint8 [..., cols / 2].

    Raises:
        ValueError: for an odd number of columns.
    """
    if codes.dim() == 0 or codes.shape[-1] % 2:
        raise ValueError(f"codes: got shape {tuple(codes.shape)}, expected an even number of columns")
    nibbles = codes.to(torch.uint8) & 15
    return nibbles[..., ::2] | nibbles[..., 1::2] << 4


def unpack_fp4(packed: torch.Tensor) -> torch.Tensor:
    """The inverse of `pack_fp4`: uint8 [..., cols / 2] -> uint8 [..., cols]."""
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)
