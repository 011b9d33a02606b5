"""How kernels that work on rows are laid out: tables of paths, the plans read from them, and the sum of partial sums.

A family of kernels has a table of `Path`s, its rows in order of preference. `plan` reads it, for the launch and for the
traffic model alike. A forward plan depends on the width and dtype alone; a backward one also on the GPU: its number of
multiprocessors and their shared memory.

The numbers were measured on an H200 and are recorded by bench/run.py; each rule says what it balances.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from instruments.backend import tl, triton
from instruments.gpus import GPU, GPUS

MAX_COLS = 1 << 20  # forward
MAX_COLS_BACKWARD = 1 << 17
NARROW_COLS = 512  # up to this width a program takes several rows, or its threads have too little to load
NARROW_TILE = 2048  # elements of such a program's tile
RESIDENT_COLS = 1 << 15  # the widest row that can stay in registers without spills
TILED_COLS = 14_336  # the widest row of which a multiprocessor's registers hold three, in tiles: with two it waits
RESIDENT_COLS_BACKWARD = 8192  # x, dy, weight and its gradient share the registers
PIPELINE_BYTES = 98_304  # of 16-bit rows on their way per multiprocessor in the backward; twice that for fp32
WIDE_BLOCK = 1024  # columns of the wide backward's tile
WIDE_PROGRAMS = 8  # of the wide backward, per multiprocessor
NO_LIMIT = 1 << 31


@dataclass(frozen=True)
class Device:
    """What a plan asks of a GPU, by the names that instruments/gpus.py's GPU has: shared_per_sm is in bytes."""

    sms: int
    shared_per_sm: int


#: The interpreter's: a handful of multiprocessors, so that programs with several rows are few rows away.
INTERPRETED = Device(3, GPUS["H200"].shared_per_sm)


@cache
def device_of(device: torch.device) -> Device:
    """The GPU that a tensor's device is, asked of the driver; INTERPRETED for the CPU."""
    if device.type != "cuda":
        return INTERPRETED
    properties = torch.cuda.get_device_properties(device)
    return Device(properties.multi_processor_count, properties.shared_memory_per_multiprocessor)


@dataclass(frozen=True)
class Plan:
    """How a kernel is launched over rows of one width.

    path: its name. passes: how often a row of x is read. config: tile and warps, as the kernel takes them; ROWS is 1
    where absent. blocks: of columns, each with programs of its own. most: programs at most, per block of columns.
    """

    path: str
    passes: int
    config: dict
    blocks: int = 1
    most: int = NO_LIMIT

    def programs(self, rows: int) -> int:
        """Programs for so many rows, per block of columns; each reads the parameters that all rows share."""
        return min(triton.cdiv(rows, self.config.get("ROWS", 1)), self.most)


@dataclass(frozen=True, eq=False)
class Path:
    """A row of a family's table.

    name: as in `path=`. takes: columns of the widest row it can do. chosen: (cols, bytes of a row) -> whether it is the
    one to take, if none before it is. layout: (cols, itemsize, ...) -> Plan's config, blocks and most. passes: as in
    Plan.
    """

    name: str
    takes: int
    chosen: Callable[[int, int], bool]
    layout: Callable[..., dict]
    passes: int


@cache
def plan(table: tuple[Path, ...], cols: int, itemsize: int, path: str | None = None, *more) -> Plan:
    """The plan for rows of `cols` elements: of the path named, or of the first that is chosen. more: for the layout.

    Raises ValueError, naming every path and the widths it takes, for a path that is not there or takes no such rows.
    """
    for row in table:
        if cols <= row.takes and (row.name == path if path else row.chosen(cols, cols * itemsize)):
            return Plan(row.name, row.passes, **row.layout(cols, itemsize, *more))
    paths = ", ".join(f"{row.name} (to {row.takes:,} columns)" for row in table)
    raise ValueError(f"path: got {path!r} for rows of {cols:,}, expected None or one of {paths}")


def reads(table: tuple[Path, ...], rows: int, cols: int, itemsize: int, path: str | None) -> tuple[int, int]:
    """(how often a row is read, programs that read what all rows share) on a path; once and one for 'minimum'."""
    if path == "minimum":
        return 1, 1
    chosen = plan(table, cols, itemsize, path)
    return chosen.passes, chosen.programs(rows)


def always(cols: int, nbytes: int) -> bool:
    """A table's last choice."""
    return True


def is_narrow(cols: int, nbytes: int) -> bool:
    """Where every family takes several rows per program."""
    return cols <= NARROW_COLS


def narrow(cols: int, itemsize: int) -> dict:
    """Several rows per program, at least two: with one, the compiled code is no better than a resident kernel's."""
    block = triton.next_power_of_2(cols)
    return {"config": {"ROWS": NARROW_TILE // block, "BLOCK": block, "num_warps": 4}}


def resident(cols: int, itemsize: int, per_thread: int = 16, most: int = 16) -> dict:
    """One row per program, kept in registers: `per_thread` elements per thread, in 1 to `most` warps."""
    block = triton.next_power_of_2(cols)
    return {"config": {"BLOCK": block, "num_warps": min(most, max(1, block // (32 * per_thread)))}}


def few_warps(cols: int, itemsize: int) -> dict:
    """A resident row in fewer warps, for kernels whose sums wait for each other, or that hardly store."""
    return resident(cols, itemsize, per_thread=32, most=8)


def tiled(cols: int, itemsize: int) -> dict:
    """One row per program, kept in several tiles: a quarter or an eighth of the power of two that holds the row,
    whichever leaves less of the last tile empty; one 16-byte load of 16-bit values per thread and tile."""
    whole = max(8, triton.next_power_of_2(cols))
    block = min(whole // 4, whole // 8, key=lambda block: (triton.cdiv(cols, block) * block, -block))
    tiles = triton.cdiv(cols, block)
    return {"config": {"TILES": tiles, "BLOCK": block, "num_warps": min(16, max(1, block // 256))}}


def streaming(cols: int, itemsize: int) -> dict:
    """One row per program, in steps of one 16-byte load per thread.

    Whole programs of 16 or 32 warps fill a multiprocessor, and their rows nearly fit its L1, so that the second pass,
    which walks backwards over what was read last, finds most of the row there.
    """
    warps = 32 if cols * itemsize > 32_768 else 16
    return {"config": {"BLOCK": 32 * warps * 16 // itemsize, "num_warps": warps}}


def long_steps(cols: int, itemsize: int) -> dict:
    """One row per program, in steps of 8,192: two 16-byte loads of 16-bit values on their way per thread."""
    return {"config": {"BLOCK": 8192, "num_warps": 16}}


def prefetching(cols: int, itemsize: int, tensors: int, gpu: Device) -> dict:
    """Persistent programs that load `tensors` rows per step ahead of time, each with a row of partial sums.

    What is on the way per multiprocessor is kept at PIPELINE_BYTES. Two stages cost shared memory and win nothing over
    one.
    """
    block = triton.next_power_of_2(cols)
    per_multiprocessor = min(16, max(1, 4096 // block))
    budget = min(PIPELINE_BYTES * itemsize // 2, gpu.shared_per_sm * 5 // 6)
    stages = min(6, budget // (per_multiprocessor * 2 * block * itemsize) * 2 // tensors)
    config = {
        "BLOCK": block,
        "num_warps": min(16, max(1, block * itemsize // 1024)),
        "STAGES": stages if stages > 2 else 1,
    }
    return {"config": config, "most": per_multiprocessor * gpu.sms}


def across(cols: int, itemsize: int, tensors: int, gpu: Device) -> dict:
    """Programs by blocks of columns and groups of rows, each with a block of a row of partial sums."""
    blocks = triton.cdiv(cols, WIDE_BLOCK)
    most = max(1, WIDE_PROGRAMS * gpu.sms // blocks)
    return {"config": {"BLOCK": WIDE_BLOCK, "num_warps": 4}, "blocks": blocks, "most": most}


#: The backwards of the norms. 'wide' first reads each row for its statistics, then again, by blocks of columns.
BACKWARD_PATHS = (
    # path, takes, chosen, layout, passes
    Path("resident", RESIDENT_COLS_BACKWARD, always, prefetching, 1),
    Path("wide", MAX_COLS_BACKWARD, always, across, 2),
)


def backward_plan(cols: int, itemsize: int, tensors: int, gpu: Device | GPU) -> Plan:
    """The plan of a norm's backward that loads `tensors` rows per step, on one GPU."""
    return plan(BACKWARD_PATHS, cols, itemsize, None, tensors, Device(gpu.sms, gpu.shared_per_sm))


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """[..., cols] as [rows, cols] without a copy, unless its rows cannot be addressed by one stride.

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
    total = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in tl.range(0, count, ROWS):
        row = start + tl.arange(0, ROWS)  # [ROWS]
        mask = (row < count)[:, None] & (col < cols)[None, :]  # [ROWS, BLOCK]
        total += tl.load(partial_ptr + row.to(tl.int64)[:, None] * cols + col[None, :], mask=mask, other=0.0)
    tl.store(total_ptr + col, tl.sum(total, axis=0).to(total_ptr.dtype.element_ty), mask=col < cols)


def sum_partials(partial: torch.Tensor, total: torch.Tensor):
    """total[cols] = the sum over the rows of partial[count, cols], in fp32, rounded to the dtype of total."""
    count, cols = partial.shape
    sum_partials_kernel[(triton.cdiv(cols, 64),)](partial, total, count, cols, ROWS=32, BLOCK=64, num_warps=4)
