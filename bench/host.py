"""What a call costs the host: ours, torch's and Liger's, and the bare launches of our own kernels.

    python bench/host.py [--json FILE] [--only NAME,...] [--runs N]    on a GPU: measure, print, write `host` into FILE
    python bench/host.py --dry                                         anywhere: call everything once, write nothing

With --only, the other cases' records in FILE stay as they are.

Inputs are so small that the GPU is done before the host has launched the next kernel, so that the time per call of many
eager calls back to back is the host's: argument checks, plans, allocations and launches. "bare launches" are the
kernels of one call of ours launched by Triton alone, with arguments that are there already; "Triton's launch" is our
call with launches by Triton's own `JITFunction.run` instead of instruments/launcher.py.

Each figure is the median of RUNS runs of CALLS calls, the implementations of a case taking turns.
"""

import argparse
import statistics
import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import msgspec
import torch
import torch.nn.functional as F
from tqdm import tqdm

from bench.cases import names_in, random
from instruments import backend, results
from instruments.backend import device
from kernels.attention import attention_decode, flash_attention
from kernels.attention.hopper import flash_attention_hopper
from kernels.grouped_matmul import grouped_matmul
from kernels.low_precision import scaled_matmul, weight_only_matmul
from kernels.matmul import matmul
from kernels.moe import moe_layer
from kernels.norms import rmsnorm
from kernels.quantization.schemes import dequantize_reference, quantize_reference
from kernels.shared.device import is_hopper
from kernels.softmax import softmax

RUNS, CALLS = 15, 100
BY_TRITON = ("bare launches", "bytes-first, Triton's launch")
BF16 = torch.bfloat16
random = partial(random, dtype=BF16)


def cases() -> dict:
    """{name: {implementation: a call without arguments}}; the first implementation is ours."""
    x, weight = random(8, 1024), random(1024)
    a = random(256, 256)
    q, k, v = (random(1, 8, 256, 128) for _ in range(3))
    one, keys, values = random(1, 8, 1, 128), random(1, 8, 512, 128), random(1, 8, 512, 128)
    scaled = [quantize_reference(random(256, 256), "fp8_row") for _ in range(2)]
    int4, int8 = (quantize_reference(random(256, 1024), scheme) for scheme in ("int4_g128", "int8_row"))
    plain = dequantize_reference(int8).to(BF16)
    experts, tokens = random(4, 128, 256), random(64, 128)
    offsets = torch.arange(0, 65, 16, dtype=torch.int32, device=device())
    router, up, down = random(128, 8), random(8, 128, 256), random(8, 128, 128)

    def torch_scaled():
        first, second = scaled
        scales = first.scales, second.scales.t()
        return torch._scaled_mm(first.codes, second.codes.t(), *scales, out_dtype=BF16)

    def liger():
        from liger_kernel.ops.rms_norm import rms_norm_forward

        return lambda: rms_norm_forward(x, weight, 1e-6, 0.0, "llama", None)

    attention = {
        "bytes-first": lambda: flash_attention(q, k, v, causal=True),
        "torch": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    }
    if is_hopper(q.device):
        attention["bytes-first, hopper"] = lambda: flash_attention_hopper(q, k, v, causal=True)
    table = {
        "rmsnorm": {"bytes-first": lambda: rmsnorm(x, weight), "torch": lambda: F.rms_norm(x, (1024,), weight)},
        "softmax": {"bytes-first": lambda: softmax(x), "torch": lambda: torch.softmax(x, -1)},
        "matmul": {"bytes-first": lambda: matmul(a, a), "torch": lambda: a @ a},
        "flash_attention": attention,
        "attention_decode": {
            "bytes-first": lambda: attention_decode(one, keys, values),
            "torch": lambda: F.scaled_dot_product_attention(one, keys, values),
        },
        "scaled_matmul": {"bytes-first": lambda: scaled_matmul(*scaled), "torch": torch_scaled},
        "weight_only int4": {
            "bytes-first": lambda: weight_only_matmul(x, int4),
            "torch, bf16": lambda: F.linear(x, plain),
        },
        "weight_only int8": {
            "bytes-first": lambda: weight_only_matmul(x, int8),
            "torch, bf16": lambda: F.linear(x, plain),
        },
        "grouped_matmul": {
            "bytes-first": lambda: grouped_matmul(tokens, experts, offsets),
            "torch": lambda: torch._grouped_mm(tokens, experts, offs=offsets[1:]),
        },
        "moe_layer": {"bytes-first": lambda: moe_layer(tokens, router, up, down, 2)},
    }
    try:
        table["rmsnorm"]["liger"] = liger()
    except ImportError:
        print("liger_kernel is not installed: left out", file=sys.stderr)
    return table


def bare_launches(call):
    """A call without arguments that launches the kernels of `call` alone, by Triton, and how many there are."""
    records = []
    with backend.observe(records.append):
        call()
    launches = [(record.kernel[record.grid], record.args, record.options) for record in records]

    def launch():
        for run, args, options in launches:
            run(**args, **options)

    return launch, len(launches)


def microseconds(functions: dict, runs: int = RUNS) -> dict:
    """{name: [median, fastest, slowest]} microseconds a call, over so many runs of CALLS calls in turns."""
    times = {name: [] for name in functions}
    for run in range(runs + 1):  # the first one warms up
        for name, function in functions.items():
            with backend.triton_launches() if name in BY_TRITON else nullcontext():
                begun = time.perf_counter()
                for _ in range(CALLS):
                    function()
                seconds = time.perf_counter() - begun
            torch.cuda.synchronize()
            times[name] += [seconds / CALLS * 1e6] if run else []
    return {name: [statistics.median(each), min(each), max(each)] for name, each in times.items()}


def measure(name: str, functions: dict, runs: int = RUNS) -> dict:
    """The record of one case: launches per call, and {implementation: [median, fastest, slowest]} in microseconds."""
    ours = functions["bytes-first"]
    launch, launches = bare_launches(ours)
    functions = functions | dict(zip(BY_TRITON, (launch, ours)))
    return {"name": name, "launches": launches, "us": microseconds(functions, runs)}


def merged(before: list, measured: list) -> list:
    """The records of all cases, with those measured now in the place of the old ones."""
    return list(({record.name: record for record in before} | {record.name: record for record in measured}).values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="the figures' file; what else it holds stays")
    parser.add_argument("--only", default="", help="names of cases, with commas between them")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of which a figure is the median; {RUNS} unless given")
    parser.add_argument("--dry", action="store_true", help="call everything once")
    options = parser.parse_args()
    wanted = names_in(options.only)
    table = {name: functions for name, functions in cases().items() if not wanted or name in wanted}
    if options.dry:
        for functions in table.values():
            functions["bytes-first"]()
        return 0
    records = [measure(name, functions, options.runs) for name, functions in tqdm(table.items(), disable=None)]
    for record in records:
        figures = ", ".join(f"{name} {median:.1f}" for name, (median, *_) in record["us"].items())
        ratio = record["us"]["bytes-first"][0] / record["us"]["bare launches"][0]
        print(f"{record['name']} ({record['launches']} launches): {figures}; {ratio:.2f} times the bare launches")
    if options.json:
        before = results.read(options.json)
        host = merged(before.host, msgspec.convert(records, list[results.HostTime]))
        results.store(msgspec.structs.replace(before, host=host), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
