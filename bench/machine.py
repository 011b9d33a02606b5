"""What the machine itself costs, measured with the smallest kernels: latency, sectors, warps, programs, branches,
banks, what the FP8 accumulator of the tensor cores keeps, and lesson 03's matmul (bench/tiling.py).

    python bench/machine.py [--json FILE] [--only PART,...]   on a GPU: measure, check, write `machine` into the figures
    python bench/machine.py --dry                             anywhere: tiny sizes, interpreted, checked; writes nothing

--json: the figures' file, which bench/run.py makes, by default bench/results/<gpu>.json; what else it holds stays.
--only: parts by name; the others stay. They must have been measured with the same versions, or nothing runs.

instruments/results.py says what each part measures.
"""

import argparse
import math
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import msgspec
import numpy as np
import torch
from tqdm import tqdm

from bench import tiling
from bench.run import empty_kernel, need_same, versions
from instruments import results, timing
from instruments.backend import device, tl, triton
from instruments.gpus import DTYPES
from instruments.kernel_hash import kernel_hash
from instruments.results import (
    Accumulator,
    Banks,
    Copy,
    Divergence,
    Flight,
    Latency,
    Machine,
    Programs,
    Read,
    Stages,
    TallRows,
    Transpose,
)
from instruments.sectors import bank_passes
from kernels.elementwise.copy import copy_kernel
from kernels.low_precision import ablation as fp8
from kernels.reductions.row_sum import row_sum_narrow_kernel, row_sum_reference, row_sum_resident_kernel

try:  # Triton's lower language, which lets a program lay out its shared memory itself
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
except ImportError:
    gluon = None

BUDGET = 0.1  # seconds of GPU time for each call of a list that is timed in turns
LINE = 128  # bytes


def timed(functions: dict, args: tuple, nbytes: int) -> dict:
    """{name: {'us', 'us_p20', 'us_p80'}}; without a GPU the functions run once, and the times are NaN."""
    if device() == "cpu":
        for function in functions.values():
            function(*args)
        return {name: dict.fromkeys(("us", "us_p20", "us_p80"), math.nan) for name in functions}
    timings = timing.from_graphs(functions, args, nbytes, BUDGET * len(functions))
    torch.cuda.empty_cache()
    return {name: {"us": t.median * 1e6, "us_p20": t.p20 * 1e6, "us_p80": t.p80 * 1e6} for name, t in timings.items()}


def check(result: torch.Tensor, expected: torch.Tensor, what):
    """Raise AssertionError unless the two are equal up to rounding."""
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-2, msg=lambda text: f"{what}: {text}")


def rate(nbytes: int, times: dict) -> dict:
    """GB/s of a call that needs `nbytes`."""
    return {"gbps": nbytes / times["us"] / 1e3}


def resources(kernel) -> dict:
    """Registers per thread and bytes of shared memory of what a launch returned; 0 from the interpreter."""
    if not hasattr(kernel, "n_regs"):
        return {"registers": 0, "shared": 0}
    return {"registers": kernel.n_regs, "shared": kernel.metadata.shared}


@triton.jit
def cycle_counter():
    return tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def nanosecond_counter():
    return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def chase_kernel(circle_ptr, at_ptr, elapsed_ptr, warm_up, steps, COUNTERS: tl.constexpr):
    at = tl.load(at_ptr)
    for _ in range(warm_up):
        at = tl.load(circle_ptr + at)
    if COUNTERS:
        cycles, ns = cycle_counter(), nanosecond_counter()
    for _ in range(steps):
        at = tl.load(circle_ptr + at)  # its address comes from the last load's result: no two overlap
    tl.store(at_ptr, at)  # the next launch goes on from here, or it would find in L2 what this one fetched
    if COUNTERS:
        tl.store(elapsed_ptr, cycle_counter() - cycles)
        tl.store(elapsed_ptr + 1, nanosecond_counter() - ns)


def round_trip(nbytes: int) -> torch.Tensor:
    """All lines of `nbytes` in one random circle: the first word of each says where the next begins, in words."""
    stops = torch.randperm(nbytes // LINE, device=device()) * (LINE // 4)
    circle = torch.zeros(nbytes // 4, dtype=torch.int32, device=device())
    circle[stops] = stops.roll(-1).to(torch.int32)
    return circle


def latency(small: bool) -> list[Latency]:
    records = []
    sizes = [1 << 10] if small else sorted({*(1 << k for k in range(14, 31)), *(3 << k for k in range(13, 29))})
    for nbytes in sizes:
        circle = round_trip(nbytes)
        at, elapsed = (torch.zeros(n, dtype=kind, device=device()) for n, kind in ((1, torch.int32), (2, torch.int64)))

        def chase(warm_up, steps):
            chase_kernel[(1,)](circle, at, elapsed, warm_up, steps, COUNTERS=not small, num_warps=1)
            return elapsed.tolist()

        stops = nbytes // LINE
        chase(0, min(stops, 1 << 18))  # round, or so far that caches and address tables are warm
        assert stops > 1 << 18 or at.item() == 0, f"{nbytes} bytes: {stops} steps do not lead round"
        if small:
            continue
        runs = torch.tensor([chase(min(stops, 1 << 12), 1 << 15) for _ in range(5)], dtype=torch.float64)
        cycles, ns = (runs.median(dim=0).values / (1 << 15)).tolist()
        records.append(Latency(bytes=nbytes, cycles=cycles, ns=ns))
    return records


def _strided(x_ptr, y_ptr, stride, offset, BLOCK: tl.constexpr):
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offset + lane * stride)
    tl.store(y_ptr + tl.program_id(0), tl.sum(x.to(tl.float32)))


wide_kernel = triton.jit(_strided)  # compiled for a stride of 1, which allows wide loads
strided_kernel = triton.jit(do_not_specialize=["stride", "offset"])(_strided)  # one binary for all


@triton.jit
def scattered_kernel(x_ptr, y_ptr, RUN: tl.constexpr, RUNS: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = lane // RUN
    for _ in tl.static_range(3):  # a permutation of 0 ... RUNS - 1: no list of places is read
        at = (at * 747796405) & (RUNS - 1)
        at = at ^ (at >> SHIFT)
    x = tl.load(x_ptr + at.to(tl.int64) * RUN + lane % RUN)
    tl.store(y_ptr + tl.program_id(0), tl.sum(x.to(tl.float32)))


def scattered_places(count: int, run: int, runs: int, shift: int) -> torch.Tensor:
    """Where scattered_kernel's lanes read."""
    lane = torch.arange(count, device=device())
    at = lane // run
    for _ in range(3):
        at = (at * 747796405) & (runs - 1)
        at = at ^ (at >> shift)
    return at * run + lane % run


def reads(small: bool) -> list[Read]:
    count, block, everything = (256, 128, 1 << 12) if small else (1 << 25, 2048, 1 << 30)
    programs, records = count // block, []

    def summed(kernel, *numbers):

        def run(x):
            y = torch.empty(programs, dtype=torch.float32, device=x.device)
            kernel[(programs,)](x, y, *numbers, BLOCK=block, num_warps=4)
            return y

        return run

    def strided(pattern, by):
        stride, offset = (by, 0) if pattern == "stride" else (1, by if pattern == "offset" else 0)
        return summed(wide_kernel if pattern == "wide" else strided_kernel, stride, offset), slice(
            offset, offset + stride * count, stride
        )

    def scattered(run):
        runs = everything // run
        shift = (runs.bit_length() - 1) // 2
        return summed(scattered_kernel, run, runs, shift), scattered_places(count, run, runs, shift)

    lists = (
        [("wide", 1), *(("stride", s) for s in (1, 2, 4, 8, 16, 32))],
        [("wide", 1), *(("offset", o) for o in (0, 1, 2, 4, 8, 16, 31, 32))],
        [("scattered", run) for run in (1, 2, 4, 8, 16, 32, 64, 4096)],
    )
    for dtype in ("bf16", "fp32"):
        for names, size in zip(lists, (32 * count, count + 32, everything)):
            x = torch.empty(size, dtype=DTYPES[dtype], device=device()).normal_()
            functions = {}
            for pattern, by in names if not small else names[:6]:
                function, places = scattered(by) if pattern == "scattered" else strided(pattern, by)
                check(function(x), x[places].view(programs, block).float().sum(1), (dtype, pattern, by))
                functions[pattern, by] = function
            nbytes = count * x.element_size()
            for (pattern, by), times in timed(functions, (x,), nbytes).items():
                records.append(Read(pattern=pattern, by=by, dtype=dtype, **times, **rate(nbytes, times)))
            del x
    return records


def copies(small: bool) -> list[Copy]:
    x = torch.empty(1 << 13 if small else 1 << 27, dtype=torch.bfloat16, device=device()).normal_()
    functions, kernels = {}, {}

    def copied(block, warps):

        def run(x):
            y = torch.empty_like(x)
            grid = (triton.cdiv(x.numel(), block),)
            kernels[block, warps] = copy_kernel[grid](x, y, x.numel(), block, num_warps=warps)
            return y

        return run

    for block in (1024,) if small else (256, 1024, 4096, 16384):
        for warps in (1, 2, 4, 8, 16, 32):
            if 32 * warps <= block <= 32 * warps * 128:  # from one element per thread to what registers hold
                functions[block, warps] = copied(block, warps)
                assert torch.equal(functions[block, warps](x), x), (block, warps)
    nbytes = 2 * x.numel() * x.element_size()
    return [
        Copy(block=block, warps=warps, **resources(kernels[block, warps]), **times, **rate(nbytes, times))
        for (block, warps), times in timed(functions, (x,), nbytes).items()
    ]


def long_run(function, args: tuple, nbytes: int) -> dict:
    """Clock and power while the function runs back to back for two seconds."""
    if device() == "cpu":
        function(*args)
        return {"clock_mhz": math.nan, "watts": math.nan}
    run = timing.sustained(function, args, nbytes)
    return {"clock_mhz": run.clock_mhz, "watts": run.watts}


@triton.jit
def which_sm():
    return tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=True, pack=1)


@triton.jit
def flight_kernel(x_ptr, y_ptr, sm_ptr, tiles, LOADS: tl.constexpr, WIDTH: tl.constexpr, WHERE: tl.constexpr):
    program = tl.program_id(0)
    if WHERE:
        tl.store(sm_ptr + program, which_sm())
    inside = tl.arange(0, LOADS)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]  # one load of a thread per row
    for tile in tl.range(program, tiles, tl.num_programs(0)):
        at = tile.to(tl.int64) * LOADS * WIDTH + inside
        tl.store(y_ptr + at, tl.load(x_ptr + at))  # compiled to all of a thread's loads, then all of its stores


def flights(small: bool) -> list[Flight]:
    """One resource changes at a time: programs per SM, elements per program, or the warps that share a tile."""
    sms = 2 if small else torch.cuda.get_device_properties(0).multi_processor_count
    size = sms << (15 if small else 20)
    x = torch.empty(size, dtype=torch.bfloat16, device=device()).normal_()
    functions, kernels, most = {}, {}, {}

    def copied(name):
        _, per_sm, block, warps = name
        width = min(block, warps * 32 * 8)  # 16 bytes per thread, or less where the tile is small

        def run(x):
            y, places = torch.empty_like(x), torch.empty(per_sm * sms, dtype=torch.int32, device=x.device)
            kernels[name] = flight_kernel[(per_sm * sms,)](
                x, y, places, size // block, LOADS=block // width, WIDTH=width, WHERE=not small, num_warps=warps
            )
            return y, places

        return run

    nbytes, times = 2 * x.numel() * x.element_size(), {}
    for ways in (
        [("programs", per_sm, 1024, 4) for per_sm in (1, 2, 3, 4, 6, 8, 12, 16)],
        [("elements", 1, block, 4) for block in (1024, 2048, 4096, 8192, 16384, 32768)],
        [("warps", 1, block, warps) for block in (1024, 8192) for warps in (1, 2, 4, 8, 16, 32)],
    ):
        for name in ways:
            functions[name] = copied(name)
            y, places = functions[name](x)
            most[name] = 0 if small else torch.bincount(places).max().item()
            assert torch.equal(y, x), name
        times |= timed({name: functions[name] for name in ways}, (x,), nbytes)
    clocks = {}
    for name in (("programs", 1, 1024, 4), ("programs", 16, 1024, 4), ("elements", 1, 32768, 4)):
        clocks[name] = long_run(functions[name], (x,), nbytes)
    return [
        Flight(
            changed=changed,
            per_sm=per_sm,
            most=most[changed, per_sm, block, warps],
            block=block,
            warps=warps,
            registers=resources(kernels[changed, per_sm, block, warps])["registers"],
            **t,
            **rate(nbytes, t),
            **clocks.get((changed, per_sm, block, warps), {}),
        )
        for (changed, per_sm, block, warps), t in times.items()
    ]


@triton.jit
def tall_rows_kernel(x_ptr, y_ptr, tiles, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        x = tl.load(x_ptr + row[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :])
        tl.store(y_ptr + row, tl.sum(x.to(tl.float32), axis=1))


def tall_rows(small: bool) -> list[TallRows]:
    """From a row per program to the course's kernel, one change at a time; and the slow tile without its launch."""
    sms = 2 if small else torch.cuda.get_device_properties(0).multi_processor_count
    x = torch.empty(1 << (8 if small else 20), 128, dtype=torch.bfloat16, device=device()).normal_()
    (count, cols), functions, kernels, grids = x.shape, {}, {}, {}

    def summed(name):
        launch, rows, warps = name
        tiles = count // rows
        grids[name] = (tiles if launch != "loop" else min(tiles, sms * min(32, 64 // warps)),)

        def run(x):
            y = torch.empty(count, dtype=torch.float32, device=x.device)
            if launch == "resident":
                kernels[name] = row_sum_resident_kernel[grids[name]](x, y, cols, 1, cols, BLOCK=cols, num_warps=warps)
            elif launch == "tiles":
                kernels[name] = row_sum_narrow_kernel[grids[name]](
                    x, y, cols, 1, count, cols, ROWS=rows, BLOCK=cols, num_warps=warps
                )
            else:
                kernels[name] = tall_rows_kernel[grids[name]](x, y, tiles, ROWS=rows, BLOCK=cols, num_warps=warps)
            return y

        return run

    expected = row_sum_reference(x.double()).float()
    for name in [
        ("resident", 1, 1),
        *(("tiles", rows, 1) for rows in (1, 2, 4, 8, 16, 32)),
        *(("tiles", 16, warps) for warps in (2, 4, 8)),
        *(("loop", rows, 1) for rows in (1, 2, 4, 8, 16)),
        ("loop", 16, 4),
    ]:
        functions[name] = summed(name)
        check(functions[name](x), expected, name)
    nbytes = x.numel() * x.element_size() + count * 4
    times = timed(functions, (x,), nbytes)
    clocks = {name: long_run(functions[name], (x,), nbytes) for name in (("resident", 1, 1), ("tiles", 16, 4))}
    return [
        TallRows(
            launch=launch,
            rows=rows,
            warps=warps,
            programs=grids[launch, rows, warps][0],
            registers=resources(kernels[launch, rows, warps])["registers"],
            **t,
            **rate(nbytes, t),
            **clocks.get((launch, rows, warps), {}),
        )
        for (launch, rows, warps), t in times.items()
    ]


@triton.jit
def staged_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in tl.range(0, cols, BLOCK, num_stages=STAGES):
        col = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * cols + col, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(total))


def stages(small: bool) -> list[Stages]:
    """A full GPU, where other programs fill the wait, and one program per SM, where none does."""
    sms = 2 if small else torch.cuda.get_device_properties(0).multi_processor_count
    full = [(2048, 4, count) for count in (1, 2, 3, 4, 5, 6, 8)]
    alone = [
        [(block, warps, count) for count in counts if (count - 1) * block * 2 <= 200 << 10]  # buffers in shared memory
        for block, warps, counts in (
            (1024, 4, (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)),
            (2048, 4, (1, 2, 3, 4, 5, 6, 8, 12, 16, 24)),
            (8192, 4, (1, 2, 3, 4, 5, 6, 8, 12)),
            (2048, 8, (1, 2, 3, 5, 8, 12, 16, 24)),
            (2048, 16, (1, 2, 3, 5, 8, 12, 16, 24)),
        )
    ]
    records = []
    for rows, cols, ways in (
        [(4, 1 << 12, full[:4]), (sms, 1 << 12, alone[0][:4])]
        if small
        else [(8192, 1 << 16, full), *((sms, 1 << 20, ways) for ways in alone)]
    ):
        x = torch.empty(rows, cols, dtype=torch.bfloat16, device=device()).normal_()
        functions, kernels, expected = {}, {}, x.sum(1, dtype=torch.float32)

        def staged(way):
            block, warps, count = way

            def run(x):
                y = torch.empty(rows, dtype=torch.float32, device=x.device)
                kernels[way] = staged_kernel[(rows,)](x, y, cols, BLOCK=block, STAGES=count, num_warps=warps)
                return y

            return run

        for way in ways:
            functions[way] = staged(way)
            check(functions[way](x), expected, ("stages", rows, *way))
        nbytes = x.numel() * x.element_size()
        records += [
            Stages(
                programs=rows,
                warps=warps,
                stages=count,
                **resources(kernels[block, warps, count]),
                **times,
                **rate(nbytes, times),
                block=block,
            )
            for (block, warps, count), times in timed(functions, (x,), nbytes).items()
        ]
    return records


def programs(small: bool) -> list[Programs]:
    x = torch.zeros(16, device=device())
    launches = {}
    for warps in (1, 4, 8, 16, 32):
        for grid in (1, 4) if small else (1, 1 << 10, 1 << 15, 1 << 17, 1 << 20):
            launches[grid, warps] = lambda x, g=grid, w=warps: empty_kernel[(g,)](x, BLOCK=1, num_warps=w)
    per_replay = 32  # launches: so many copies of nothing
    nbytes = 0 if small else timing.FRESH * torch.cuda.get_device_properties(0).L2_cache_size // per_replay
    return [
        Programs(programs=grid, warps=warps, **times, ns_per_program=times["us"] * 1e3 / grid)
        for (grid, warps), times in timed(launches, (x,), nbytes).items()
    ]


@triton.jit
def transpose_line_kernel(x_ptr, y_ptr, n, DOWN: tl.constexpr, BLOCK: tl.constexpr):
    line = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    along, down = line * n + at, at.to(tl.int64) * n + line
    if DOWN:  # reads down a column, writes along a row
        tl.store(y_ptr + along, tl.load(x_ptr + down, mask=at < n), mask=at < n)
    else:
        tl.store(y_ptr + down, tl.load(x_ptr + along, mask=at < n), mask=at < n)


@triton.jit
def transpose_tile_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    col = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = (row < n)[:, None] & (col < n)[None, :]
    x = tl.load(x_ptr + row[:, None] * n + col[None, :], mask=mask)  # [BLOCK, BLOCK]
    tl.store(y_ptr + col[:, None] * n + row[None, :], tl.trans(x), mask=tl.trans(mask))


def transposes(small: bool) -> list[Transpose]:
    n, records = 40 if small else 8192, []

    def line(down):

        def run(x):
            y = torch.empty_like(x)
            transpose_line_kernel[(n, triton.cdiv(n, 1024))](x, y, n, DOWN=down, BLOCK=1024, num_warps=4)
            return y

        return run

    def tiled(x, block=64):
        y = torch.empty_like(x)
        transpose_tile_kernel[(triton.cdiv(n, block), triton.cdiv(n, block))](x, y, n, BLOCK=block, num_warps=4)
        return y

    functions = {
        "reads along rows, writes down columns": line(False),
        "reads down columns, writes along rows": line(True),
        "tiles of 64 x 64": tiled,
        "torch": lambda x: x.t().contiguous(),
    }
    for dtype in ("bf16", "fp32"):
        x = torch.empty(n, n, dtype=DTYPES[dtype], device=device()).normal_()
        for name, function in functions.items():
            assert torch.equal(function(x), x.t()), name
        nbytes = 2 * x.numel() * x.element_size()
        records += [
            Transpose(variant=name, shape=(n, n), dtype=dtype, **times, **rate(nbytes, times))
            for name, times in timed(functions, (x,), nbytes).items()
        ]
    return records


SPIN = """{
    .reg .pred done;
    .reg .s32 left;
    mov.f32 $0, $1;
    mov.s32 left, $2;
    again:
    setp.le.s32 done, left, 0;
    @done bra finished;
    fma.rn.f32 $0, $0, 0f3F000000, 0f3F800000;
    sub.s32 left, left, 1;
    bra again;
    finished:
}"""  # x / 2 + 1 as often as the register says, which differs by thread


@triton.jit
def spin_kernel(x_ptr, y_ptr, rounds, together, SPIN: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # as many as threads: one each
    mine = tl.where((lane // together) % 2 == 0, rounds, 0)
    x = tl.load(x_ptr + lane)
    x = tl.inline_asm_elementwise(SPIN, "=&f,f,r", [x, mine], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(y_ptr + lane, x)


@triton.jit
def choose_kernel(x_ptr, y_ptr, rounds, PER_LANE: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lane)
    if PER_LANE:
        deep = x
        for _ in range(rounds):
            deep = deep * 0.5 + 1
        x = tl.where(lane % 2 == 0, deep, x)
    else:
        if tl.program_id(0) % 2 == 0:
            for _ in range(rounds):
                x = x * 0.5 + 1
    tl.store(y_ptr + lane, x)


def divergence(small: bool) -> list[Divergence]:
    size, block, rounds = (512, 128, 4) if small else (1 << 24, 128, 512)
    x = torch.empty(size, dtype=torch.float32, device=device()).normal_()
    lane = torch.arange(size, device=device())
    deep = x
    for _ in range(rounds):
        deep = deep * 0.5 + 1

    def spun(rounds, together):

        def run(x):
            y = torch.empty_like(x)
            spin_kernel[(size // block,)](x, y, rounds, together, SPIN=SPIN, BLOCK=block, num_warps=block // 32)
            return y

        return run

    def chosen(per_lane):

        def run(x):
            y = torch.empty_like(x)
            choose_kernel[(size // block,)](x, y, rounds, PER_LANE=per_lane, BLOCK=block, num_warps=block // 32)
            return y

        return run

    cases = {("tl.where", 1): (chosen(True), lane % 2 == 0), ("if", block): (chosen(False), lane // block % 2 == 0)}
    if not small:  # no interpreter runs PTX
        cases |= {("half the lanes", n): (spun(rounds, n), lane // n % 2 == 0) for n in (1, 2, 4, 8, 16, 32, 64, 128)}
        cases |= {("every lane", size): (spun(rounds, size), lane >= 0), ("no lane", size): (spun(0, size), lane < 0)}
    for name, (function, takes) in cases.items():
        check(function(x), torch.where(takes, deep, x), name)
    times = timed({name: function for name, (function, _) in cases.items()}, (x,), 2 * x.numel() * x.element_size())
    return [
        Divergence(variant=variant, together=together, rounds=rounds, **t) for (variant, together), t in times.items()
    ]


if gluon:

    @gluon.jit
    def shared_transpose_kernel(x_ptr, y_ptr, rounds, PHASES: gl.constexpr):
        lanes: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])  # a warp holds a row, a lane a word
        row = gl.arange(0, 32, layout=gl.SliceLayout(1, lanes))
        col = gl.arange(0, 32, layout=gl.SliceLayout(0, lanes))
        at = gl.program_id(0) * 1024 + row[:, None] * 32 + col[None, :]
        x = gl.load(x_ptr + at)
        shared = gl.allocate_shared_memory(gl.float32, [32, 32], gl.SwizzledSharedLayout(1, 1, PHASES, [1, 0]))
        for _ in range(rounds):
            shared.store(x)
            x = shared.permute((1, 0)).load(lanes)  # a warp reads a column
        gl.store(y_ptr + at, x)


def banks(small: bool) -> list[Banks]:
    if small or not gluon:
        return []
    rounds, x = 129, torch.empty(1 << 13, 32, 32, device=device()).normal_()

    def transposed(phases):

        def run(x):
            y = torch.empty_like(x)
            shared_transpose_kernel[(len(x),)](x, y, rounds, phases, num_warps=4)
            return y

        return run

    functions = {phases: transposed(phases) for phases in (1, 2, 4, 8, 16, 32)}
    for phases, function in functions.items():
        assert torch.equal(function(x), x.transpose(1, 2)), phases
    times = timed(functions, (x,), 2 * x.numel() * x.element_size())
    row = np.arange(32)
    return [
        Banks(phases=phases, passes=bank_passes((row * 32 + row % phases) * 4), programs=len(x), rounds=rounds, **t)
        for phases, t in times.items()
    ]


def accumulator(small: bool) -> list[Accumulator]:
    cases = [("one large", ratio, K) for K in (32, 4096) for ratio in range(fp8.LARGEST_RATIO + 1)]
    cases += [(data, 0, 1 << power) for data in ("normal", "positive") for power in range(7, 17)]
    if small:
        cases = [("one large", 15, 32), ("normal", 0, 256)]
    records = []
    for data, ratio, K in cases:
        if data == "one large":
            operands = fp8.one_large(ratio, K)
        else:
            operands = [fp8.random_codes(64, K, data, seed) for seed in (1, 2)]
        x, weight = (codes.to(device()) for codes in operands)
        for every in fp8.INTERVALS:
            if every and every > K:
                continue
            sums = fp8.fp8_sums(x, weight, every), fp8.simulated_sums(x, weight, every)
            if data == "one large":
                errors = [fp8.missing_share(total, ratio, K) for total in sums]
            else:
                errors = [fp8.relative_error(total, x, weight) for total in sums]
            equal = (sums[0].double() == sums[1]).double().mean().item()
            records.append(
                Accumulator(
                    data=data, ratio=ratio, K=K, every=every or 0, error=errors[0], simulated=errors[1], equal=equal
                )
            )
    return records


PARTS = {
    "latency": latency,
    "reads": reads,
    "copy": copies,
    "flight": flights,
    "tall_rows": tall_rows,
    "stages": stages,
    "programs": programs,
    "transpose": transposes,
    "divergence": divergence,
    "banks": banks,
    "accumulator": accumulator,
    **tiling.PARTS,
}


def kernel_hashes(parts: Iterable[str] = tuple(PARTS)) -> dict[str, str]:
    """{part: hash of the kernels that it launches}."""
    hashes = {part: kernel_hash(PARTS[part]) for part in parts}
    return {part: text for part, text in hashes.items() if text}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="the figures' file")
    parser.add_argument("--only", default="", help="parts, separated by commas: " + ", ".join(PARTS))
    parser.add_argument("--dry", action="store_true", help="tiny sizes, on any machine; nothing is written")
    options = parser.parse_args(arguments)
    parts = [n.strip() for n in options.only.split(",") if n.strip()]
    if strange := [n for n in parts if n not in PARTS]:
        parser.error(f"--only: no part {strange[0]!r}, expected some of {', '.join(PARTS)}")
    if not options.dry:
        if not torch.cuda.is_available():
            print("bench/machine.py: this machine has no GPU to time on; --dry tries the kernels", file=sys.stderr)
            return 2
        path, here = options.json or results.place(), versions()
        try:
            figures = results.read(path)
            if parts and figures.machine:
                need_same(figures.machine, here)
        except ValueError as error:
            parser.error(str(error))
    torch.manual_seed(0)
    records = {}
    for part in tqdm(parts or PARTS, desc="machine", unit="part"):
        records[part] = PARTS[part](options.dry)
        for record in records[part]:
            tqdm.write(
                f"{part}: "
                + ", ".join(
                    f"{k} {v:,.4g}" if isinstance(v, float) else f"{k} {v}"
                    for k, v in msgspec.structs.asdict(record).items()
                )
            )
    if options.dry:
        return 0
    hashes = kernel_hashes(records)
    if parts and figures.machine:
        hashes = figures.machine.kernel_hashes | hashes
        machine = msgspec.structs.replace(figures.machine, date=here["date"], kernel_hashes=hashes, **records)
    else:
        machine = Machine(**here, kernel_hashes=hashes, **records)
    results.store(msgspec.structs.replace(figures, machine=machine), path)
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
