"""Every kernel on ragged sizes, to run under NVIDIA's memory checker on a GPU machine:

    compute-sanitizer --tool memcheck --error-exitcode 1 python bench/sanitize.py
    python bench/sanitize.py --list    anywhere: names what would run

--only NAME,...: runs whose name begins with one of these.

The calls stand in bench/cases/, a file per family of kernels. Each tensor has an allocation of its own (PyTorch's
caching is switched off), so that a byte past the end is noticed.
"""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import torch

from bench.cases import families, names_in
from instruments.gpus import dtype_name
from instruments.results import case_name

DTYPES = (torch.bfloat16, torch.float32)


def launches() -> dict[str, Callable]:
    """{"rmsnorm 3x5 bf16": a call that launches every kernel of rmsnorm.py at that size}, of every family."""
    return {
        case_name(name, size, dtype_name(dtype)): partial(family.sanitize, *size, dtype)
        for name, family in families().items()
        for dtype in DTYPES
        for size in family.RAGGED
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="name what would run, and run nothing")
    parser.add_argument("--only", default="", help="beginnings of the names to run, separated by commas")
    options = parser.parse_args()
    names = names_in(options.only) or ("",)
    runs = {name: launch for name, launch in launches().items() if name.startswith(names)}
    if not runs:
        parser.error(f"--only: nothing begins with {options.only!r}")
    if options.list:
        print(*runs, sep="\n")
        return 0
    if not torch.cuda.is_available():
        print("bench/sanitize.py: this machine has no GPU", file=sys.stderr)
        return 2
    for launch in runs.values():
        launch()
        torch.cuda.synchronize()
    print(f"every kernel ran: {len(runs)} ragged sizes and dtypes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
