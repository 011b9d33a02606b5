"""Times every kernel of the course against every peer on this machine's GPU, and records the figures.

    python bench/run.py [--only NAME,...] [--json FILE]
    python bench/run.py --list    anywhere: names the cases, which stand in bench/cases/, a file per family of kernels

--only: cases whose name ("rmsnorm 8192x8192 bf16") begins with one of the names. What else the file holds stays as it
is, copy bandwidth and matmul throughput included. It must have been measured with the same versions, or nothing runs.
--json: where to write, by default bench/results/<gpu>.json. Peers that are not installed are left out and named.

instruments/results.py describes the records. The figures of the other scripts in that file stay.

Exit status: 0; 1 where one of the course's kernels is slower than its record by more than NOISE, or its error is above
the limit for its dtype (the new figures are written all the same); 2 for wrong use or without a GPU.
"""

import argparse
import datetime
import math
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import msgspec
import torch
from tqdm import tqdm

from bench import cases as bench_cases
from instruments import results, timing
from instruments.backend import tl, triton
from instruments.gpus import dtype_name
from instruments.results import Case, Figures, Launches, Timed
from kernels.shared.tolerances import LIMITS

NOISE = 0.05  # runs on different machines of one kind differ by up to this much


@triton.jit
def empty_kernel(x_ptr, BLOCK: tl.constexpr):
    pass


def first(result) -> torch.Tensor:
    """The tensor that is checked: of several, the first."""
    return result[0] if isinstance(result, (tuple, list)) else result


def relative_error(result, reference) -> float:
    """||result - reference|| / ||reference||; NaN where the result has one."""
    return ((first(result).double() - reference).norm() / reference.norm()).item()


def measure(case, absent: set) -> Case:
    """The record of one of bench/cases/: every implementation is checked, then all are timed in turns."""
    args = case.arguments()
    reference = case.reference(*args)
    functions, errors = {}, {}
    for name, factory in case.implementations.items():
        try:
            function = factory()
            result = function(*args)
        except ImportError:
            absent.add(name)
            continue
        except Exception as error:  # a peer that refuses this shape
            print(f"{case.name}: {name} refuses: {str(error).splitlines()[0][:120]}", file=sys.stderr)
            continue
        error = relative_error(result, case.others[name](*args) if name in case.others else reference)
        del result
        absent.discard(name)
        if math.isfinite(error):
            functions[name], errors[name] = function, error
        else:
            print(f"{case.name}: {name} is left out, its error is {error}", file=sys.stderr)
    del reference
    torch.cuda.empty_cache()
    timings = timing.from_graphs(functions, args, case.traffic.bytes)
    called = timing.as_called_in_turns(functions, args)
    return Case(
        kernel=case.kernel,
        shape=case.shape,
        dtype=dtype_name(case.dtype),
        bytes=case.traffic.bytes,
        flops=case.traffic.flops,
        impl={
            name: Timed(
                error=errors[name],
                graph_us=timings[name].median * 1e6,
                graph_us_p20=timings[name].p20 * 1e6,
                graph_us_p80=timings[name].p80 * 1e6,
                called_us=called[name] * 1e6,
                gbps=case.traffic.bytes / timings[name].median / 1e9,
                tflops=case.traffic.flops / timings[name].median / 1e12,
                calls=timings[name].calls,
            )
            for name, function in functions.items()
        },
        kernel_hash=case.kernel_hash,
    )


def versions() -> dict:
    """What the figures were measured with, and when."""
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True
    )
    return {
        "device": torch.cuda.get_device_name(),
        "driver": driver.stdout.split()[0],  # a line for each GPU
        "torch": str(torch.__version__),  # of a class of its own
        "triton": triton.__version__,
        "date": datetime.date.today().isoformat(),
    }


def liger() -> str | None:
    """The version of Liger's kernels; None where they are not installed."""
    try:
        return metadata.version("liger-kernel")
    except metadata.PackageNotFoundError:
        return None


def roofs() -> dict:
    """Copy bandwidth, matmul throughput and launch overhead of this machine, as fields of Figures."""
    x = torch.zeros(1024, device="cuda")
    empty_kernel[(1,)](x, BLOCK=1)
    return {
        "copy_gbps": timing.copy_roof() / 1e9,
        "matmul_tflops": {"bf16": timing.matmul_roof() / 1e12},
        "launch_us": Launches(
            triton_empty=timing.as_called(lambda x: empty_kernel[(1,)](x, BLOCK=1), (x,)) * 1e6,
            torch_add=timing.as_called(torch.add, (x, x)) * 1e6,
        ),
    }


def need_same(recorded, here: dict):
    """Raise ValueError unless the recorded figures were measured on this GPU with these versions."""
    for name in ("device", "torch", "triton", "liger"):
        if name in here and (was := getattr(recorded, name)) != here[name]:
            raise ValueError(
                f"--only: {name} is {here[name]} here and {was} in the recorded figures; figures of two versions are "
                "not mixed in one file: measure all cases, or write to another file"
            )


def complaints(case: Case, expected: list[str], before: Case | None) -> list:
    """Why the course's own implementations of a case do not pass: no figures, wrong, or slower than recorded.

    Their names begin with bytes-first. In a study of variants all implementations are the course's own.
    """
    own = [name for name in expected if name.startswith("bytes-first")] or expected
    faults = [f"{case.name}: {name} has no figures" for name in own if name not in case.impl]
    for name in own:
        if (timed := case.impl.get(name)) is None:
            continue
        limit = LIMITS[case.dtype]
        if not timed.error <= limit:
            faults.append(f"{case.name}, {name}: error {timed.error:.1e}, limit {limit:.1e}")
        if before and name in before.impl and timed.gbps < before.gbps(name) * (1 - NOISE):
            faults.append(f"{case.name}, {name}: {timed.gbps:,.0f} GB/s, recorded {before.gbps(name):,.0f}")
    return faults


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names that a case must begin with, separated by commas")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--list", action="store_true", help="name the cases, and time none")
    options = parser.parse_args(arguments)
    if options.list:
        print(*(case.name for case in bench_cases.cases()), sep="\n")
        return 0
    if not torch.cuda.is_available():
        print("bench/run.py: this machine has no GPU to time on", file=sys.stderr)
        return 2
    names = bench_cases.names_in(options.only)
    selection = [c for c in bench_cases.cases() if not names or c.name.startswith(names)]
    if not selection:
        parser.error(
            f"--only: no case begins with {options.only!r}, expected one of: "
            + ", ".join(c.name for c in bench_cases.cases())
        )
    path = options.json or results.place()
    here = {**versions(), "liger": liger()}
    try:
        old = results.read(path) if path.exists() else None
        if old and names:
            need_same(old, here)
    except ValueError as error:
        parser.error(str(error))
    before = {case.name: case for case in old.cases} if old else {}
    if old and names:
        figures, cases = msgspec.structs.replace(old, date=here["date"]), dict(before)
    else:
        roofs_here = roofs()
        figures, cases = Figures(**here, **roofs_here), {}
        if old:
            new = (*here, *roofs_here, "cases", "absent_peers")
            others = {name: getattr(old, name) for name in Figures.__struct_fields__ if name not in new}
            figures = msgspec.structs.replace(figures, **others)
    absent, bad = set(figures.absent_peers), []
    for case in tqdm(selection, desc="bench", unit="case"):
        record = measure(case, absent)
        cases[record.name] = record
        bad += complaints(record, list(case.implementations), before.get(record.name))
        torch.cuda.empty_cache()
        best = ", ".join(f"{n} {t.gbps:,.0f} ({t.called_us:.1f} us called)" for n, t in record.impl.items())
        tqdm.write(f"{case.name}: {best}")
    order = {case.name: place for place, case in enumerate(bench_cases.cases())}
    ordered = sorted(cases.values(), key=lambda case: order.get(case.name, len(order)))
    results.store(msgspec.structs.replace(figures, absent_peers=sorted(absent), cases=ordered), path)
    print(f"wrote {path}" + (f"; not installed here: {', '.join(sorted(absent))}" if absent else ""))
    for complaint in bad:
        print(complaint, file=sys.stderr)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
