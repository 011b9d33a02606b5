"""How kernels over rows are launched: tables of paths, the plans made from them, and the sum of partial sums.

A family has several kernels for the same function, since no single one is fastest at every width: narrow rows share a
program, wider ones stay in registers, the widest are streamed. Its table lists them as `RowPath`s, one per kernel, in
order of preference. For a given width and dtype, `row_plan` takes the first path that applies (or the one named by
`path=`) and returns a `RowPlan`: which kernel, with which tile and warps, in how many programs. The launch and the
traffic model both read this plan, so that they cannot disagree. A forward plan depends on width and dtype alone; a
backward plan also depends on the GPU: the number of its SMs and their shared memory.

The limits were measured on an H200 and are recorded by bench/run.py; each rule says what it balances.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from instruments.backend import cdiv, next_power_of_2, tl, triton
from instruments.gpus import GPU
from kernels.shared.device import Device

MAX_COLS = 1 << 20  # forward
MAX_COLS_BACKWARD = 1 << 17
NARROW_COLS = 512  # up to this width a program takes several rows, or its threads have too little to load
NARROW_TILE = 2048  # elements of such a program's tile
RESIDENT_COLS = 1 << 15  # the widest row that fits in registers without spills
TILED_COLS = 14_336  # the widest row of which an SM's registers hold three, in tiles; with two it stalls
RESIDENT_COLS_BACKWARD = 8192  # x, dy, weight and its gradient share the registers
PIPELINE_BYTES = 98_304  # bytes in flight per SM in the backward, of 16-bit rows; twice that for fp32
WIDE_BLOCK = 1024  # columns of the wide backward's tile
WIDE_PROGRAMS = 8  # of the wide backward, per SM
NO_LIMIT = 1 << 31


@dataclass(frozen=True)
class RowPlan:
    """How a kernel is launched over rows of one width.

    Args:
        path: the path's name.
        passes: how often the kernel reads a row of x.
        config: tile constants and num_warps, by the kernel's names for them; rows per program are `ROWS`, or 1.
        blocks: blocks of columns, each with programs of its own.
        max_programs: the most programs per block of columns; persistent kernels loop over the remaining rows.
    """

    path: str
    passes: int
    config: dict
    blocks: int = 1
    max_programs: int = NO_LIMIT

    def programs(self, rows: int) -> int:
        """Programs per block of columns for this many rows; each reads the parameters that all rows share."""
        return min(cdiv(rows, self.config.get("ROWS", 1)), self.max_programs)


@dataclass(frozen=True, eq=False)
class RowPath:
    """One kernel of a family: an entry of its table.

    Args:
        name: the name that `path=` takes.
        max_cols: the widest row that the kernel can process.
        applies: (cols, bytes of a row) -> whether to take this path, if no earlier one of the table applies.
        layout: (cols, itemsize, ...) -> the fields config, blocks and max_programs of the plan.
        passes: how often the kernel reads a row of x.
    """

    name: str
    max_cols: int
    applies: Callable[[int, int], bool]
    layout: Callable[..., dict]
    passes: int


@cache
def row_plan(table: tuple[RowPath, ...], cols: int, itemsize: int, path: str | None = None, *more) -> RowPlan:
    """The plan for rows of one width and dtype.

    Args:
        table: a family's paths, in order of preference.
        cols: columns of a row.
        itemsize: bytes of an element.
        path: the path to take; None takes the first that applies.
        *more: further arguments of the paths' layouts.

    Raises:
        ValueError: if the table has no such path, or it takes no rows of this width. Names each path and its widths.
    """
    for row in table:
        if cols <= row.max_cols and (row.name == path if path else row.applies(cols, cols * itemsize)):
            return RowPlan(row.name, row.passes, **row.layout(cols, itemsize, *more))
    paths = ", ".join(f"{row.name} (to {row.max_cols:,} columns)" for row in table)
    raise ValueError(f"path: got {path!r} for rows of {cols:,}, expected None or one of {paths}")


def passes_and_programs(
    table: tuple[RowPath, ...], rows: int, cols: int, itemsize: int, path: str | None
) -> tuple[int, int]:
    """(reads per row, programs that read the shared parameters) on a path; (1, 1) for 'minimum'."""
    if path == "minimum":
        return 1, 1
    plan = row_plan(table, cols, itemsize, path)
    return plan.passes, plan.programs(rows)


def alignment(*sizes: int) -> int:
    """The largest of 1, 2, 4 and 8 that divides all sizes: of a kernel's constexpr ALIGN.

    Triton looks only at whether an argument is a multiple of 16. Told of 8, it loads 8 elements of 16 bits at once.
    """
    return math.gcd(8, *sizes)


def always(cols: int, nbytes: int) -> bool:
    """For a table's last path, which takes what is left."""
    return True


def never(cols: int, nbytes: int) -> bool:
    """For a path that only runs by its name, or where more than the width decides."""
    return False


def is_narrow(cols: int, nbytes: int) -> bool:
    """Whether a program takes several rows; the same limit in every family."""
    return cols <= NARROW_COLS


def narrow_layout(cols: int, itemsize: int) -> dict:
    """Several rows per program, at least two: with one, the compiled code is no better than a resident kernel's."""
    block = next_power_of_2(cols)
    return {"config": {"ROWS": NARROW_TILE // block, "BLOCK": block, "num_warps": 4}}


def resident_layout(cols: int, itemsize: int, per_thread: int = 16, max_warps: int = 16) -> dict:
    """One row per program, held in registers: `per_thread` elements per thread, in 1 to `max_warps` warps."""
    block = next_power_of_2(cols)
    return {"config": {"BLOCK": block, "num_warps": min(max_warps, max(1, block // (32 * per_thread)))}}


def few_warps_layout(cols: int, itemsize: int) -> dict:
    """A resident row in fewer warps, for kernels that wait for one sum after another, or that store little."""
    return resident_layout(cols, itemsize, per_thread=32, max_warps=8)


def tiled_layout(cols: int, itemsize: int) -> dict:
    """One row per program, held in registers as several tiles, with one 16-byte load of 16-bit values per thread and
    tile. A tile is a quarter or an eighth of the power of two that holds the row, whichever needs less padding."""
    whole = max(8, next_power_of_2(cols))
    block = min(whole // 4, whole // 8, key=lambda block: (cdiv(cols, block) * block, -block))
    tiles = cdiv(cols, block)
    return {"config": {"TILES": tiles, "BLOCK": block, "num_warps": min(16, max(1, block // 256))}}


def streaming_layout(cols: int, itemsize: int) -> dict:
    """One row per program, in steps of one 16-byte load per thread.

    Programs of 16 or 32 warps fill an SM with few rows, which nearly fit in its L1. So the second pass, which starts
    with what the first one read last, hits L1 for most of the row.
    """
    warps = 32 if cols * itemsize > 32_768 else 16
    return {"config": {"BLOCK": 32 * warps * 16 // itemsize, "num_warps": warps}}


def long_steps_layout(cols: int, itemsize: int) -> dict:
    """One row per program, in steps of 8,192: two 16-byte loads of 16-bit values in flight per thread."""
    return {"config": {"BLOCK": 8192, "num_warps": 16}}


def prefetch_layout(cols: int, itemsize: int, tensors: int, gpu: Device) -> dict:
    """Persistent programs that prefetch `tensors` rows per step, each program with a row of partial sums.

    The stages are as many as keep PIPELINE_BYTES in flight per SM. Two would cost shared memory and be no faster than
    one.
    """
    block = next_power_of_2(cols)
    per_sm = min(16, max(1, 4096 // block))
    budget = min(PIPELINE_BYTES * itemsize // 2, gpu.shared_per_sm * 5 // 6)
    stages = min(6, budget // (per_sm * 2 * block * itemsize) * 2 // tensors)
    config = {
        "BLOCK": block,
        "num_warps": min(16, max(1, block * itemsize // 1024)),
        "STAGES": stages if stages > 2 else 1,
    }
    return {"config": config, "max_programs": per_sm * gpu.sms}


def wide_layout(cols: int, itemsize: int, tensors: int, gpu: Device) -> dict:
    """Programs by blocks of columns and groups of rows, each with a block of a row of partial sums."""
    blocks = cdiv(cols, WIDE_BLOCK)
    programs = max(1, WIDE_PROGRAMS * gpu.sms // blocks)
    return {"config": {"BLOCK": WIDE_BLOCK, "num_warps": 4}, "blocks": blocks, "max_programs": programs}


#: The backwards of the norms. 'wide' reads each row for its statistics first, then again by blocks of columns.
BACKWARD_PATHS = (
    # name, max_cols, applies, layout, passes
    RowPath("resident", RESIDENT_COLS_BACKWARD, always, prefetch_layout, 1),
    RowPath("wide", MAX_COLS_BACKWARD, always, wide_layout, 2),
)


def backward_plan(cols: int, itemsize: int, tensors: int, gpu: Device | GPU) -> RowPlan:
    """The plan of a norm's backward that loads `tensors` rows per step, on one GPU."""
    if not isinstance(gpu, Device):
        gpu = Device(gpu.sms, gpu.shared_per_sm)
    return row_plan(BACKWARD_PATHS, cols, itemsize, None, tensors, gpu)


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor [..., cols] as [rows, cols], without a copy where one stride can address its rows.

    Note:
        A row whose elements lie 2^31 or more apart is copied too: offsets inside a row are 32-bit.
    """
    cols = tensor.shape[-1]
    if cols * tensor.stride(-1) >= 1 << 31:
        tensor = tensor.contiguous()
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, cols)


@triton.jit
def sum_partials_kernel(partial_ptr, total_ptr, count, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """total [cols] = sum over the rows of partial [count, cols], in tiles of [ROWS, BLOCK]."""
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    acc = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in tl.range(0, count, ROWS):
        row = start + tl.arange(0, ROWS)  # [ROWS]
        mask = (row < count)[:, None] & (col < cols)[None, :]  # [ROWS, BLOCK]
        acc += tl.load(partial_ptr + row.to(tl.int64)[:, None] * cols + col[None, :], mask=mask, other=0.0)
    tl.store(total_ptr + col, tl.sum(acc, axis=0).to(total_ptr.dtype.element_ty), mask=col < cols)


def sum_partials(partial: torch.Tensor, total: torch.Tensor):
    """Sum partial sums in fp32 and round them to the dtype of `total`.

    Args:
        partial: [count, cols], fp32.
        total: [cols], any dtype; written.
    """
    count, cols = partial.shape
    sum_partials_kernel[(cdiv(cols, 64),)](partial, total, count, cols, ROWS=32, BLOCK=64, num_warps=4)
