"""Kernels that run back to back for seconds, on random numbers and on zeros: time, clock and power.

    python bench/sustained.py [--json FILE] [--only KERNEL,...]   on a GPU: check, measure, write `sustained` into FILE
    python bench/sustained.py --dry                               anywhere: tiny sizes, checked; writes nothing

--json: the figures' file, by default bench/results/<gpu>.json; what else it holds stays. --only: kernels by name, or
with an implementation ("matmul torch"); what was recorded of the others stays. Clock and power are read through
nvidia-ml-py (pip install nvidia-ml-py). instruments/results.py, Sustained, says what is recorded.
"""

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import msgspec
import torch
from tqdm import tqdm

from bench.cases import Case, names_in, random
from bench.cases.linear import gelu_case
from bench.cases.losses import LAYER, layer_case
from bench.run import first, need_same, relative_error, versions
from instruments import ops, results, timing
from instruments.backend import device
from instruments.kernel_hash import kernel_hash
from instruments.results import Sustained
from instruments.traffic import Traffic
from kernels.elementwise.copy import copy_traffic
from kernels.matmul import matmul
from kernels.shared.tolerances import LIMITS

BF16 = torch.bfloat16
SECONDS = 2.5  # each run; the first half does not count


@dataclass(frozen=True)
class Run:
    """One implementation at one shape: a function of `arguments`, compared with `reference`."""

    kernel: str
    implementation: str
    shape: tuple[int, ...]
    traffic: Traffic
    arguments: Callable
    reference: Callable
    function: Callable

    @property
    def name(self) -> str:
        return f"{self.kernel} {self.implementation}"


def _copy(implementation: str, function: Callable, rows: int, cols: int) -> Run:
    def arguments():
        return (random(rows, cols, dtype=BF16),)

    traffic = copy_traffic(rows * cols, BF16)
    return Run("copy", implementation, (rows, cols), traffic, arguments, lambda x: x.double(), function)


def _matmul(implementation: str, function: Callable, n: int) -> Run:
    def arguments():
        return random(n, n, dtype=BF16), random(n, n, dtype=BF16)

    traffic = ops.gemm(n, n, n, BF16)
    return Run("matmul", implementation, (n,) * 3, traffic, arguments, lambda a, b: a.double() @ b.double(), function)


def _of_case(case: Case, implementation: str) -> Run:
    function = case.implementations[implementation]()
    return Run(case.kernel, implementation, case.shape, case.traffic, case.arguments, case.reference, function)


def runs(small: bool) -> list[Run]:
    """What is run for seconds, at tiny sizes if `small`."""
    side, rows, n = (64, 8, 64) if small else (8192, 32768, 8192)
    last_layer = (8, 40, 64) if small else LAYER
    return [
        _copy("torch", lambda x: x + 0, rows, side),
        _matmul("torch", torch.matmul, n),
        _matmul("bytes-first", matmul, n),
        *(_of_case(gelu_case(n, n, n), name) for name in ("bytes-first", "cublaslt")),
        *(_of_case(layer_case(*last_layer), name) for name in ("bytes-first", "torch")),
    ]


def kernel_hashes() -> dict[tuple, str]:
    """{(kernel, implementation, shape): hash of the kernels that it may launch}."""
    return {(run.kernel, run.implementation, run.shape): kernel_hash(run.function) for run in runs(False)}


def measure(run: Run, data: str) -> Sustained | None:
    """The record of one run, checked first; None without a GPU."""
    args = run.arguments()
    if data == "zeros":
        args = tuple(torch.zeros_like(tensor) for tensor in args)
        error = first(run.function(*args)).abs().max().item()
    else:
        error = relative_error(run.function(*args), run.reference(*args))
    assert math.isfinite(error) and error <= LIMITS["bf16"], f"{run.name}, {data}: error {error:.1e}"
    if device() == "cpu":
        return None
    torch.cuda.empty_cache()
    measured = timing.sustained(run.function, args, run.traffic.bytes, SECONDS)
    torch.cuda.empty_cache()
    return Sustained(
        kernel=run.kernel,
        implementation=run.implementation,
        shape=run.shape,
        dtype="bf16",
        data=data,
        bytes=run.traffic.bytes,
        flops=int(run.traffic.flops),
        error=error,
        us=measured.timing.median * 1e6,
        us_p20=measured.timing.p20 * 1e6,
        us_p80=measured.timing.p80 * 1e6,
        clock_mhz=measured.clock_mhz,
        watts=measured.watts,
        kernel_hash=kernel_hash(run.function),
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="the figures' file; what else it holds stays")
    parser.add_argument("--only", default="", help="kernels, or kernels with an implementation, separated by commas")
    parser.add_argument("--dry", action="store_true", help="tiny sizes, on any machine; nothing is written")
    options = parser.parse_args(arguments)
    only = names_in(options.only)
    selection = [run for run in runs(options.dry) if not only or run.name in only or run.kernel in only]
    if not selection:
        parser.error(f"--only: expected some of {', '.join(run.name for run in runs(True))}")
    if not options.dry:
        if not torch.cuda.is_available():
            print("bench/sustained.py: this machine has no GPU to time on; --dry tries the kernels", file=sys.stderr)
            return 2
        path = options.json or results.place()
        try:
            figures = results.read(path)
            need_same(figures, versions())
        except ValueError as error:
            parser.error(str(error))
    torch.manual_seed(0)
    records = []
    for run in tqdm(selection, desc="sustained", unit="run", disable=None):
        for data in ("random", "zeros"):
            record = measure(run, data)
            if record:
                records.append(record)
                tqdm.write(
                    f"{run.name}, {data}: {record.us:,.1f} us, {record.bytes / record.us / 1e3:,.0f} GB/s, "
                    f"{record.flops / record.us / 1e6:,.1f} TFLOP/s, {record.clock_mhz:.0f} MHz, {record.watts:.0f} W"
                )
    if options.dry:
        return 0
    new = {(r.kernel, r.implementation, r.shape) for r in records}
    others = [r for r in figures.sustained if (r.kernel, r.implementation, r.shape) not in new]
    results.store(msgspec.structs.replace(figures, sustained=others + records), path)
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
