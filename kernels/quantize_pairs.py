"""bf16 to MXFP4 and NVFP4, from words of two values: for fewer instructions.

Minimum traffic as in quantize.py, which has the reference and the public function. While a value's 2.5 bytes come and
go, an H200 issues some twenty instructions, if none ever waits. The kernel for values of any type and strides takes
sixteen of them to MXFP4 and nineteen to NVFP4, this one ten and thirteen (sm_90). A thread has 32 values next to each
other and so all that share their scales: no other thread is asked for a maximum. Signs are moved as they lie in a word,
by two.

An MX scale is a power of two, so a bf16 value in units of it is one again, and instructions that take 16-bit numbers in
pairs give the same bits. Codes of E2M1 count halves up to 2, ones up to 4 and twos up to 6. As a function of the
magnitude m they lie on the least of three lines: 2 m, m + 2, and one through 6.5 at m = 5. Each is one multiply-add
beside 128, where bf16 holds integers alone, so that it is rounded to the nearest code, of two to the even one.

NVFP4's scales have fractions. A value in units of one is rounded to fp32 first, which decides what a tie is: so its
arithmetic is the other kernel's, value by value.
"""

from functools import cache

import torch

from instruments.backend import tl, triton
from kernels.quantize_codes import E4M3_LARGEST, block_scale, e2m1_steps, largest_magnitude, scale_of_tensor
from kernels.quantize_schemes import Scheme
from kernels.weight_only_unpack import pairs

LARGEST = tl.constexpr(6.0)
UNIT = 32  # values of a thread


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
    x_ptr,
    codes_ptr,
    scales_ptr,
    partial_ptr,
    tensor_scale_ptr,
    units,
    SCALE: tl.constexpr,
    ROUND_UP: tl.constexpr,
    NATIVE: tl.constexpr,
    PARTIALS: tl.constexpr,
    UNITS: tl.constexpr,
    GROUPS: tl.constexpr,
    WORDS: tl.constexpr,
):
    """x [units, GROUPS * WORDS] aligned words of two bf16, codes [units, GROUPS * WORDS] bytes, scales [units, GROUPS],
    all contiguous. SCALE: e8m0, or e4m3, which wants the tensor's, too: partial and tensor_scale as in
    scale_of_tensor."""
    program = tl.num_programs(0) - 1 - tl.program_id(0) if PARTIALS else tl.program_id(0)
    first = program.to(tl.int64) * UNITS
    unit = tl.arange(0, UNITS)[:, None]  # [UNITS, 1]
    inside = unit < units - first
    at = first * (GROUPS * WORDS) + (unit * (GROUPS * WORDS) + tl.arange(0, GROUPS * WORDS)[None, :])
    x = tl.load(x_ptr.to(tl.pointer_type(tl.int32)) + at, mask=inside, other=0)  # [UNITS, GROUPS * WORDS]
    of_tensor = 1.0
    if SCALE == "e4m3":
        of_tensor = scale_of_tensor(partial_ptr, tensor_scale_ptr, LARGEST * E4M3_LARGEST, PARTIALS)
    words = tl.reshape(x, [UNITS, GROUPS, WORDS])
    magnitude = pairs(words & 0x7FFF7FFF, tl.bfloat16)  # [UNITS, GROUPS, WORDS, 2]
    if SCALE == "e8m0":  # maxima in the order that takes fewer instructions
        amax = largest_magnitude(largest_magnitude(magnitude.to(tl.float32), 2), 2)
    else:
        amax = largest_magnitude(tl.reshape(magnitude, [UNITS, GROUPS, 2 * WORDS]).to(tl.float32), 2)
    scale, inverse = block_scale(amax, of_tensor, SCALE, LARGEST, ROUND_UP, NATIVE)  # [UNITS, GROUPS]
    tl.store(scales_ptr + first * GROUPS + (unit * GROUPS + tl.arange(0, GROUPS)[None, :]), scale, mask=inside)
    signs = (words >> 12) & 0x00080008
    if SCALE == "e8m0":
        codes = e2m1_pairs(magnitude * inverse.to(tl.bfloat16)[:, :, None, None])
        codes = (codes & 0x00070007) | signs
    else:
        inverse = inverse[:, :, None]
        low = (words << 16).to(tl.float32, bitcast=True)
        high = (words & -0x10000).to(tl.float32, bitcast=True)
        codes = e2m1_steps(low * inverse) + (e2m1_steps(high * inverse) << 16) + 0x00040004 + signs
    codes = tl.reshape(codes + (codes >> 12), [UNITS, GROUPS * WORDS])
    tl.store(codes_ptr + at, codes.to(tl.uint8), mask=inside)


@cache
def has_bf16(device: torch.device) -> bool:
    """Whether kernels there compute in bf16, two at a time: on GPUs from sm_80 on."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)


def takes_pairs(x: torch.Tensor, scheme: Scheme, flat: bool) -> bool:
    """Whether x goes through the kernel of this file: bf16 in whole words, groups and units, to MXFP4 or NVFP4."""
    fits = flat and x.dtype == torch.bfloat16 and x.storage_offset() % 2 == 0 and x.numel() % UNIT == 0
    return fits and scheme.format == "e2m1" and scheme.scale_format in ("e8m0", "e4m3") and has_bf16(x.device)


def units_of(groups: int, config: dict) -> tuple[int, dict]:
    """(units, their tile and warps) where so many groups are laid out as groups_plan says."""
    of_unit = max(1, UNIT // config["BLOCK"])
    tile = {"UNITS": max(1, config["GROUPS"] // of_unit), "GROUPS": of_unit, "WORDS": config["BLOCK"] // 2}
    return groups // of_unit, tile | {"num_warps": config["num_warps"]}
