"""Quantise and dequantise: a matrix to few bits and back, in one of kernels/quantize_schemes.py's schemes.

Minimum traffic: x read once, codes and scales written once. Where blocks or rows have scales of their own, a program
keeps what shares a scale in registers, finds its largest magnitude, and writes codes and scale: one launch. A scale for
the whole tensor has to be known before the first code is: x is read twice, the second time backwards, so that what L2
still holds of it is read from there; a scale that is given, from earlier tensors (delayed scaling) or from calibration,
saves the first reading. Rows wider than registers hold are read twice, too.

Results are the reference's, `quantize_reference` and `dequantize_reference`, bit by bit. Sources: as there.
"""

from dataclasses import dataclass
from math import ceil

import torch

from instruments.backend import tl, triton
from instruments.traffic import Traffic
from kernels.arguments import FLOATS, check_no_grad, check_tensor, check_width
from kernels.dequantize import dequantize, dequantize_traffic
from kernels.quantize_codes import (
    as_bytes,
    block_scale,
    coding,
    encode,
    fp32_scale,
    largest_magnitude,
    scale_of_tensor,
    store_codes,
)
from kernels.quantize_schemes import Quantized, Scheme, check_columns, empty, scheme_of
from kernels.rows import MAX_COLS, RESIDENT_COLS, as_rows

TILE = 4096  # elements of a program's tile of groups
CHUNK = 128  # columns that a tile treats as a group where all share one scale
PARTIALS = 512  # programs that look for a tensor's largest magnitude: about four a multiprocessor


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
    PACKED: tl.constexpr,
    LARGEST: tl.constexpr,
    LARGEST_BITS: tl.constexpr,
    ROUND_UP: tl.constexpr,
    PARTIALS: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Groups of BLOCK columns, each with its scale, in a tile [GROUPS, BLOCK]. x [rows, cols] of any strides, codes
    [rows, cols] contiguous, scales [rows, groups_per_row]. SCALE: e4m3 and tensor want the tensor's, too."""
    program = tl.num_programs(0) - 1 - tl.program_id(0) if PARTIALS else tl.program_id(0)
    first = program.to(tl.int64) * GROUPS
    group = (first % groups_per_row).to(tl.int32) + tl.arange(0, GROUPS)  # [GROUPS], from the first one's row on
    row = first // groups_per_row + group // groups_per_row
    start = group % groups_per_row * BLOCK
    count = tl.where(row < rows, cols - start, 0)  # columns of the row from there on
    col = tl.arange(0, BLOCK)[None, :]
    at = x_ptr + row[:, None] * row_stride + (start[:, None] + col) * col_stride  # [GROUPS, BLOCK]
    x = tl.load(at, mask=col < count[:, None], other=0.0).to(tl.float32)
    if SCALE == "tensor":
        inverse = tl.div_rn(1.0, scale_of_tensor(partial_ptr, tensor_scale_ptr, LARGEST, PARTIALS))
        code = encode(x * inverse, FORMAT, LARGEST)
    else:
        of_tensor = scale_of_tensor(partial_ptr, tensor_scale_ptr, LARGEST * 448, PARTIALS) if SCALE == "e4m3" else 1.0
        amax = largest_magnitude(x, 1)
        scale, inverse = block_scale(amax, of_tensor, SCALE, LARGEST, LARGEST_BITS, ROUND_UP)  # [GROUPS]
        tl.store(scales_ptr + first + tl.arange(0, GROUPS), scale, mask=row < rows)
        code = encode(x * inverse[:, None], FORMAT, LARGEST)
    store_codes(codes_ptr, row * cols + start, count, code, PACKED, GROUPS, BLOCK)


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
    PACKED: tl.constexpr,
    LARGEST: tl.constexpr,
    LARGEST_BITS: tl.constexpr,
    ROUND_UP: tl.constexpr,
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
    x = tl.load(at, mask=col < count[:, None], other=0.0).to(tl.float32)
    amax = largest_magnitude(largest_magnitude(x, 1), 0)
    scale, inverse = block_scale(amax, 1.0, SCALE, LARGEST, LARGEST_BITS, ROUND_UP)
    tl.store(scales_ptr + program, scale)
    store_codes(codes_ptr, row * cols + start, count, encode(x * inverse, FORMAT, LARGEST), PACKED, ROWS, BLOCK)


@triton.jit
def quantize_wide_rows_kernel(
    x_ptr,
    codes_ptr,
    scales_ptr,
    row_stride,
    col_stride,
    rows,
    cols,
    FORMAT: tl.constexpr,
    LARGEST: tl.constexpr,
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
        code = encode(x * inverse, FORMAT, LARGEST)
        tl.store(codes_ptr + col, code.to(codes_ptr.dtype.element_ty), mask=col < cols)


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


def kind(scheme: Scheme, cols: int) -> str:
    """How a matrix of that width is quantised: 'groups', 'rows', 'wide rows', 'squares' or 'tensor'.

    Raises ValueError for blocks that no kernel has: their sides are powers of two, or all of the matrix.
    """
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


def groups_plan(scheme: Scheme, rows: int, cols: int, contiguous: bool = True) -> tuple[dict, dict]:
    """(rows, cols and groups_per_row as kernels that work on groups see them; their tile and warps).

    Where no group ends early and all is contiguous, a group is a row: then no place takes a division to find.
    """
    block = scheme.block[1] or (CHUNK if scheme.block[0] is None else max(16, triton.next_power_of_2(cols)))
    if contiguous and cols % block == 0:
        rows, cols = rows * cols // block, block
    groups = max(1, TILE // block)
    config = {"GROUPS": groups, "BLOCK": block, "num_warps": min(16, groups * block // 512)}
    return {"rows": rows, "cols": cols, "groups_per_row": ceil(cols / block)}, config


def _programs(place: dict, config: dict) -> int:
    return ceil(place["rows"] * place["groups_per_row"] / config["GROUPS"])


def _searchers(rows: int, cols: int, contiguous: bool = True) -> tuple[dict, int]:
    """(tiles and their places, programs) of a search for the largest magnitude of a tensor."""
    if contiguous:
        rows, cols = 1, rows * cols
    tiles_per_row = ceil(cols / TILE)
    place = {"cols": cols, "tiles": rows * tiles_per_row, "tiles_per_row": tiles_per_row}
    return place, min(PARTIALS, triton.next_power_of_2(rows * tiles_per_row))


def _largest(x: torch.Tensor) -> torch.Tensor:
    """The largest magnitude of each part of x that a program looks through: fp32 [a power of two]."""
    place, programs = _searchers(*x.shape, x.is_contiguous())
    partial = torch.empty(programs, dtype=torch.float32, device=x.device)
    strides = (0, 1) if x.is_contiguous() else x.stride()
    largest_kernel[(programs,)](x, partial, *strides, **place, BLOCK=TILE, num_warps=8)
    return partial


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
    if tensor_scale is not None:
        if how != "tensor" and not scheme.has_tensor_scale:
            raise ValueError(f"tensor_scale: got one for {scheme.name}, which has none, expected None")
        check_tensor("tensor_scale", tensor_scale, shape=(), like=x, dtypes=(torch.float32,))
    q = empty(x.shape, scheme, x.device)
    if not x.numel():
        return q
    x, codes, scales = as_rows(x), as_bytes(q.codes), as_bytes(q.scales)
    (rows, cols), consts = x.shape, coding(scheme)
    if how == "squares":
        grid = (scales.numel(),)
        tile = {"ROWS": scheme.block[0], "BLOCK": scheme.block[1], "num_warps": 8}
        quantize_squares_kernel[grid](x, codes, scales, *x.stride(), rows, cols, **consts, **tile)
    elif how == "wide rows":
        constants = {name: consts[name] for name in ("FORMAT", "LARGEST")}
        strides = x.stride()
        quantize_wide_rows_kernel[(rows,)](x, codes, scales, *strides, rows, cols, **constants, BLOCK=8192, num_warps=16)
    else:
        place, config = groups_plan(scheme, rows, cols, x.is_contiguous())
        strides = (place["cols"], 1) if x.is_contiguous() else x.stride()
        searches = tensor_scale is None and (how == "tensor" or scheme.has_tensor_scale)
        partial = _largest(x) if searches else None
        if how == "tensor":
            consts["SCALE"] = "tensor"
            of_tensor = scales if tensor_scale is None else tensor_scale
            q = Quantized(q.codes, of_tensor.view(1, 1), None, scheme, q.shape)
        else:
            of_tensor = q.tensor_scale if tensor_scale is None else tensor_scale
            q = Quantized(q.codes, q.scales, of_tensor, scheme, q.shape)
        quantize_groups_kernel[(_programs(place, config),)](
            x, codes, scales, partial, of_tensor, *strides, **place, **consts,
            PARTIALS=len(partial) if searches else 0, **config,
        )  # fmt: skip
    return q


def quantize_ops(rows: int, cols: int, dtype: torch.dtype, scheme: Scheme | str) -> dict[str, Traffic]:
    """What four eager ops read and write that quantise to eight bits with one fp32 scale a block, in order."""
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
    given: bool = False,
) -> Traffic:
    """What quantising moves: the 'minimum', each byte once; 'naive', four eager ops; None, what `quantize` does.

    cached: what all programs share is counted once; False counts what they ask for. given: the tensor's scale is.
    """
    scheme = scheme_of(scheme)
    if path == "naive":
        return sum(quantize_ops(rows, cols, dtype, scheme).values())
    if path not in ("minimum", None):
        raise ValueError(f"path: got {path!r}, expected minimum, naive or None")
    read, written = {"x": rows * cols * dtype.itemsize}, scheme.nbytes(rows, cols)
    moved = Traffic(read, written, 3 * rows * cols, launches=1)
    how = kind(scheme, cols)
    of_tensor = how == "tensor" or scheme.has_tensor_scale
    if path == "minimum" and not given or not of_tensor and how != "wide rows":
        return moved
    if how == "wide rows":
        return moved + Traffic(read, flops=2 * rows * cols)
    shared = _programs(*groups_plan(scheme, rows, cols)) if not cached else 1
    if given:
        written = {name: size for name, size in written.items() if name == "codes" or how != "tensor" and name == "scales"}
        return Traffic(read | {"tensor_scale": 4 * shared}, written, 3 * rows * cols, launches=1)
    programs = _searchers(rows, cols)[1]
    search = Traffic(read, {"partial": 4 * programs}, 2 * rows * cols, launches=1)
    written = {"codes": written["codes"], "scales": written["scales"], "tensor_scale": 4}
    if how == "tensor":
        del written["scales"]  # the one scale there is
    return search + Traffic(read | {"partial": 4 * programs * shared}, written, 3 * rows * cols, launches=1)
