"""What the calls of bench/cases/ moved from DRAM, L2 and L1, by the GPU's hardware counters (Nsight Compute).

    python bench/counters.py [--only KERNEL,...] [--json FILE]

--only: names of kernels; the counters of others stay.

A call may launch several kernels, whose bytes and times are added up; an empty kernel after each call marks its end.
The script runs itself under `ncu`, which flushes the caches before each kernel, and writes `counters`
(instruments/results.py) into the figures' file, which bench/run.py makes: by default bench/results/<gpu>.json. It needs
a GPU, ncu and the right to read counters.
"""

import argparse
import csv
import io
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import msgspec
import torch

from bench.cases import Call, counter_calls, names_in
from instruments import results
from instruments.backend import triton
from instruments.results import Counter

LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld"
FROM_L1 = "lts__t_sectors_srcunit_tex_op_read"
#: {Nsight Compute's name: field of Counter}
METRICS = {
    "dram__bytes_read.sum": "dram_read",
    "dram__bytes_write.sum": "dram_written",
    f"{LOADS}.sum": "l1_read",
    f"{LOADS}_lookup_hit.sum": "l1_hit",
    f"{FROM_L1}.sum": "l2_read",
    f"{FROM_L1}_lookup_hit.sum": "l2_hit",
    "sm__warps_active.avg.per_cycle_active": "warps",
    "launch__registers_per_thread": "registers",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "matrix_busy",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active": "special_busy",
    "sm__inst_issued.avg.pct_of_peak_sustained_active": "issue_busy",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "l2_busy",
    "gpu__time_duration.sum": "us",
}
#: Fields that are averaged over a call's kernels, weighted by time
AVERAGED = ("warps", "matrix_busy", "special_busy", "issue_busy", "l2_busy")
UNITS = {
    "%": 1,
    "sector": 32,
    "warp": 1,
    "register/thread": 1,
    "byte": 1,
    "Kbyte": 1e3,
    "Mbyte": 1e6,
    "Gbyte": 1e9,
    "nsecond": 1e-3,
    "usecond": 1,
    "msecond": 1e3,
    "ns": 1e-3,
    "us": 1,
    "ms": 1e3,
}


@triton.jit
def call_ends_kernel():
    pass


def selection(only: str) -> list[Call]:
    """The calls of the kernels with these names, separated by commas; every call for an empty text."""
    names = names_in(only)
    return [launch for launch in counter_calls() if not names or launch.kernel in names]


def launch_all(only: str):
    """Run each call once to compile, then once more for ncu to read."""
    call_ends_kernel[(1,)]()
    for launch in selection(only):
        call = launch.make()
        call()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        call()
        call_ends_kernel[(1,)]()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def calls_of(csv_text: str) -> list[dict]:
    """The fields of Counter for each call, from what ncu prints: a row for each launch and metric."""
    rows = csv.DictReader(io.StringIO("\n".join(line for line in csv_text.splitlines() if line.startswith('"'))))
    launches: dict = {}
    for row in rows:
        value = float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]]
        name, fields = launches.setdefault(int(row["ID"]), (row["Kernel Name"], {}))
        fields[METRICS[row["Metric Name"]]] = value
    calls, kernels = [], []
    for _, (name, fields) in sorted(launches.items()):
        if call_ends_kernel.__name__ in name:
            calls.append(together(kernels))
            kernels = []
        else:
            kernels.append(fields)
    return calls


def together(kernels: list[dict]) -> dict:
    """The fields of one call: bytes and times summed, AVERAGED over time, registers of the kernel that takes most."""
    total = {name: sum(kernel[name] for kernel in kernels) for name in METRICS.values()}
    for name in AVERAGED:
        total[name] = sum(kernel[name] * kernel["us"] for kernel in kernels) / total["us"]
    total["registers"] = max(kernel["registers"] for kernel in kernels)
    return total


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="kernels whose calls are profiled, separated by commas")
    parser.add_argument("--json", type=Path, help="the figures' file")
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.launch:
        launch_all(options.only)
        return 0
    if not torch.cuda.is_available() or not shutil.which("ncu"):
        print("bench/counters.py: needs a GPU and Nsight Compute (ncu)", file=sys.stderr)
        return 2
    path = options.json or results.place()
    try:
        figures = results.read(path)
    except ValueError as error:
        parser.error(str(error))
    runs = selection(options.only)
    if not runs:
        parser.error(
            f"--only: no call of {options.only!r} is profiled, expected some of: "
            + ", ".join(sorted({launch.kernel for launch in counter_calls()}))
        )
    process = subprocess.run(
        [
            "ncu",
            "--clock-control",
            "none",
            "--csv",
            "--profile-from-start",
            "off",
            "--metrics",
            ",".join(METRICS),
            sys.executable,
            __file__,
            "--launch",
            "--only",
            options.only,
        ],
        capture_output=True,
        text=True,
    )
    read = calls_of(process.stdout)
    if len(read) != len(runs):
        print(
            f"bench/counters.py: ncu gave {len(read)} calls, expected {len(runs)}\n{process.stdout[-2000:]}"
            f"{process.stderr[-2000:]}",
            file=sys.stderr,
        )
        return 1
    counters = [
        Counter(
            kernel=run.kernel,
            variant=run.variant,
            shape=run.shape,
            dtype="bf16",
            kernel_hash=run.kernel_hash,
            **{name: f.pop(name) for name in ("us", *AVERAGED)},
            **{name: int(value) for name, value in f.items()},
        )
        for run, f in zip(runs, read)
    ]
    again = {run.kernel for run in runs}
    others = [counter for counter in figures.counters if options.only and counter.kernel not in again]
    results.store(msgspec.structs.replace(figures, counters=others + counters), path)
    for c in counters:
        print(
            f"{c.kernel}, {c.variant}, {c.shape}: read {c.dram_read / 1e6:,.1f} MB, "
            f"written {c.dram_written / 1e6:,.1f} MB, {c.us:.1f} us"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
