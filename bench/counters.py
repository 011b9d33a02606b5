"""DRAM bytes that kernels really moved, read from the GPU's hardware counters with Nsight Compute.

    python bench/counters.py [--json FILE]

Runs itself under `ncu`, which flushes the caches before each kernel, and writes the list `counters` into the figures'
file: {kernel, variant, shape, dtype, dram_read, dram_written, us}. Needs a GPU, ncu and the right to read counters.
"""

import argparse
import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import torch

from instruments import results

METRICS = {"dram__bytes_read.sum": "dram_read", "dram__bytes_write.sum": "dram_written", "gpu__time_duration.sum": "us"}
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "nsecond": 1e-3, "usecond": 1, "msecond": 1e3, "ns": 1e-3,
         "us": 1, "ms": 1e3}
VARIANTS = ("two_pass", "streaming", "resident")
SHAPES = ((1024, 8192), (65536, 8192))


def runs():
    """(variant, shape) of each profiled launch, in order."""
    return [(variant, shape) for shape in SHAPES for variant in VARIANTS]


def launch_all():
    """What runs under ncu: each variant once to compile, then once more to be read."""
    from kernels.rmsnorm import rmsnorm

    for variant, (rows, cols) in runs():
        x, weight = (torch.randn(*s, device="cuda").to(torch.bfloat16) for s in ((rows, cols), (cols, )))
        for _ in range(2):
            rmsnorm(x, weight, path=variant)
        torch.cuda.synchronize()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=results.RESULTS / "h200.json")
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.launch:
        launch_all()
        return 0
    if not torch.cuda.is_available() or not shutil.which("ncu"):
        print("bench/counters.py: needs a GPU and Nsight Compute (ncu)", file=sys.stderr)
        return 2
    done = subprocess.run(["ncu", "--clock-control", "none", "--csv", "--kernel-name", "regex:rmsnorm_.*_kernel", "--metrics",
                           ",".join(METRICS), sys.executable, __file__, "--launch"], capture_output=True, text=True)
    rows = list(csv.DictReader(io.StringIO("\n".join(l for l in done.stdout.splitlines() if l.startswith('"')))))
    launches: dict = {}
    for row in rows:
        value = float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]]
        launches.setdefault(int(row["ID"]), {})[METRICS[row["Metric Name"]]] = value
    read = [launches[i] for i in sorted(launches)][1::2]
    if len(read) != len(runs()):
        print(f"bench/counters.py: ncu gave {len(launches)} launches, expected {2 * len(runs())}\n{done.stdout[-2000:]}"
              f"{done.stderr[-2000:]}", file=sys.stderr)
        return 1
    counters = [{"kernel": "rmsnorm", "variant": variant, "shape": list(shape), "dtype": "bf16",
                 "dram_read": int(f["dram_read"]), "dram_written": int(f["dram_written"]), "us": f["us"]}
                for (variant, shape), f in zip(runs(), read)]
    content = json.loads(options.json.read_text())
    content["counters"] = counters
    options.json.write_text(json.dumps(content, indent=1) + "\n")
    for c in counters:
        print(f"{c['variant']:9} {c['shape']}: read {c['dram_read'] / 1e6:,.1f} MB, written {c['dram_written'] / 1e6:,.1f} MB, "
              f"{c['us']:.1f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
