"""bf16 to FP4 with E8M0 scales, two values at a time: what MXFP4 costs in instructions.

Minimum traffic as in quantize.py, which has the reference and the public function. Widened to fp32, scaled, rounded and
packed, a value takes seventeen instructions (sm_90), more than a GPU gets through while 2.5 bytes come and go. Here it
takes ten, with two in a register. An MX scale is a power of two, so a bf16 value in units of it is one again, and
instructions that take 16-bit numbers in pairs give the same bits.

Codes of E2M1 count halves up to 2, ones up to 4 and twos up to 6. As a function of the magnitude m they lie on the
least of three lines: 2 m, m + 2, and one through 6.5 at m = 5. Each is one multiply-add beside 128, where bf16 holds
integers alone, so that it is rounded to the nearest code, of two to the even one.
"""

import torch

from instruments.backend import tl, triton
from kernels.quantize_codes import block_scale, largest_magnitude
from kernels.quantize_schemes import Scheme
from kernels.weight_only_unpack import pairs

LARGEST = tl.constexpr(6.0)


@triton.jit
def _line(m, slope: tl.constexpr, start: tl.constexpr):
    """m * slope + 128 + start, rounded once, to an integer. m: bf16."""
    return tl.fma(m, tl.full([1], slope, m.dtype), tl.full([1], 128 + start, m.dtype))


@triton.jit
def e2m1_pairs(m):
    """|y| below 8 in bf16 [..., 2] -> [...] int32 with their codes in the lowest three bits of its halves; other bits
    are set, too. The third line's slope is the bf16 number below 0.3: at 5 it is under 6.5, which rounds to 6, at the
    next bf16 number over it, and below 8 it stays under 7.5."""
    code = tl.minimum(_line(m, 0.298828125, 5), _line(m, 1.0, 2)).to(m.dtype)
    code = tl.minimum(code, _line(m, 2.0, 0)).to(m.dtype)
    low, high = tl.split(code.to(tl.uint16, bitcast=True))
    return low.to(tl.int32) | (high.to(tl.int32) << 16)


@triton.jit
def quantize_pairs_kernel(
    x_ptr, codes_ptr, scales_ptr, groups, ROUND_UP: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr
):
    """x [groups, BLOCK / 2] words of two bf16, codes [groups, BLOCK / 2] bytes, scales [groups], all contiguous."""
    WORDS: tl.constexpr = BLOCK // 2
    first = tl.program_id(0).to(tl.int64) * GROUPS
    group = tl.arange(0, GROUPS)  # [GROUPS]
    inside = group < groups - first
    at = first * WORDS + (group[:, None] * WORDS + tl.arange(0, WORDS)[None, :])  # [GROUPS, WORDS]
    x = tl.load(x_ptr + at, mask=inside[:, None], other=0)
    magnitude = pairs(x & 0x7FFF7FFF, tl.bfloat16)  # [GROUPS, WORDS, 2]
    amax = largest_magnitude(largest_magnitude(magnitude.to(tl.float32), 1), 1)
    scale, inverse = block_scale(amax, 1.0, "e8m0", LARGEST, ROUND_UP)  # [GROUPS]
    tl.store(scales_ptr + first + group, scale, mask=inside)
    codes = e2m1_pairs(magnitude * inverse.to(tl.bfloat16)[:, None, None]) & 0x00070007
    codes |= (x >> 12) & 0x00080008  # the signs
    tl.store(codes_ptr + at, (codes | (codes >> 12)).to(tl.uint8), mask=inside[:, None])


def takes_pairs(x: torch.Tensor, scheme: Scheme, flat: bool) -> bool:
    """Whether x goes through the kernel of this file: bf16 in whole words and groups, to E2M1 with E8M0 scales."""
    fits = flat and x.dtype == torch.bfloat16 and x.storage_offset() % 2 == 0
    return fits and (scheme.format, scheme.scale_format) == ("e2m1", "e8m0")
