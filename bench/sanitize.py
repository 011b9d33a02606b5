"""Every kernel on ragged sizes, to run under NVIDIA's memory checker on a GPU machine:

    compute-sanitizer --tool memcheck --error-exitcode 1 python bench/sanitize.py
    python bench/sanitize.py --list    anywhere: names what would run

--only NAME,...: what begins with one of these names.

What runs stands in bench/cases/, a file per family of kernels. Tensors lie in one allocation each (PyTorch's caching is
switched off), so that a byte past the end is noticed.
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

from bench.cases import families, wanted
from instruments.gpus import dtype_name
from instruments.results import case_name

DTYPES = (torch.bfloat16, torch.float32)


def launches() -> dict[str, Callable]:
    """{"rmsnorm 3x5 bf16": a call that launches every kernel of kernels/rmsnorm.py at that size}, of every family."""
    return {
        case_name(name, size, dtype_name(dtype)): partial(family.sanitize, *size, dtype)
        for name, family in families().items()
        for dtype in DTYPES
        for size in family.RAGGED
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="name what would run, and run nothing")
    parser.add_argument("--only", default="", help="beginnings of the names to run, with commas between them")
    options = parser.parse_args()
    names = wanted(options.only) or ("",)
    found = {name: launch for name, launch in launches().items() if name.startswith(names)}
    if not found:
        parser.error(f"--only: nothing begins with {options.only!r}")
    if options.list:
        print(*found, sep="\n")
        return 0
    if not torch.cuda.is_available():
        print("bench/sanitize.py: this machine has no GPU", file=sys.stderr)
        return 2
    for launch in found.values():
        launch()
        torch.cuda.synchronize()
    print(f"every kernel ran: {len(found)} ragged sizes and dtypes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
