"""How quantising is laid out, for the launches and for the traffic model alike."""

from math import ceil

import torch

from instruments.backend import triton
from instruments.traffic import Traffic
from kernels.quantize_schemes import Scheme, scheme_of
from kernels.rows import RESIDENT_COLS

TILE = 4096  # elements of a program's tile of groups
PACKED_TILE = 2048  # the same where two values share a byte, which takes more registers
PER_WARP = 1024  # of these elements: 32 a thread, so that what a thread does once is shared by many
CHUNK = 128  # columns that a tile treats as a group where all share one scale
PARTIALS = 1024  # programs that look for a tensor's largest magnitude: some eight a multiprocessor


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
    flat = contiguous and cols % block == 0
    if flat:
        rows, cols = rows * cols // block, block
    groups = max(1, (PACKED_TILE if scheme.bits == 4 else TILE) // block)
    config = {"FLAT": flat, "GROUPS": groups, "BLOCK": block, "num_warps": max(1, min(16, groups * block // PER_WARP))}
    return {"rows": rows, "cols": cols, "groups_per_row": ceil(cols / block)}, config


def programs_of(place: dict, config: dict) -> int:
    """Programs that work on groups."""
    return ceil(place["rows"] * place["groups_per_row"] / config["GROUPS"])


def searchers(rows: int, cols: int, contiguous: bool = True) -> tuple[dict, int]:
    """(tiles and their places, programs) of a search for the largest magnitude of a tensor."""
    if contiguous:
        rows, cols = 1, rows * cols
    tiles_per_row = ceil(cols / TILE)
    place = {"cols": cols, "tiles": rows * tiles_per_row, "tiles_per_row": tiles_per_row}
    return place, min(PARTIALS, triton.next_power_of_2(rows * tiles_per_row))


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
    if path == "minimum" and not (given and of_tensor) or not of_tensor and how != "wide rows":
        return moved
    if how == "wide rows":
        return moved + Traffic(read, flops=2 * rows * cols)
    if how == "tensor":  # the one scale there is goes by the other name
        written = {"codes": written["codes"], "tensor_scale": written["scales"]}
    asked = 4 if cached else 4 * programs_of(*groups_plan(scheme, rows, cols))
    if given:
        del written["tensor_scale"]
        return Traffic(read | {"tensor_scale": asked}, written, 3 * rows * cols, launches=1)
    programs = searchers(rows, cols)[1]
    search = Traffic(read, {"partial": 4 * programs}, 2 * rows * cols, launches=1)
    return search + Traffic(read | {"partial": programs * asked}, written, 3 * rows * cols, launches=1)


def fused_traffic(plain: Traffic, quantising: Traffic, programs: int, path: str | None, cached: bool) -> Traffic:
    """One launch that reads what the plain operator reads and writes what quantising writes, or the two launches."""
    if path == "unfused":
        return plain + quantising
    given = {name: 4 if cached else 4 * programs for name in quantising.read if name == "tensor_scale"}
    return Traffic(plain.read | given, quantising.written, plain.flops + quantising.flops, launches=1)
