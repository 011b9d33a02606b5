"""Quantize: a matrix to codes of 8 or 4 bits and their scales, in one of the schemes of schemes.py.

Minimum traffic: x read once, codes and scales written once. A program keeps the values that share a scale in registers,
finds their absolute maximum and stores codes and scale: one launch. A scale of the whole tensor must be known before
the first code, so x is read twice, the second time backwards, to find in L2 what was read last. A known scale, from
earlier tensors (delayed scaling) or from calibration (static scaling), saves the first pass. Rows too wide for
registers are read twice as well.

bf16 to MXFP4 and NVFP4 has a kernel of its own, `quantize_pairs_kernel`, for fewer instructions: in the time in which
copy bandwidth moves a value's 2.5 bytes, an H200 issues about twenty instructions. The kernel for any type and strides
takes sixteen of them to MXFP4 and nineteen to NVFP4, this one ten and thirteen (sm_90). Each thread has 32 adjacent
values and so all that share their scales: the maximum needs no exchange between threads. Signs are moved as they lie in
a 32-bit word, by twos.

Results equal `quantize_reference` bit for bit. Sources: the OCP MX Specification 1.0 (2023), NVIDIA's NVFP4 (2025),
DeepSeek-V3's technical report (2024) for blocks of 1 x 128 and 128 x 128.
"""

from dataclasses import replace
from functools import cache
from math import ceil

import torch

from instruments.backend import next_power_of_2, tl, triton
from instruments.traffic import Traffic
from kernels.quantization.codes import (
    E4M3_LARGEST,
    absmax,
    as_bytes,
    block_scale,
    e2m1_bits,
    encode,
    fp32_scale,
    load_tensor_scale,
    locate_groups,
    quantize_tile,
    scheme_constants,
    store_codes,
    to_fp32,
    unpack_halves,
)
from kernels.quantization.schemes import Quantized, Scheme, check_columns, empty, scheme_of
from kernels.shared.arguments import check_no_grad, check_tensor, check_width
from kernels.shared.rows import MAX_COLS, RESIDENT_COLS, as_rows

TILE = 4096  # elements of a program's tile of groups
PACKED_TILE = 2048  # the same where two codes share a byte, which takes more registers
PER_WARP = 1024  # of these elements: 32 per thread, so that work done once per thread is shared by many
CHUNK = 128  # columns that a tile treats as a group where all share one scale
PARTIALS = 1024  # programs at most that search a tensor for its absolute maximum: about eight per SM
WIDE_BLOCK, WIDE_WARPS = 8192, 16  # columns of a step over a row too wide for registers
E2M1_LARGEST = tl.constexpr(6.0)
UNIT = 32  # values per thread of the kernel for bf16 to FP4


@triton.jit
def quantize_groups_kernel(
    x_ptr, codes_ptr, scales_ptr, partial_ptr, tensor_scale_ptr,
    row_stride, col_stride,
    rows, cols, groups_per_row,
    FORMAT: tl.constexpr, SCALE: tl.constexpr, LARGEST: tl.constexpr, ROUND_UP: tl.constexpr, NATIVE: tl.constexpr,
    PARTIALS: tl.constexpr, FLAT: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Groups of BLOCK columns, each with its scale, in a tile [GROUPS, BLOCK].

    x [rows, cols] of any strides; codes [rows, cols], contiguous; scales [rows, groups_per_row]; partial [PARTIALS] and
    a scalar tensor_scale for SCALE e4m3 and tensor, see `load_tensor_scale`.
    """
    program = tl.num_programs(0) - 1 - tl.program_id(0) if PARTIALS else tl.program_id(0)
    first = program.to(tl.int64) * GROUPS
    top, row, start, count = locate_groups(first, rows, cols, groups_per_row, FLAT, GROUPS, BLOCK)  # [GROUPS]
    if FLAT:
        row_stride, cols = BLOCK, BLOCK
    if SCALE != "tensor":
        scales_ptr += first
    col = tl.arange(0, BLOCK)[None, :]
    x_ptrs = x_ptr + top * row_stride + (row[:, None] * row_stride + (start[:, None] + col) * col_stride)
    x = to_fp32(tl.load(x_ptrs, mask=col < count[:, None], other=0.0))  # [GROUPS, BLOCK]
    quantize_tile(
        x, top * cols, row * cols + start, count, tl.arange(0, GROUPS),
        codes_ptr, scales_ptr, partial_ptr, tensor_scale_ptr,
        FORMAT, SCALE, LARGEST, ROUND_UP, NATIVE, PARTIALS, GROUPS, BLOCK,
    )  # fmt: skip


@triton.jit
def quantize_squares_kernel(
    x_ptr, codes_ptr, scales_ptr,
    row_stride, col_stride,
    rows, cols,
    FORMAT: tl.constexpr, SCALE: tl.constexpr, LARGEST: tl.constexpr, ROUND_UP: tl.constexpr, NATIVE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block [ROWS, BLOCK] with one scale: x [rows, cols] of any strides; codes [rows, cols], contiguous; scales
    [rows / ROWS, cols / BLOCK], rounded up."""
    blocks_per_row = tl.cdiv(cols, BLOCK)
    program = tl.program_id(0).to(tl.int64)
    row = program // blocks_per_row * ROWS + tl.arange(0, ROWS)  # [ROWS]
    start = program % blocks_per_row * BLOCK
    count = tl.where(row < rows, cols - start, 0)
    col = tl.arange(0, BLOCK)[None, :]
    x_ptrs = x_ptr + row[:, None] * row_stride + (start + col) * col_stride  # [ROWS, BLOCK]
    x = to_fp32(tl.load(x_ptrs, mask=col < count[:, None], other=0.0))
    amax = absmax(absmax(x, 1), 0)
    scale, inverse = block_scale(amax, 1.0, SCALE, LARGEST, ROUND_UP, NATIVE)
    tl.store(scales_ptr + program, scale)
    store_codes(codes_ptr, 0, row * cols + start, count, x * inverse, FORMAT, LARGEST, NATIVE, ROWS, BLOCK)


@triton.jit
def quantize_wide_rows_kernel(
    x_ptr, codes_ptr, scales_ptr,
    row_stride, col_stride,
    cols,
    FORMAT: tl.constexpr, LARGEST: tl.constexpr, NATIVE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A row with one fp32 scale, read twice in steps of [BLOCK], the second time backwards; tensors as above."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * row_stride
    codes_ptr += row * cols
    running_max = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + col * col_stride, mask=col < cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        running_max = tl.maximum(running_max, tl.abs(x), propagate_nan=tl.PropagateNan.ALL)
    scale = fp32_scale(absmax(running_max, 0), LARGEST)
    tl.store(scales_ptr + row, scale)
    inverse = tl.div_rn(1.0, scale)
    last = (tl.cdiv(cols, BLOCK) - 1) * BLOCK
    for back in tl.range(0, cols, BLOCK):
        col = last - back + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + col * col_stride, mask=col < cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(codes_ptr + col, encode(x * inverse, FORMAT, LARGEST, NATIVE), mask=col < cols)


@triton.jit
def absmax_kernel(x_ptr, partial_ptr, row_stride, col_stride, cols, tiles, tiles_per_row, BLOCK: tl.constexpr):
    """partial [programs] = max |x| of every programs-th tile [BLOCK] of x [rows, cols], of any strides."""
    running_max = tl.zeros([BLOCK], dtype=tl.float32)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = (tile // tiles_per_row).to(tl.int64)
        col = (tile % tiles_per_row).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + row * row_stride + col * col_stride, mask=col < cols, other=0.0).to(tl.float32)
        running_max = tl.maximum(running_max, tl.abs(x), propagate_nan=tl.PropagateNan.ALL)
    tl.store(partial_ptr + tl.program_id(0), absmax(running_max, 0))


@triton.jit
def _line(m, slope: tl.constexpr, start: tl.constexpr):
    """m * slope + 128 + start, rounded once, to an integer. m: bf16."""
    return tl.fma(m, tl.full([1], slope, m.dtype), tl.full([1], 128 + start, m.dtype))


@triton.jit
def e2m1_pairs(m):
    """Magnitudes below 8 in units of their scale, bf16 [..., 2] -> int32 [...] with their E2M1 codes in the lowest
    three bits of each half; the other bits are arbitrary.

    Codes count halves up to 2, ones up to 4 and twos up to 6: as a function of m they lie on the lowest of three lines,
    2 m, m + 2, and one through 6.5 at m = 5. Each line is one fma whose result is near 128, where bf16 holds integers
    only, so it is rounded to the nearest code, ties to even. The third line's slope is the bf16 number below 0.3: at 5
    the line is under 6.5, which rounds to 6, at the next bf16 number it is over it, and below 8 it stays under 7.5.
    """
    code = tl.minimum(_line(m, 0.298828125, 5), _line(m, 1.0, 2)).to(m.dtype)
    code = tl.minimum(code, _line(m, 2.0, 0)).to(m.dtype)
    low, high = tl.split(code.to(tl.uint16, bitcast=True))
    return low.to(tl.int32) | (high.to(tl.int32) << 16)


@triton.jit
def quantize_pairs_kernel(
    x_ptr, codes_ptr, scales_ptr, partial_ptr, tensor_scale_ptr,
    units,
    SCALE: tl.constexpr, ROUND_UP: tl.constexpr, NATIVE: tl.constexpr,
    PARTIALS: tl.constexpr, UNITS: tl.constexpr, GROUPS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """bf16 to MXFP4 (SCALE e8m0) or NVFP4 (e4m3), by 32-bit words of two values.

    x [units, GROUPS * WORDS] words; codes [units, GROUPS * WORDS] bytes; scales [units, GROUPS]; all contiguous.
    partial [PARTIALS] and a scalar tensor_scale for e4m3, see `load_tensor_scale`.
    """
    program = tl.num_programs(0) - 1 - tl.program_id(0) if PARTIALS else tl.program_id(0)
    first = program.to(tl.int64) * UNITS
    unit = tl.arange(0, UNITS)[:, None]  # [UNITS, 1]
    mask = unit < units - first
    offset = first * (GROUPS * WORDS) + (unit * (GROUPS * WORDS) + tl.arange(0, GROUPS * WORDS)[None, :])
    x = tl.load(x_ptr.to(tl.pointer_type(tl.int32)) + offset, mask=mask, other=0)  # [UNITS, GROUPS * WORDS]
    tensor_scale = 1.0
    if SCALE == "e4m3":
        tensor_scale = load_tensor_scale(partial_ptr, tensor_scale_ptr, E2M1_LARGEST * E4M3_LARGEST, PARTIALS)
    words = tl.reshape(x, [UNITS, GROUPS, WORDS])
    magnitude = unpack_halves(words & 0x7FFF7FFF, tl.bfloat16)  # [UNITS, GROUPS, WORDS, 2]
    if SCALE == "e8m0":  # maxima in the order that takes fewer instructions
        amax = absmax(absmax(magnitude.to(tl.float32), 2), 2)
    else:
        amax = absmax(tl.reshape(magnitude, [UNITS, GROUPS, 2 * WORDS]).to(tl.float32), 2)
    scale, inverse = block_scale(amax, tensor_scale, SCALE, E2M1_LARGEST, ROUND_UP, NATIVE)  # [UNITS, GROUPS]
    tl.store(scales_ptr + first * GROUPS + (unit * GROUPS + tl.arange(0, GROUPS)[None, :]), scale, mask=mask)
    signs = (words >> 12) & 0x00080008
    if SCALE == "e8m0":  # the scale is a power of two: in units of it a bf16 value is one still
        codes = e2m1_pairs(magnitude * inverse.to(tl.bfloat16)[:, :, None, None])
        codes = (codes & 0x00070007) | signs
    else:  # an fp32 product is rounded before it can tie, so the arithmetic is the other kernel's, value by value
        inverse = inverse[:, :, None]
        low = (words << 16).to(tl.float32, bitcast=True)
        high = (words & -0x10000).to(tl.float32, bitcast=True)
        codes = e2m1_bits(low * inverse) + (e2m1_bits(high * inverse) << 16) + 0x00040004 + signs
    codes = tl.reshape(codes + (codes >> 12), [UNITS, GROUPS * WORDS])
    tl.store(codes_ptr + offset, codes.to(tl.uint8), mask=mask)


def granularity(scheme: Scheme, cols: int) -> str:
    """What has a scale, for rows of that width: 'groups', 'rows', 'wide rows', 'squares' or 'tensor'; each is quantized
    differently. ValueError for blocks that no kernel has: their sides are powers of two, or the whole matrix."""
    block_rows, block_cols = scheme.block
    power = block_cols is not None and block_cols >= 16 and block_cols & (block_cols - 1) == 0
    if scheme.block == (None, None) and scheme.scale_format == "fp32" and scheme.bits == 8:
        return "tensor"
    if scheme.block == (1, None) and scheme.scale_format == "fp32" and scheme.bits == 8:
        return "rows" if cols <= RESIDENT_COLS else "wide rows"
    if block_rows == 1 and power and block_cols <= TILE:
        return "groups"
    if block_rows == block_cols and power and block_cols <= 256 and not scheme.has_tensor_scale:
        return "squares"
    raise ValueError(f"scheme: got blocks of {scheme.block} with {scheme.scale_format} scales, which no kernel has")


@cache
def groups_plan(scheme: Scheme, rows: int, cols: int, contiguous: bool = True) -> tuple[dict, dict, int]:
    """(sizes as kernels over groups take them, their tile and warps, programs).

    Where no group ends early and all is contiguous, each group becomes a row: then no index needs a division.
    """
    block = scheme.block[1] or (CHUNK if scheme.block[0] is None else max(16, next_power_of_2(cols)))
    flat = contiguous and cols % block == 0
    if flat:
        rows, cols = rows * cols // block, block
    groups, groups_per_row = max(1, (PACKED_TILE if scheme.bits == 4 else TILE) // block), ceil(cols / block)
    sizes = {"rows": rows, "cols": cols, "groups_per_row": groups_per_row}
    config = {"FLAT": flat, "GROUPS": groups, "BLOCK": block, "num_warps": max(1, min(16, groups * block // PER_WARP))}
    return sizes, config, ceil(rows * groups_per_row / groups)


@cache
def absmax_plan(rows: int, cols: int, contiguous: bool = True) -> tuple[dict, int]:
    """(sizes as absmax_kernel takes them, programs)."""
    if contiguous:
        rows, cols = 1, rows * cols
    tiles_per_row = ceil(cols / TILE)
    tiles = rows * tiles_per_row
    return {"cols": cols, "tiles": tiles, "tiles_per_row": tiles_per_row}, min(PARTIALS, next_power_of_2(tiles))


@cache
def has_bf16(device: torch.device) -> bool:
    """Whether the device computes in bf16, two values at a time: GPUs from sm_80 on."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)


def takes_pairs(x: torch.Tensor, scheme: Scheme, flat: bool) -> bool:
    """Whether quantize_pairs_kernel takes x: bf16 in whole words, groups and units, to MXFP4 or NVFP4."""
    fits = flat and x.dtype == torch.bfloat16 and x.storage_offset() % 2 == 0 and x.numel() % UNIT == 0
    return fits and scheme.format == "e2m1" and scheme.scale_format in ("e8m0", "e4m3") and has_bf16(x.device)


def _pairs_plan(groups: int, config: dict) -> tuple[int, dict]:
    """(units, their tile and warps) for so many groups in tiles of groups_plan."""
    per_unit = max(1, UNIT // config["BLOCK"])
    tile = {"UNITS": max(1, config["GROUPS"] // per_unit), "GROUPS": per_unit, "WORDS": config["BLOCK"] // 2}
    return groups // per_unit, tile | {"num_warps": config["num_warps"]}


def _partial_absmax(x: torch.Tensor) -> torch.Tensor:
    """max |x| of each part of x that a program searches: fp32 [a power of two]."""
    sizes, programs = absmax_plan(*x.shape, x.is_contiguous())
    partial = torch.empty(programs, dtype=torch.float32, device=x.device)
    strides = (0, 1) if x.is_contiguous() else x.stride()
    absmax_kernel[(programs,)](x, partial, *strides, **sizes, BLOCK=TILE, num_warps=8)
    return partial


def check_tensor_scale(tensor_scale, scheme: Scheme, x: torch.Tensor):
    """Raise ValueError unless tensor_scale is None, or an fp32 scalar on x's device for a scheme that has one."""
    if tensor_scale is not None:
        if scheme.block != (None, None) and not scheme.has_tensor_scale:
            raise ValueError(f"tensor_scale: got one for {scheme.name}, expected None: it has no scale for the tensor")
        check_tensor("tensor_scale", tensor_scale, shape=(), like=x, dtypes=(torch.float32,))


def with_tensor_scale(q: Quantized, tensor_scale: torch.Tensor | None) -> Quantized:
    """q with that tensor scale, unless it is None."""
    if tensor_scale is None:
        return q
    if q.scheme.has_tensor_scale:
        return replace(q, tensor_scale=tensor_scale)
    return replace(q, scales=tensor_scale.view(1, 1))


def outputs(q: Quantized) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(codes, scales) as kernels write them, FP8 as bytes; no scales where the tensor's is the only one."""
    return as_bytes(q.codes), None if q.scheme.block == (None, None) else as_bytes(q.scales)


def quantize(x: torch.Tensor, scheme: Scheme | str, *, tensor_scale: torch.Tensor | None = None) -> Quantized:
    """x in a scheme: its codes and scales.

    Args:
        x: [..., cols], fp16, bf16 or fp32, of any strides; cols up to 1,048,576, even where two codes share a byte.
        scheme: a Scheme, or the name of one of SCHEMES.
        tensor_scale: scalar, fp32, for fp8_tensor and nvfp4: the tensor's scale where it is known. x is then read once,
            and values too large for it saturate.

    Returns:
        A Quantized of x's shape.

    Raises:
        ValueError: names the argument.

    Note:
        x is copied only where one stride cannot address its rows.
    """
    check_tensor("x", x)
    check_no_grad("quantize", x=x)
    scheme = scheme_of(scheme)
    check_columns("x", x.shape, scheme)
    check_width("x", x, MAX_COLS)
    shares_scale = granularity(scheme, x.shape[-1])
    check_tensor_scale(tensor_scale, scheme, x)
    q = empty(x.shape, scheme, x.device)
    if not x.numel():
        return q
    x, (codes, scales), constants = as_rows(x), outputs(q), scheme_constants(scheme, x.device)
    rows, cols = x.shape
    if shares_scale == "squares":
        warps = 8 if cols % 16 else 4  # the loads of a ragged row take more registers
        quantize_squares_kernel[(scales.numel(),)](
            x, codes, scales, *x.stride(), rows, cols,
            **constants, ROWS=scheme.block[0], BLOCK=scheme.block[1], num_warps=warps,
        )  # fmt: skip
    elif shares_scale == "wide rows":
        quantize_wide_rows_kernel[(rows,)](
            x, codes, scales, *x.stride(), cols,
            FORMAT=constants["FORMAT"], LARGEST=constants["LARGEST"], NATIVE=constants["NATIVE"],
            BLOCK=WIDE_BLOCK, num_warps=WIDE_WARPS,
        )  # fmt: skip
    else:
        sizes, config, programs = groups_plan(scheme, rows, cols, x.is_contiguous())
        q = with_tensor_scale(q, tensor_scale)
        out_scale = q.scales if shares_scale == "tensor" else q.tensor_scale
        partial = _partial_absmax(x) if out_scale is not None and tensor_scale is None else None
        partials = 0 if partial is None else len(partial)
        if takes_pairs(x, scheme, config["FLAT"]):
            units, tile = _pairs_plan(sizes["rows"], config)
            quantize_pairs_kernel[(programs,)](
                x, codes, scales, partial, out_scale, units,
                SCALE=constants["SCALE"], ROUND_UP=constants["ROUND_UP"], NATIVE=constants["NATIVE"],
                PARTIALS=partials, **tile,
            )  # fmt: skip
        else:
            strides = (sizes["cols"], 1) if x.is_contiguous() else x.stride()
            quantize_groups_kernel[(programs,)](
                x, codes, scales, partial, out_scale, *strides, **sizes, **constants, PARTIALS=partials, **config
            )
    return q


def quantize_ops(rows: int, cols: int, dtype: torch.dtype, scheme: Scheme | str) -> dict[str, Traffic]:
    """What four eager ops read and write to quantize to 8 bits with one fp32 scale per block, in order."""
    written, n = scheme_of(scheme).nbytes(rows, cols), rows * cols
    x, wide, scales = n * dtype.itemsize, n * 4, written["scales"]
    return {
        "abs": Traffic({"x": x}, {"magnitude": x}, n, launches=1),
        "amax": Traffic({"magnitude": x}, {"scales": scales}, n, launches=1),
        "x / scale": Traffic({"x": x, "scales": scales}, {"scaled": wide}, n, launches=1),
        "to": Traffic({"scaled": wide}, {"codes": written["codes"]}, n, launches=1),
    }


def quantize_traffic(
    rows: int,
    cols: int,
    dtype: torch.dtype,
    scheme: Scheme | str,
    path: str | None = "minimum",
    cached: bool = True,
    static_scale: bool = False,
) -> Traffic:
    """What quantizing x [rows, cols] moves.

    Args:
        rows, cols, dtype: of x.
        scheme: a Scheme, or the name of one of SCHEMES.
        path: 'minimum', each byte once; 'naive', four eager ops; None, what `quantize` does.
        cached: count what all programs share once; False counts requested bytes, before the caches.
        static_scale: whether the tensor's scale is known before.
    """
    scheme = scheme_of(scheme)
    if path == "naive":
        return sum(quantize_ops(rows, cols, dtype, scheme).values())
    if path not in ("minimum", None):
        raise ValueError(f"path: got {path!r}, expected minimum, naive or None")
    read, written = {"x": rows * cols * dtype.itemsize}, scheme.nbytes(rows, cols)
    minimum = Traffic(read, written, 3 * rows * cols, launches=1)
    shares_scale = granularity(scheme, cols)
    has_tensor_scale = shares_scale == "tensor" or scheme.has_tensor_scale
    if not has_tensor_scale and shares_scale == "wide rows" and path is None:
        return minimum + Traffic(read, flops=2 * rows * cols)
    if not has_tensor_scale or path == "minimum" and not static_scale:
        return minimum
    if shares_scale == "tensor":  # the only scale goes by the other name
        written = {"codes": written["codes"], "tensor_scale": written["scales"]}
    requests = 4 if cached else 4 * groups_plan(scheme, rows, cols)[2]
    if static_scale:
        del written["tensor_scale"]
        return Traffic(read | {"tensor_scale": requests}, written, 3 * rows * cols, launches=1)
    programs = absmax_plan(rows, cols)[1]
    search = Traffic(read, {"partial": 4 * programs}, 2 * rows * cols, launches=1)
    return search + Traffic(read | {"partial": programs * requests}, written, 3 * rows * cols, launches=1)
