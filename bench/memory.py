"""Peak memory and time of the calls of bench/cases/, up to sizes that run out of memory.

    python bench/memory.py [--json FILE]
    python bench/memory.py --list    anywhere: names the calls

Writes `peaks` (instruments/results.py) into the figures' file, which bench/run.py makes: by default
bench/results/<gpu>.json. A call that runs out of memory is recorded with zeros.
"""

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import msgspec
import torch

from bench.cases import Call, peak_calls
from bench.run import need_same, versions
from instruments import results, timing
from instruments.results import Peak

SECONDS = 0.2  # for which one call is timed, after the first
MOST = 20  # repetitions


def measure(call: Call) -> Peak:
    """The record of one call: memory beyond what its arguments take, and the median time between two events."""
    function = call.make()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    peak, seconds = 0, []
    try:
        function()  # compiles
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        until = time.perf_counter() + SECONDS
        while not seconds or len(seconds) < MOST and time.perf_counter() < until:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            function()
            end.record()
            end.synchronize()
            seconds.append(start.elapsed_time(end) / 1e3)
    except torch.OutOfMemoryError:
        peak, seconds = 0, [0.0]
    us = timing.summarize(seconds).median * 1e6
    fields = {"kernel": call.kernel, "variant": call.variant, "shape": call.shape, "kernel_hash": call.kernel_hash}
    return Peak(**fields, dtype="bf16", peak=peak, us=us)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="the figures' file")
    parser.add_argument("--list", action="store_true", help="name the calls, and make none")
    options = parser.parse_args(arguments)
    if options.list:
        print(*(f"{call.kernel}, {call.variant}, {call.shape}" for call in peak_calls()), sep="\n")
        return 0
    if not torch.cuda.is_available():
        print("bench/memory.py: this machine has no GPU", file=sys.stderr)
        return 2
    path = options.json or results.place()
    try:
        figures = results.read(path)
        need_same(figures, versions())
    except ValueError as error:
        parser.error(str(error))
    peaks = []
    for call in peak_calls():
        torch.cuda.empty_cache()
        try:
            peaks.append(measure(call))
        except Exception as error:  # a peer that is not installed, or refuses this shape
            if call.variant.startswith("bytes-first"):
                raise
            print(f"{call.kernel}, {call.variant} is left out: {str(error).splitlines()[0][:120]}", flush=True)
            continue
        outcome = f"{peaks[-1].peak / 1e9:,.3f} GB, {peaks[-1].us:,.1f} us" if peaks[-1].us else "out of memory"
        print(f"{call.kernel}, {call.variant}, {call.shape}: {outcome}", flush=True)
    results.store(msgspec.structs.replace(figures, peaks=peaks), path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
