"""Kernels from 10 KB to 1 GB, matmuls from n = 128 to 16,384, and the matmuls of one layer of Llama 3 8B, on three
clocks: CUDA graph with a cold L2, CUDA graph with a warm L2, and eager.

    python bench/roofline.py [--json FILE] [--only PART,...]    on a GPU: check, measure, write `roofline` into FILE
    python bench/roofline.py --dry                              anywhere: tiny sizes, checked; writes nothing

--json: the figures' file, by default bench/results/<gpu>.json; what else it holds stays. --only: parts (memory, matmul,
layer); points of the other parts stay. instruments/results.py, Point, says what is recorded.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import msgspec
import torch
import torch.nn.functional as F
from tqdm import tqdm

from bench.cases import names_in, random
from bench.run import need_same, relative_error, versions
from instruments import ops, results, timing
from instruments.backend import device
from instruments.kernel_hash import kernel_hash
from instruments.results import Point
from instruments.traffic import Traffic
from kernels.elementwise.copy import copy, copy_traffic
from kernels.elementwise.pointwise import add, add_traffic
from kernels.matmul import matmul
from kernels.norms.rmsnorm import rmsnorm, rmsnorm_reference, rmsnorm_traffic
from kernels.shared.tolerances import LIMITS

BF16 = torch.bfloat16
HIDDEN = 4096  # of Llama 3 8B
#: Matmuls of a decoder layer of Llama 3 8B: {name: (outputs, inputs)}.
LAYER = {"qkv": (6144, HIDDEN), "out": (HIDDEN, HIDDEN), "gate_up": (28672, HIDDEN), "down": (HIDDEN, 14336)}
ELEMENTS = tuple(1 << power for power in (11, 13, 15, 17, 19, 21, 22, 23, 24, 25, 26, 28))
ROWS = (1, 4, 16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536)
SIDES = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
TOKENS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096)
BUDGET = 0.04  # seconds of GPU time for each implementation at one size
EAGER = {"calls": 200, "budget": 0.02}  # for each of five runs


@dataclass(frozen=True)
class Work:
    """One kernel at one size: functions of `arguments`, which are timed in turns and compared with `reference`."""

    part: str
    kernel: str
    shape: tuple[int, ...]
    traffic: Traffic
    arguments: Callable
    reference: Callable
    functions: dict[str, Callable]
    warm: bool = False


def memory(small: bool) -> Iterator[Work]:
    """Copies, additions and RMSNorms, rows of 4,096 elements or fewer."""
    for size in (1 << 11,) if small else ELEMENTS:
        shape = (max(1, size // HIDDEN), min(size, HIDDEN))
        yield Work(
            "memory",
            "copy",
            shape,
            copy_traffic(size, BF16),
            lambda shape=shape: (random(*shape, dtype=BF16),),
            lambda x: x.double(),
            {"bytes-first": copy, "torch": lambda x: x + 0},  # torch's clone becomes a copy node, another engine's
            warm=True,
        )
        yield Work(
            "memory",
            "add",
            shape,
            add_traffic(size, BF16),
            lambda shape=shape: (random(*shape, dtype=BF16), random(*shape, dtype=BF16)),
            lambda x, y: x.double() + y.double(),
            {"bytes-first": add, "torch": torch.add},
            warm=True,
        )
    for rows in (1,) if small else ROWS:
        yield Work(
            "memory",
            "rmsnorm",
            (rows, HIDDEN),
            rmsnorm_traffic(rows, HIDDEN, BF16),
            lambda rows=rows: (random(rows, HIDDEN, dtype=BF16), random(HIDDEN, dtype=BF16)),
            lambda x, weight: rmsnorm_reference(x.double(), weight.double(), 1e-6),
            {
                "bytes-first": lambda x, weight: rmsnorm(x, weight, 1e-6),
                "torch": lambda x, weight: F.rms_norm(x, (HIDDEN,), weight, 1e-6),
            },
            warm=True,
        )


def matmuls(small: bool) -> Iterator[Work]:
    """Square matmuls."""
    for n in (64,) if small else SIDES:
        yield Work(
            "matmul",
            "matmul",
            (n, n, n),
            ops.gemm(n, n, n, BF16),
            lambda n=n: (random(n, n, dtype=BF16), random(n, n, dtype=BF16)),
            lambda a, b: a.double() @ b.double(),
            {"bytes-first": matmul, "torch": torch.matmul},
            warm=n <= 4096,
        )


def layer(small: bool) -> Iterator[Work]:
    """The matmuls of one layer, with weights [outputs, inputs] as models store them; shape: M, N, K."""
    for name, (outputs, inputs) in LAYER.items():
        if small:
            outputs, inputs = outputs // 64, inputs // 64
        for tokens in (1,) if small else TOKENS:
            yield Work(
                "layer",
                name,
                (tokens, outputs, inputs),
                ops.gemm(tokens, outputs, inputs, BF16),
                lambda m=tokens, n=outputs, k=inputs: (random(m, k, dtype=BF16), random(n, k, dtype=BF16)),
                lambda x, weight: x.double() @ weight.double().t(),
                {"torch": F.linear},
            )


PARTS = {"memory": memory, "matmul": matmuls, "layer": layer}


def kernel_hashes() -> dict[tuple, str]:
    """{(kernel, implementation, shape): hash of the kernels that it may launch}."""
    works = [work for part in PARTS.values() for work in part(False)]
    return {(w.kernel, name, w.shape): kernel_hash(f) for w in works for name, f in w.functions.items()}


def clock() -> float:
    """The clock of the SMs in MHz, 0 where nvidia-ml-py, through which torch reads it, is not installed."""
    try:
        return float(torch.cuda.clock_rate())
    except ModuleNotFoundError:
        return 0.0


def measure(work: Work) -> list[Point]:
    """The points of one work, its implementations checked first and then timed in turns; unchecked ones raise."""
    args = work.arguments()
    expected = work.reference(*args)
    errors = {name: relative_error(function(*args), expected) for name, function in work.functions.items()}
    for name, error in errors.items():
        assert error <= LIMITS["bf16"], f"{work.kernel} {work.shape}, {name}: error {error:.1e}"
    del expected
    if device() == "cpu":
        return []
    torch.cuda.empty_cache()
    budget = BUDGET * len(errors)
    cold, mhz = timing.from_graphs(work.functions, args, work.traffic.bytes, budget), clock()
    warm = timing.from_graphs(work.functions, args, work.traffic.bytes, budget, warm=True) if work.warm else {}
    torch.cuda.empty_cache()
    points = []
    for name, function in work.functions.items():
        eager = [timing.as_called(function, args, **EAGER) * 1e6 for _ in range(5)]
        times = {"cold_us": cold[name]} | ({"warm_us": warm[name]} if warm else {})
        points.append(
            Point(
                part=work.part,
                kernel=work.kernel,
                implementation=name,
                shape=work.shape,
                dtype="bf16",
                bytes=work.traffic.bytes,
                flops=int(work.traffic.flops),
                error=errors[name],
                **{field: t.median * 1e6 for field, t in times.items()},
                **{f"{field}_p20": t.p20 * 1e6 for field, t in times.items()},
                **{f"{field}_p80": t.p80 * 1e6 for field, t in times.items()},
                eager_us=statistics.median(eager),
                eager_us_min=min(eager),
                eager_us_max=max(eager),
                clock_mhz=mhz,
                kernel_hash=kernel_hash(function),
            )
        )
    return points


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="the figures' file; what else it holds stays")
    parser.add_argument("--only", default="", help="parts, separated by commas: " + ", ".join(PARTS))
    parser.add_argument("--dry", action="store_true", help="tiny sizes, on any machine; nothing is written")
    options = parser.parse_args(arguments)
    parts = names_in(options.only) or tuple(PARTS)
    if strange := [name for name in parts if name not in PARTS]:
        parser.error(f"--only: no part {strange[0]!r}, expected some of {', '.join(PARTS)}")
    if not options.dry:
        if not torch.cuda.is_available():
            print("bench/roofline.py: this machine has no GPU to time on; --dry tries the kernels", file=sys.stderr)
            return 2
        path = options.json or results.place()
        try:
            figures = results.read(path)
            need_same(figures, versions())
        except ValueError as error:
            parser.error(str(error))
    torch.manual_seed(0)
    works = [work for part in parts for work in PARTS[part](options.dry)]
    points = []
    for work in tqdm(works, desc="roofline", unit="size", disable=None):
        points += measure(work)
        for point in points[len(points) - len(work.functions) :]:
            name = f"{point.kernel} {'x'.join(map(str, point.shape))}, {point.implementation}"
            tqdm.write(
                f"{name}: cold {point.cold_us:.2f} us, warm {point.warm_us:.2f}, eager {point.eager_us:.2f}, "
                f"{point.bytes / point.cold_us / 1e3:,.0f} GB/s, {point.flops / point.cold_us / 1e6:,.1f} TFLOP/s, "
                f"{point.clock_mhz:.0f} MHz"
            )
    if options.dry:
        return 0
    others = [point for point in figures.roofline if point.part not in parts]
    order = {part: place for place, part in enumerate(PARTS)}
    roofline = sorted(others + points, key=lambda point: order[point.part])
    results.store(msgspec.structs.replace(figures, roofline=roofline), path)
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
