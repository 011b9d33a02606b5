"""DRAM bytes that the launches of bench/cases/ really moved, read from the GPU's hardware counters with Nsight Compute.

    python bench/counters.py [--json FILE]

Runs itself under `ncu`, which flushes the caches before each kernel, and writes `counters` (instruments/results.py)
into the figures' file, which bench/run.py makes: bench/results/<gpu>.json unless given. Needs a GPU, ncu and the right
to read counters.
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

from bench.cases import counted
from instruments import results
from instruments.results import Counter

METRICS = {"dram__bytes_read.sum": "dram_read", "dram__bytes_write.sum": "dram_written", "gpu__time_duration.sum": "us"}
UNITS = {
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


def launch_all():
    """What runs under ncu: each call once to compile, then once more to be read."""
    for launch in counted():
        call = launch.make()
        for _ in range(2):
            call()
        torch.cuda.synchronize()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="the figures' file")
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.launch:
        launch_all()
        return 0
    if not torch.cuda.is_available() or not shutil.which("ncu"):
        print("bench/counters.py: needs a GPU and Nsight Compute (ncu)", file=sys.stderr)
        return 2
    path = options.json or results.place()
    try:
        figures = results.read(path)
    except ValueError as error:
        parser.error(str(error))
    runs = counted()
    kernels = "|".join(sorted({run.kernel for run in runs}))
    done = subprocess.run(
        [
            "ncu",
            "--clock-control",
            "none",
            "--csv",
            "--kernel-name",
            f"regex:({kernels})_.*_kernel",
            "--metrics",
            ",".join(METRICS),
            sys.executable,
            __file__,
            "--launch",
        ],
        capture_output=True,
        text=True,
    )
    rows = list(
        csv.DictReader(io.StringIO("\n".join(line for line in done.stdout.splitlines() if line.startswith('"'))))
    )
    launches: dict = {}
    for row in rows:
        value = float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]]
        launches.setdefault(int(row["ID"]), {})[METRICS[row["Metric Name"]]] = value
    read = [launches[i] for i in sorted(launches)][1::2]
    if len(read) != len(runs):
        print(
            f"bench/counters.py: ncu gave {len(launches)} launches, expected {2 * len(runs)}\n{done.stdout[-2000:]}"
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
            dram_read=int(f["dram_read"]),
            dram_written=int(f["dram_written"]),
            us=f["us"],
        )
        for run, f in zip(runs, read)
    ]
    results.store(msgspec.structs.replace(figures, counters=counters), path)
    for c in counters:
        print(
            f"{c.kernel}, {c.variant}, {c.shape}: read {c.dram_read / 1e6:,.1f} MB, "
            f"written {c.dram_written / 1e6:,.1f} MB, {c.us:.1f} us"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
