"""Dequantize: codes and scales back to 16 or 32 bits, code * (scale * tensor_scale), rounded once.

Minimum traffic: codes and scales read once, the result written once. Results equal `dequantize_reference`, rounded to
the requested dtype, bit for bit.
"""

from functools import cache
from math import ceil

import torch

from instruments.backend import next_power_of_2, tl, triton
from instruments.gpus import dtype_name
from instruments.traffic import Traffic
from kernels.quantization.codes import as_bytes, decode, scale_value, unpack_nibbles
from kernels.quantization.quantize import CHUNK, PER_WARP, TILE
from kernels.quantization.schemes import Quantized, Scheme, scheme_of
from kernels.shared.arguments import check_tensor


@triton.jit
def dequantize_kernel(
    codes_ptr, scales_ptr, tensor_scale_ptr, y_ptr,
    cols, tiles_per_row, scales_per_row,
    FORMAT: tl.constexpr, SCALE: tl.constexpr, PACKED: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr,
    GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Groups of BLOCK columns of one row, in a tile [GROUPS, BLOCK].

    codes, two per byte if PACKED, and y [rows, cols]; scales [., scales_per_row]; all contiguous. BLOCK_ROWS and
    BLOCK_COLS share a scale; 0 for all rows, or all columns.
    """
    program = tl.program_id(0).to(tl.int64)
    row = program // tiles_per_row
    start = program % tiles_per_row * (GROUPS * BLOCK) + tl.arange(0, GROUPS) * BLOCK  # [GROUPS]
    count = cols - start
    scales_ptr += row // BLOCK_ROWS * scales_per_row if BLOCK_ROWS else 0
    if BLOCK_COLS:
        scale = scale_value(tl.load(scales_ptr + start // BLOCK_COLS, mask=count > 0, other=0), SCALE)[:, None]
    else:
        scale = scale_value(tl.load(scales_ptr), SCALE)
    if SCALE == "e4m3":
        scale *= tl.load(tensor_scale_ptr)
    first = row * cols + start
    col = tl.arange(0, BLOCK)[None, :]
    if PACKED:
        byte = tl.arange(0, BLOCK // 2)[None, :]
        packed = tl.load(codes_ptr + first[:, None] // 2 + byte, mask=byte < count[:, None] // 2, other=0)
        code = unpack_nibbles(packed, GROUPS, BLOCK)
    else:
        code = tl.load(codes_ptr + first[:, None] + col, mask=col < count[:, None], other=0).to(tl.int32)
    y = decode(code, FORMAT) * scale  # [GROUPS, BLOCK]
    tl.store(y_ptr + first[:, None] + col, y.to(y_ptr.dtype.element_ty), mask=col < count[:, None])


@cache
def _plan(scheme: Scheme, rows: int, cols: int) -> tuple[dict, dict, int]:
    """(sizes as the kernel takes them, its tile and warps, programs). Where no row ends a group early, the matrix is
    treated as one long row."""
    block_rows, block_cols = scheme.block
    scales_per_row = scheme.scales_shape(rows, cols)[1]
    if scheme.block == (None, None) or block_rows == 1 and block_cols and cols % block_cols == 0:
        rows, cols, scales_per_row = 1, rows * cols, 0
        block_rows = None
    block = min(block_cols or CHUNK, CHUNK)
    groups = min(TILE // block, next_power_of_2(ceil(cols / block)))
    tiles_per_row = ceil(cols / (groups * block))
    sizes = {"cols": cols, "tiles_per_row": tiles_per_row, "scales_per_row": scales_per_row}
    shape = {"BLOCK_ROWS": block_rows or 0, "BLOCK_COLS": block_cols or 0, "GROUPS": groups, "BLOCK": block}
    return sizes, shape | {"num_warps": max(1, groups * block // PER_WARP)}, rows * tiles_per_row


def dequantize(q: Quantized, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """The values of a Quantized.

    Args:
        q: codes and scales, of any strides.
        dtype: of the result, fp16, bf16 or fp32.

    Returns:
        A contiguous tensor of q's shape.

    Raises:
        ValueError: names the argument.
    """
    dtype_name(dtype)
    scheme = q.scheme
    rows, cols = q.codes.shape[0], q.shape[-1]
    check_tensor("q.codes", q.codes, shape=scheme.codes_shape(rows, cols), dtypes=(scheme.code_dtype,))
    shape = scheme.scales_shape(rows, cols)
    check_tensor("q.scales", q.scales, shape=shape, like=q.codes, dtypes=(scheme.scale_dtype,))
    y = torch.empty(q.shape, dtype=dtype, device=q.codes.device)
    if y.numel():
        codes, scales = as_bytes(q.codes.contiguous()), as_bytes(q.scales.contiguous())
        sizes, config, programs = _plan(scheme, rows, cols)
        dequantize_kernel[(programs,)](
            codes, scales, q.tensor_scale, y, **sizes,
            FORMAT=scheme.format, SCALE=scheme.scale_format, PACKED=scheme.bits == 4, **config,
        )  # fmt: skip
    return y


def dequantize_traffic(
    rows: int, cols: int, dtype: torch.dtype, scheme: Scheme | str, path: str | None = "minimum", cached: bool = True
) -> Traffic:
    """What dequantizing to y [rows, cols] moves.

    Args:
        rows, cols, dtype: of the result.
        scheme: a Scheme, or the name of one of SCHEMES.
        path: 'minimum', each byte once; None, what `dequantize` does, which is the same through a perfect cache.
        cached: count what programs share once; False counts requested bytes, before the caches.
    """
    if path not in ("minimum", None):
        raise ValueError(f"path: got {path!r}, expected minimum or None")
    scheme = scheme_of(scheme)
    read = scheme.nbytes(rows, cols)
    if path is None and not cached:
        _, config, programs = _plan(scheme, rows, cols)
        loads = rows * ceil(cols / config["BLOCK_COLS"]) if config["BLOCK_COLS"] else programs
        read["scales"] = loads * scheme.scale_dtype.itemsize
        if scheme.has_tensor_scale:
            read["tensor_scale"] = 4 * programs
    return Traffic(read, {"y": rows * cols * dtype.itemsize}, 2 * rows * cols, launches=1)
