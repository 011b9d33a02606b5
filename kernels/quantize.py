"""Quantise and dequantise: a matrix to few bits and back, in one of kernels/quantize_schemes.py's schemes.

Minimum traffic: x read once, codes and scales written once. Where blocks or rows have scales of their own, a program
keeps what shares a scale in registers, finds its largest magnitude, and writes codes and scale: one launch. A scale for
the whole tensor has to be known before the first code is: x is read twice, the second time backwards, so that what L2
still holds of it is read from there; a scale that is given, from earlier tensors (delayed scaling) or from calibration,
saves the first reading. Rows wider than registers hold are read twice, too.

Results are the reference's, `quantize_reference` and `dequantize_reference`, bit by bit. Sources: as there.
"""

from dataclasses import replace

import torch

from instruments.backend import tl, triton
from kernels.arguments import check_no_grad, check_tensor, check_width
from kernels.dequantize import dequantize, dequantize_traffic
from kernels.quantize_codes import as_bytes, block_scale, coding, encode, fp32_scale, largest_magnitude
from kernels.quantize_pairs import quantize_pairs_kernel, takes_pairs, units_of
from kernels.quantize_plan import TILE, groups_plan, kind, programs_of, quantize_ops, quantize_traffic, searchers
from kernels.quantize_schemes import Quantized, Scheme, check_columns, empty, scheme_of
from kernels.quantize_tile import groups_at, quantize_tile, store_codes, widened
from kernels.rows import MAX_COLS, as_rows

__all__ = ["dequantize", "dequantize_traffic", "quantize", "quantize_ops", "quantize_traffic"]

WIDE_BLOCK, WIDE_WARPS = 8192, 16  # columns of a step over a row that registers do not hold


@triton.jit
def quantize_groups_kernel(
    x_ptr,
    codes_ptr,
    scales_ptr,
    partial_ptr,
    tensor_scale_ptr,
    row_stride,
    col_stride,
    rows,
    cols,
    groups_per_row,
    FORMAT: tl.constexpr,
    SCALE: tl.constexpr,
    LARGEST: tl.constexpr,
    ROUND_UP: tl.constexpr,
    NATIVE: tl.constexpr,
    PARTIALS: tl.constexpr,
    FLAT: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Groups of BLOCK columns, each with its scale, in a tile [GROUPS, BLOCK]. x [rows, cols] of any strides, codes
    [rows, cols] contiguous, scales [rows, groups_per_row]. SCALE: e4m3 and tensor want the tensor's, too."""
    program = tl.num_programs(0) - 1 - tl.program_id(0) if PARTIALS else tl.program_id(0)
    first = program.to(tl.int64) * GROUPS
    top, row, start, count = groups_at(first, rows, cols, groups_per_row, FLAT, GROUPS, BLOCK)  # [GROUPS]
    if FLAT:
        row_stride, cols = BLOCK, BLOCK
    if SCALE != "tensor":
        scales_ptr += first
    col = tl.arange(0, BLOCK)[None, :]
    at = x_ptr + top * row_stride + (row[:, None] * row_stride + (start[:, None] + col) * col_stride)  # [GROUPS, BLOCK]
    x = widened(tl.load(at, mask=col < count[:, None], other=0.0))
    quantize_tile(
        x, top * cols, row * cols + start, count, tl.arange(0, GROUPS),
        codes_ptr, scales_ptr, partial_ptr, tensor_scale_ptr,
        FORMAT, SCALE, LARGEST, ROUND_UP, NATIVE, PARTIALS, GROUPS, BLOCK,
    )  # fmt: skip


@triton.jit
def quantize_squares_kernel(
    x_ptr,
    codes_ptr,
    scales_ptr,
    row_stride,
    col_stride,
    rows,
    cols,
    FORMAT: tl.constexpr,
    SCALE: tl.constexpr,
    LARGEST: tl.constexpr,
    ROUND_UP: tl.constexpr,
    NATIVE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A block [ROWS, BLOCK] with one scale: x [rows, cols] of any strides, codes [rows, cols] contiguous, scales by
    blocks."""
    blocks_per_row = tl.cdiv(cols, BLOCK)
    program = tl.program_id(0).to(tl.int64)
    row = program // blocks_per_row * ROWS + tl.arange(0, ROWS)  # [ROWS]
    start = program % blocks_per_row * BLOCK
    count = tl.where(row < rows, cols - start, 0)
    col = tl.arange(0, BLOCK)[None, :]
    at = x_ptr + row[:, None] * row_stride + (start + col) * col_stride  # [ROWS, BLOCK]
    x = widened(tl.load(at, mask=col < count[:, None], other=0.0))
    amax = largest_magnitude(largest_magnitude(x, 1), 0)
    scale, inverse = block_scale(amax, 1.0, SCALE, LARGEST, ROUND_UP, NATIVE)
    tl.store(scales_ptr + program, scale)
    store_codes(codes_ptr, 0, row * cols + start, count, x * inverse, FORMAT, LARGEST, NATIVE, ROWS, BLOCK)


@triton.jit
def quantize_wide_rows_kernel(
    x_ptr,
    codes_ptr,
    scales_ptr,
    row_stride,
    col_stride,
    cols,
    FORMAT: tl.constexpr,
    LARGEST: tl.constexpr,
    NATIVE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A row with one fp32 scale, read twice in steps of [BLOCK], the second time backwards; tensors as above."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * row_stride
    codes_ptr += row * cols
    largest = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + col * col_stride, mask=col < cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        largest = tl.maximum(largest, tl.abs(x), propagate_nan=tl.PropagateNan.ALL)
    scale = fp32_scale(largest_magnitude(largest, 0), LARGEST)
    tl.store(scales_ptr + row, scale)
    inverse = tl.div_rn(1.0, scale)
    last = (tl.cdiv(cols, BLOCK) - 1) * BLOCK
    for back in tl.range(0, cols, BLOCK):
        col = last - back + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + col * col_stride, mask=col < cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(codes_ptr + col, encode(x * inverse, FORMAT, LARGEST, NATIVE), mask=col < cols)


@triton.jit
def largest_kernel(x_ptr, partial_ptr, row_stride, col_stride, cols, tiles, tiles_per_row, BLOCK: tl.constexpr):
    """partial [programs] = the largest |x| of every so many tiles [BLOCK] of x [rows, cols], of any strides."""
    largest = tl.zeros([BLOCK], dtype=tl.float32)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = (tile // tiles_per_row).to(tl.int64)
        col = (tile % tiles_per_row).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
        x = tl.load(x_ptr + row * row_stride + col * col_stride, mask=col < cols, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(x), propagate_nan=tl.PropagateNan.ALL)
    tl.store(partial_ptr + tl.program_id(0), largest_magnitude(largest, 0))


def _largest(x: torch.Tensor) -> torch.Tensor:
    """The largest magnitude of each part of x that a program looks through: fp32 [a power of two]."""
    place, programs = searchers(*x.shape, x.is_contiguous())
    partial = torch.empty(programs, dtype=torch.float32, device=x.device)
    strides = (0, 1) if x.is_contiguous() else x.stride()
    largest_kernel[(programs,)](x, partial, *strides, **place, BLOCK=TILE, num_warps=8)
    return partial


def check_tensor_scale(tensor_scale, scheme: Scheme, x: torch.Tensor):
    """Raise ValueError unless a given tensor_scale is an fp32 scalar beside x, for a scheme that has one."""
    if tensor_scale is not None:
        if scheme.block != (None, None) and not scheme.has_tensor_scale:
            raise ValueError(f"tensor_scale: got one for {scheme.name}, expected None: it has no scale for the tensor")
        check_tensor("tensor_scale", tensor_scale, shape=(), like=x, dtypes=(torch.float32,))


def check_fusible(name: str, x: torch.Tensor, scheme: Scheme | str, tensor_scale) -> Scheme:
    """The scheme; ValueError unless an operator over rows of x can give its result in it."""
    scheme = scheme_of(scheme)
    check_columns(name, x.shape, scheme)
    how = kind(scheme, x.shape[-1])
    if how == "squares":
        raise ValueError(f"scheme: got {scheme.name}, expected one whose scales are of one row, or given for all")
    if tensor_scale is None and (how == "tensor" or scheme.has_tensor_scale):
        raise ValueError(f"tensor_scale: got None, expected the tensor's scale, which {scheme.name} has to know before")
    check_tensor_scale(tensor_scale, scheme, x)
    return scheme


def with_tensor_scale(q: Quantized, tensor_scale: torch.Tensor | None) -> Quantized:
    """q with the scale that was given for the tensor, where one was."""
    if tensor_scale is None:
        return q
    if q.scheme.has_tensor_scale:
        return replace(q, tensor_scale=tensor_scale)
    return replace(q, scales=tensor_scale.view(1, 1))


def outputs(q: Quantized) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(codes, scales) as kernels write them, FP8 as bytes; None where the tensor's is the only scale."""
    return as_bytes(q.codes), None if q.scheme.block == (None, None) else as_bytes(q.scales)


def quantize(x: torch.Tensor, scheme: Scheme | str, *, tensor_scale: torch.Tensor | None = None) -> Quantized:
    """x in a scheme of kernels/quantize_schemes.py: its codes, packed, and its scales.

    x: [..., cols], fp16, bf16 or fp32, cols to 1,048,576, even where two codes share a byte, any strides; copied only
    where its rows cannot be addressed by one stride. scheme: a Scheme or its name. tensor_scale: an fp32 scalar on x's
    device, for fp8_tensor and nvfp4: the tensor's scale, where it is known before; x is then read once, and what is
    too large saturates. Raises ValueError naming the argument.
    """
    check_tensor("x", x)
    check_no_grad("quantize", x=x)
    scheme = scheme_of(scheme)
    check_columns("x", x.shape, scheme)
    check_width("x", x, MAX_COLS)
    how = kind(scheme, x.shape[-1])
    check_tensor_scale(tensor_scale, scheme, x)
    q = empty(x.shape, scheme, x.device)
    if not x.numel():
        return q
    x, (codes, scales), consts = as_rows(x), outputs(q), coding(scheme, x.device)
    rows, cols = x.shape
    if how == "squares":
        grid = (scales.numel(),)
        warps = 8 if cols % 16 else 4  # a ragged row's loads take more registers
        tile = {"ROWS": scheme.block[0], "BLOCK": scheme.block[1], "num_warps": warps}
        quantize_squares_kernel[grid](x, codes, scales, *x.stride(), rows, cols, **consts, **tile)
    elif how == "wide rows":
        tile = {name: consts[name] for name in ("FORMAT", "LARGEST", "NATIVE")}
        tile |= {"BLOCK": WIDE_BLOCK, "num_warps": WIDE_WARPS}
        quantize_wide_rows_kernel[(rows,)](x, codes, scales, *x.stride(), cols, **tile)
    else:
        place, config = groups_plan(scheme, rows, cols, x.is_contiguous())
        grid = (programs_of(place, config),)
        q = with_tensor_scale(q, tensor_scale)
        of_tensor = q.scales if how == "tensor" else q.tensor_scale
        partial = _largest(x) if of_tensor is not None and tensor_scale is None else None
        partials = 0 if partial is None else len(partial)
        if takes_pairs(x, scheme, config["FLAT"]):
            units, tile = units_of(place["rows"], config)
            tile |= {name: consts[name] for name in ("SCALE", "ROUND_UP", "NATIVE")}
            quantize_pairs_kernel[grid](x, codes, scales, partial, of_tensor, units, PARTIALS=partials, **tile)
        else:
            strides = (place["cols"], 1) if x.is_contiguous() else x.stride()
            quantize_groups_kernel[grid](
                x, codes, scales, partial, of_tensor, *strides, **place, **consts, PARTIALS=partials, **config
            )
    return q
