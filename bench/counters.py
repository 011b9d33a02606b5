"""What the calls of bench/cases/ moved from DRAM, L2 and L1, by the GPU's hardware counters (Nsight Compute).

    python bench/counters.py [--only KERNEL,...] [--json FILE]

--only: the kernels so called; what else was counted stays.

A call may launch several kernels, whose bytes and times are added up; an empty kernel behind each call says where it
ends. Runs itself under `ncu`, which flushes the caches before each kernel, and writes `counters`
(instruments/results.py) into the figures' file, which bench/run.py makes: bench/results/<gpu>.json unless given. Needs
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

from bench.cases import Counted, counted, wanted
from instruments import results
from instruments.backend import triton
from instruments.results import Counter

LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld"
FROM_L1 = "lts__t_sectors_srcunit_tex_op_read"
#: Nsight Compute's names, and the fields of Counter
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
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "l2_busy",
    "gpu__time_duration.sum": "us",
}
#: Fields that are averaged over the time of a call's kernels
AVERAGED = ("warps", "matrix_busy", "special_busy", "l2_busy")
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


def chosen(only: str) -> list[Counted]:
    """The calls of the kernels named, with commas between them; every call for none."""
    names = wanted(only)
    return [launch for launch in counted() if not names or launch.kernel in names]


def launch_all(only: str):
    """What runs under ncu: each call once to compile, then once more to be read."""
    call_ends_kernel[(1,)]()
    for launch in chosen(only):
        call = launch.make()
        call()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        call()
        call_ends_kernel[(1,)]()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def calls_of(csv_text: str) -> list[dict]:
    """Fields of Counter, a dictionary a call, out of what ncu prints: a row for each launch and metric."""
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
    """The fields of one call: bytes and times are added up, AVERAGED over time, registers the most of any kernel."""
    total = {name: sum(kernel[name] for kernel in kernels) for name in METRICS.values()}
    for name in AVERAGED:
        total[name] = sum(kernel[name] * kernel["us"] for kernel in kernels) / total["us"]
    total["registers"] = max(kernel["registers"] for kernel in kernels)
    return total


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="the kernels whose calls are counted, with commas between them")
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
    runs = chosen(options.only)
    if not runs:
        parser.error(
            f"--only: nothing is counted of {options.only!r}, expected kernels out of: "
            + ", ".join(sorted({launch.kernel for launch in counted()}))
        )
    done = subprocess.run(
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
    read = calls_of(done.stdout)
    if len(read) != len(runs):
        print(
            f"bench/counters.py: ncu gave {len(read)} calls, expected {len(runs)}\n{done.stdout[-2000:]}"
            f"{done.stderr[-2000:]}",
            file=sys.stderr,
        )
        return 1
    counters = [
        Counter(
            kernel=run.kernel,
            variant=run.variant,
            shape=run.shape,
            dtype="bf16",
            **{name: f.pop(name) for name in ("us", *AVERAGED)},
            **{name: int(value) for name, value in f.items()},
        )
        for run, f in zip(runs, read)
    ]
    again = {run.kernel for run in runs}
    kept = [counter for counter in figures.counters if options.only and counter.kernel not in again]
    results.store(msgspec.structs.replace(figures, counters=kept + counters), path)
    for c in counters:
        print(
            f"{c.kernel}, {c.variant}, {c.shape}: read {c.dram_read / 1e6:,.1f} MB, "
            f"written {c.dram_written / 1e6:,.1f} MB, {c.us:.1f} us"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
