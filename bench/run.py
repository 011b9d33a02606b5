"""Times every kernel of the course against every peer on this machine's GPU, and records the figures.

    python bench/run.py [--only NAME,...] [--json FILE]
    python bench/run.py --list    anywhere: names the cases, which stand in bench/cases/, a file per family of kernels

--only: cases whose name ("rmsnorm 8192x8192 bf16") begins with one of the names; the other records stay as they are.
--json: where to write; bench/results/<gpu>.json unless given. Peers that are not installed are left out and named.

The file: schema_version; device, driver, torch, triton, liger, date; copy_gbps (torch's copy, read plus written);
matmul_tflops; launch_us (host cost of an empty Triton kernel and of torch's add); absent_peers; cases, a list of {kernel,
shape, dtype, bytes (minimum traffic), flops, impl: {name: {graph_us, graph_us_p20, graph_us_p80, called_us, gbps, tflops, error}}};
counters, from bench/counters.py; machine, from bench/machine.py. gbps is minimum traffic over graph_us, tflops the same of FLOPs; error is norm-relative against fp64.

Exit status: 0; 1 where one of the course's kernels is slower than its record by more than NOISE, or wrong by more than
the limit for its dtype (the new figures are written all the same); 2 for wrong use or without a GPU.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import torch
from tqdm import tqdm

from bench import cases as bench_cases
from instruments import results, timing
from instruments.backend import tl, triton
from instruments.gpus import dtype_name
from kernels.tolerances import LIMITS

NOISE = 0.05  # runs on different machines of one kind differ by this much
SCHEMA_VERSION = 1


@triton.jit
def empty_kernel(x_ptr, BLOCK: tl.constexpr):
    pass


def relative_error(result, reference) -> float:
    """||result - reference|| / ||reference||; NaN where the result has one."""
    result = result[0] if isinstance(result, (tuple, list)) else result
    return ((result.double() - reference).norm() / reference.norm()).item()


def measure(case, absent: set) -> dict:
    """The record of one case: every implementation checked, then all timed in turns."""
    args = case.arguments()
    reference = case.reference(*args)
    functions, record = {}, {}
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
        functions[name] = function
        record[name] = {"error": relative_error(result, reference)}
        del result
    del reference
    torch.cuda.empty_cache()
    timings = timing.from_graphs(functions, args, case.traffic.bytes)
    for name, function in functions.items():
        t = timings[name]
        record[name].update(
            graph_us=t.median * 1e6,
            graph_us_p20=t.p20 * 1e6,
            graph_us_p80=t.p80 * 1e6,
            called_us=timing.as_called(function, args) * 1e6,
            gbps=case.traffic.bytes / t.median / 1e9,
            tflops=case.traffic.flops / t.median / 1e12,
        )
    return {
        "kernel": case.kernel,
        "shape": list(case.shape),
        "dtype": dtype_name(case.dtype),
        "bytes": case.traffic.bytes,
        "flops": case.traffic.flops,
        "impl": record,
    }


def versions() -> dict:
    """What the figures were measured with, and when."""
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True
    )
    return {
        "device": torch.cuda.get_device_name(),
        "driver": driver.stdout.strip(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": datetime.date.today().isoformat(),
    }


def machine() -> dict:
    """Device, versions, date, and the roofs everything else is compared with."""
    try:
        from importlib.metadata import version

        liger = version("liger-kernel")
    except Exception:
        liger = None
    x = torch.zeros(1024, device="cuda")
    empty_kernel[(1,)](x, BLOCK=1)
    return {
        "schema_version": SCHEMA_VERSION,
        **versions(),
        "liger": liger,
        "copy_gbps": timing.copy_roof() / 1e9,
        "matmul_tflops": {"bf16": timing.matmul_roof() / 1e12},
        "launch_us": {
            "triton_empty": timing.as_called(lambda x: empty_kernel[(1,)](x, BLOCK=1), (x,)) * 1e6,
            "torch_add": timing.as_called(torch.add, (x, x)) * 1e6,
        },
    }


def complaints(record: dict, before: dict | None) -> list:
    """Why the course's own implementations of a case do not pass: wrong, or slower than recorded."""
    found = []
    name = f"{record['kernel']} {'x'.join(map(str, record['shape']))} {record['dtype']}"
    for implementation, figures in record["impl"].items():
        if not implementation.startswith("bytes-first"):
            continue
        limit = LIMITS[record["dtype"]]
        if not figures["error"] <= limit:
            found.append(f"{name}, {implementation}: error {figures['error']:.1e}, limit {limit:.1e}")
        recorded = (before or {}).get("impl", {}).get(implementation)
        if recorded and figures["gbps"] < recorded["gbps"] * (1 - NOISE):
            found.append(f"{name}, {implementation}: {figures['gbps']:,.0f} GB/s, recorded {recorded['gbps']:,.0f}")
    return found


def figures_file() -> Path:
    """Where this machine's figures lie: bench/results/<gpu>.json."""
    return results.RESULTS / f"{torch.cuda.get_device_name().replace('NVIDIA ', '').split()[0].lower()}.json"


def write(path: Path, content: dict):
    """Write JSON so that an interrupt leaves either the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(temporary, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names that a case must begin with, separated by commas")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--list", action="store_true", help="name the cases, and time none")
    options = parser.parse_args()
    if options.list:
        print(*(case.name for case in bench_cases.cases()), sep="\n")
        return 0
    if not torch.cuda.is_available():
        print("bench/run.py: this machine has no GPU to time on", file=sys.stderr)
        return 2
    wanted = [n.strip() for n in options.only.split(",") if n.strip()]
    chosen = [c for c in bench_cases.cases() if not wanted or any(c.name.startswith(n) for n in wanted)]
    if not chosen:
        print(
            f"--only: no case begins with {options.only!r}, expected one of: "
            + ", ".join(c.name for c in bench_cases.cases()),
            file=sys.stderr,
        )
        return 2
    path = options.json or figures_file()
    old = json.loads(path.read_text()) if path.exists() else {}
    before = {(c["kernel"], tuple(c["shape"]), c["dtype"]): c for c in old.get("cases", [])}
    content = machine()
    absent, new, bad = set(), {}, []
    for case in tqdm(chosen, desc="bench", unit="case"):
        record = measure(case, absent)
        key = (case.kernel, case.shape, dtype_name(case.dtype))
        new[key] = record
        bad += complaints(record, before.get(key))
        torch.cuda.empty_cache()
        best = ", ".join(f"{n} {f['gbps']:,.0f} ({f['called_us']:.1f} us called)" for n, f in record["impl"].items())
        tqdm.write(f"{case.name}: {best}")
    merged = {**before, **new} if wanted else new
    content.update(
        absent_peers=sorted(absent),
        cases=list(merged.values()),
        counters=old.get("counters", []),
        machine=old.get("machine", {}),
    )
    write(path, content)
    print(f"wrote {path}" + (f"; not installed here: {', '.join(sorted(absent))}" if absent else ""))
    for complaint in bad:
        print(complaint, file=sys.stderr)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
