"""How grouped products are laid out, by the rows of a group, and what they move: from one table of plans.

The tiles of 16-bit elements were the fastest of some dozens on an H200; those of fp32 are a neighbour's, matmul.py's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

import torch

from instruments.backend import triton
from instruments.gpus import GPU, GPUS
from instruments.traffic import Traffic
from kernels.arguments import check_tensor
from kernels.rows import NO_LIMIT, Device

MAX_GROUPS = 256  # one tile of offsets


@dataclass(frozen=True)
class Path:
    """A row of the table of plans. name: as in `path=`. rows: of a group, on average, that it is chosen for at most.
    itemsize: bytes of the widest elements. tile: as the kernel takes it, BLOCK_N columns of the weight; programs: that
    share a multiprocessor; group_m: rows of tiles that programs walk over together."""

    name: str
    rows: int
    itemsize: int
    tile: dict
    programs: int
    group_m: int = 16


def _tile(m: int, n: int, k: int, warps: int, stages: int) -> dict:
    return {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": warps, "num_stages": stages}


FEW = 16  # rows of a group, on average, up to which it is decode, whose tiles have as many
PATHS = (
    Path("decode", FEW, 2, _tile(FEW, 128, 64, 4, 4), 3),
    Path("decode", FEW, 2, _tile(FEW, 64, 128, 4, 4), 4),
    Path("hopper", NO_LIMIT, 2, _tile(128, 256, 64, 4, 4), 1),
    Path("persistent", 128, 2, _tile(64, 128, 64, 4, 4), 2),
    Path("persistent", NO_LIMIT, 2, _tile(128, 256, 64, 8, 4), 1),
    Path("persistent", NO_LIMIT, 2, _tile(128, 128, 64, 4, 5), 1),
    Path("plain", NO_LIMIT, 2, _tile(128, 128, 32, 8, 4), 1),
    Path("plain", NO_LIMIT, 4, _tile(64, 64, 32, 4, 3), 2),
)
EMPTY = 16  # of a wide tile's columns, one in so many may lie outside y
PORTABLE = ("decode", "plain")  # that run anywhere


@dataclass(frozen=True)
class Plan:
    """path, group_m: as in Path. tile: as the kernel takes it, BLOCK_N columns of y. programs: in all."""

    path: str
    tile: dict
    group_m: int
    programs: int


@cache
def plan(
    slots: int,
    groups: int,
    N: int,
    swiglu: bool,
    itemsize: int,
    path: str | None,
    gpu: Device,
    able: tuple[str, ...] = PORTABLE,
) -> Plan:
    """How so many rows in so many groups are multiplied, to N columns of y: by the path named, or the first of those
    in PATHS that are able to, with the first tiles for as many rows a group. Of these the widest is taken that keeps
    every multiprocessor busy and whose columns are nearly all in y, else the last."""
    possible = [row for row in PATHS if itemsize <= row.itemsize and (path == row.name if path else row.name in able)]
    fitting = [row for row in possible if slots <= row.rows * groups] or possible
    if not fitting:
        raise ValueError(
            f"path: got {path!r} for {itemsize}-byte elements, expected None, 'plain' or, with 16 bits, 'decode', "
            "'persistent' or 'hopper'"
        )
    first = fitting[0]
    for row in fitting:
        if (row.name, row.rows, row.itemsize) != (first.name, first.rows, first.itemsize):
            break
        chosen, block_n = row, row.tile["BLOCK_N"] // (2 if swiglu else 1)
        across = triton.cdiv(N, block_n)
        tiles = (slots // row.tile["BLOCK_M"] + min(groups, slots)) * across  # there can be
        if tiles >= gpu.sms and (across * block_n - N) * EMPTY <= N:
            break
    return Plan(chosen.name, chosen.tile | {"BLOCK_N": block_n}, chosen.group_m, min(chosen.programs * gpu.sms, tiles))


def check_index(name: str, tensor, like: torch.Tensor, length: int | None = None):
    """Raise ValueError unless `tensor` is a contiguous int32 vector, of so many elements, on the device of `like`."""
    check_tensor(name, tensor, like=like, dtypes=(torch.int32,))
    if tensor.dim() != 1 or length not in (None, tensor.shape[0]):
        wanted = f"({'any' if length is None else length},)"
        raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, expected {wanted}")
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: got strides {tensor.stride()}, expected a contiguous tensor")


def grouped_matmul_traffic(
    counts: Sequence[int],
    K: int,
    N: int,
    dtype: torch.dtype,
    *,
    path: str | None = "minimum",
    tokens: int | None = None,
    activation: str | None = None,
    gpu: GPU | Device = GPUS["H200"],
) -> Traffic:
    """What a grouped product of groups of so many rows with a weight [len(counts), K, N] moves.

    path: 'minimum', each byte once; 'naive', a launch for each group that has rows; 'padded', one for all groups, each
    padded to the rows of the largest; or what the programs of a path ask for on a GPU, None for the one that is chosen
    where no descriptors are, as in the interpreter.
    tokens: rows of x where the gather is part of the load, all of them chosen; else x has a row for each of y's.
    """
    counts, size = list(counts), dtype.itemsize
    slots, touched, groups = sum(counts), sum(count > 0 for count in counts), len(counts)
    columns = N // (2 if activation else 1)  # of y
    index = {} if tokens is None else {"rows": 4 * slots}
    if path == "padded":
        slots, touched = groups * max(counts), groups
    flops = 2 * slots * K * N + (5 * slots * columns if activation else 0)
    y = {"y": slots * columns * size}
    if path in ("minimum", "naive", "padded"):
        x = slots if tokens is None or path == "padded" else tokens
        read = {"x": x * K * size, "weight": touched * K * N * size}
        if path == "minimum":
            read |= {"offsets": 4 * (groups + 1), **index}
        return Traffic(read, y, flops, launches=touched if path == "naive" else 1)
    chosen = plan(slots, groups, columns, activation is not None, size, path, Device(gpu.sms, gpu.shared_per_sm))
    block_m, block_n = chosen.tile["BLOCK_M"], chosen.tile["BLOCK_N"]
    down = [triton.cdiv(count, block_m) for count in counts]  # rows of tiles of a group
    across, x_rows, wide = triton.cdiv(columns, block_n), slots, N
    if chosen.path in ("persistent", "hopper") and tokens is None:  # a tile reaches into the rows of the next groups
        begins = accumulate(counts, initial=0)
        x_rows = sum(min(tiles * block_m, slots - begin) for tiles, begin in zip(down, begins))
    if chosen.path in ("persistent", "hopper") and activation:  # and one of gate's columns into those of up
        wide = min(across * block_n, N) + columns
    read = {
        "x": x_rows * K * across * size,
        "weight": sum(down) * K * wide * size,
        "offsets": 8 * groups * chosen.programs + 8 * sum(down) * across,
        **{name: nbytes * across for name, nbytes in index.items()},
    }
    return Traffic(read, y, flops, launches=1)
