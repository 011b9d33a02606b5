"""Floating-point formats of 4, 8 and 16 bits: encoded and decoded exactly, by integer arithmetic on fp32's bits.

A value is (-1)^sign * significand * 2^exponent; its code holds sign, biased exponent and mantissa, from the highest bit
down. `encode` rounds to nearest, ties to the even code, with one routine for all formats; subnormals are numbers like
any other. What is beyond the largest value is where the formats differ:

    format  standard                          beyond the largest     infinity, NaN
    fp16    IEEE 754                          infinity               both
    bf16    fp32's upper half                 infinity               both
    e5m2    OCP FP8, torch.float8_e5m2        infinity               both
    e4m3    OCP FP8, torch.float8_e4m3fn      the largest, 448       NaN alone: S.1111.111
    e2m1    OCP MX                            the largest, 6         none
    e8m0    OCP MX, scales                    the largest, 2^127     NaN alone: 255; no sign, no zero

OCP's FP8 lets a conversion saturate or not, for both formats; `saturate` asks for either. What others do: torch's cast
to e4m3 saturates in recent versions and gave NaN in older ones, ml_dtypes gives NaN, a GPU's cvt.satfinite saturates
e5m2 too. A NaN becomes 6 in e2m1, as in a GPU's conversion; OCP MX leaves that open. In e8m0 whatever is below 2^-127
becomes 2^-127, zero included, and a negative number NaN (torch drops the sign, ml_dtypes makes NaN of zero; beyond
2^127 both give NaN, and just above 2^-127, where fp32 is subnormal, both round up).

Codes of up to 8 bits are uint8, one per value; two FP4 codes share a byte after `pack_fp4`. Formats: OCP 8-bit Floating
Point Specification 1.0 (2023); OCP Microscaling Formats (MX) Specification 1.0 (2023).
"""

import math
from dataclasses import dataclass
from functools import cache

import torch

FP32_MANTISSA, FP32_BIAS, FP32_INF = 23, 127, 0x7F800000


@dataclass(frozen=True)
class Format:
    """A floating-point format. exponent, mantissa: their bits. bias: of the exponent. signed: whether it has a sign.

    has_inf, has_nan: as IEEE 754 has them, in the highest exponent, where has_inf; without, of that exponent the NaN
    takes the last mantissa alone, or nothing is taken.
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
        """Of the largest finite value; codes above it, up to the sign, are infinity and NaN."""
        everything = (1 << (self.exponent + self.mantissa)) - 1
        return everything - (1 << self.mantissa) if self.has_inf else everything - self.has_nan

    @property
    def largest(self) -> float:
        return self.value(self.largest_code)

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (self.signed - self.bias)  # e8m0 has no subnormals: its exponent of zero is one like the others

    @property
    def smallest_subnormal(self) -> float | None:
        """None for e8m0, which has none."""
        return self.value(1) if self.signed else None

    @property
    def code_dtype(self) -> torch.dtype:
        return torch.uint8 if self.bits <= 8 else torch.int32

    def value(self, code: int) -> float:
        """What a code is worth, of any number of bits."""
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
    """A format, or the one of that name; ValueError, naming all, for another."""
    if isinstance(name, Format):
        return name
    if name not in FORMATS:
        raise ValueError(f"format: got {name!r}, expected one of {', '.join(FORMATS)}")
    return FORMATS[name]


@cache
def table(format: str, device: torch.device | str = "cpu") -> torch.Tensor:
    """What each code is worth, fp32, in the order of the codes: [2^bits]. Not to be written to."""
    of = format_of(format)
    return torch.tensor([of.value(code) for code in range(1 << of.bits)], dtype=torch.float64).float().to(device)


def values(format: str) -> torch.Tensor:
    """All finite values of a format, each once, in ascending order, fp32; the two zeros are one."""
    every = table(format)
    return every[every.isfinite()].unique()


def encode(values: torch.Tensor, format: Format | str, saturate: bool | None = None) -> torch.Tensor:
    """The codes of fp32 values, rounded to nearest even, as the module's docstring says.

    values: fp32, any shape and device. saturate: True, whatever is too large, infinity included, becomes the largest
    value; False, infinity, or NaN in a format without; None, True for the formats without infinity. A format that has
    neither infinity nor NaN always saturates. Returns codes of values' shape, uint8, or int32 for formats of 16 bits.
    Raises ValueError naming the argument.
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
    """fp32 without its sign -> code without its sign; beyond the largest, codes go on as if exponents did."""
    field = magnitude >> FP32_MANTISSA
    significand = (magnitude & 0x7FFFFF) | torch.where(field > 0, 1 << FP32_MANTISSA, 0)  # value * 2^(23 - exponent)
    exponent = field.clamp(min=1) - FP32_BIAS
    smallest = 1 - of.bias  # the exponent of subnormals, too: they give up one bit for each power of two below it
    lost = (FP32_MANTISSA - of.mantissa + (smallest - exponent).clamp(min=0)).clamp(max=FP32_MANTISSA + 2)
    kept = significand >> lost
    rest, half = significand - (kept << lost), 1 << (lost - 1)
    kept += (rest > half) | (rest == half) & (kept & 1 == 1)
    return ((exponent - smallest).clamp(min=0) << of.mantissa) + kept  # kept holds the leading one, and any carry


def _round_to_power(magnitude: torch.Tensor) -> torch.Tensor:
    """fp32 without its sign -> code of the nearest power of two from 2^-127 on; halfway, of the larger."""
    return torch.where(magnitude < 0x600000, 0, (magnitude + 0x400000) >> FP32_MANTISSA)  # 0x600000: 1.5 * 2^-127


def decode(codes: torch.Tensor, format: Format | str) -> torch.Tensor:
    """What codes are worth, in fp32, exactly. codes: integers, any shape; bits above the format's are not looked at."""
    return table(format, codes.device)[codes.int() & ((1 << format_of(format).bits) - 1)]


def pack_fp4(codes: torch.Tensor) -> torch.Tensor:
    """Codes of four bits, two a byte: [..., cols] -> uint8 [..., cols / 2], the even index in the low nibble.

    codes: integers; bits above the fourth are not looked at, so int4 in two's complement may be handed in as it is.
    Raises ValueError for an odd number of columns.
    """
    if codes.dim() == 0 or codes.shape[-1] % 2:
        raise ValueError(f"codes: got shape {tuple(codes.shape)}, expected an even number of columns")
    nibbles = codes.to(torch.uint8) & 15
    return nibbles[..., ::2] | nibbles[..., 1::2] << 4


def unpack_fp4(packed: torch.Tensor) -> torch.Tensor:
    """The codes that `pack_fp4` packed: uint8 [..., cols / 2] -> uint8 [..., cols]."""
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)
