"""One decoder layer of Llama 3 8B, and its memory-bound parts: unfused, compiled, and with the course's fused kernels.

    python bench/decoder_layer.py [--json FILE] [--only NAME,...]   on a GPU: measure, write `layers` into the figures
    python bench/decoder_layer.py --dry                             anywhere: tiny sizes, checked; writes nothing

--only: runs by name ("decode 1", "decode 64", "prefill", "parts 1", "parts 4096"); the others stay.
--quick: without max-autotune, whose search takes most of the time.

Every implementation is checked against the layer in fp32. Then all are timed in turns, from CUDA graphs and eagerly,
while clock and power are sampled, and one call of each is traced, eagerly and from a graph. instruments/results.py
describes the records. They are stored after each run.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import msgspec
import torch
from tqdm import tqdm

from bench.cases import names_in
from bench.run import need_same, versions
from instruments import results, timing
from instruments.backend import device
from instruments.kernel_hash import kernel_hash
from instruments.results import DecoderLayer, Span
from kernels.decoder import layer as decoder
from kernels.decoder.layer import LLAMA_3_8B, LayerWeights, Model
from kernels.elementwise.rope import rope, rope_reference, rope_tables
from kernels.elementwise.swiglu import swiglu, swiglu_reference
from kernels.norms.add_rmsnorm import add_rmsnorm

BF16 = torch.bfloat16
TINY = Model("tiny", hidden=64, inter=96, heads=4, kv_heads=2, head_dim=16, layers=2)
BUDGET = 0.1  # seconds of GPU time per implementation, for the graphs
ROUNDS = 15  # of eager calls back to back
LIMIT = 0.02  # relative error against fp32, of a whole layer in bf16
COMPILED, SEARCHED = "torch.compile", "torch.compile, max-autotune"
SEARCH = "max-autotune-no-cudagraphs"

#: Runs of the whole layer: (batch, tokens per sequence, keys in the cache, whether max-autotune is tried).
LAYERS = {"decode 1": (1, 1, 4096, True), "decode 64": (64, 1, 4096, False), "prefill": (1, 4096, 4096, True)}
#: Runs of its parts: (batch, tokens per sequence, whether max-autotune is tried).
PARTS = {"parts 1": (1, 1, False), "parts 4096": (1, 4096, True)}


def compiled(function, search: bool) -> dict:
    """{name: the function compiled for these sizes alone}: by default, and after a search."""
    torch._dynamo.reset()
    names = {COMPILED: {}} | ({SEARCHED: {"mode": SEARCH}} if search else {})
    return {name: torch.compile(function, dynamic=False, **options) for name, options in names.items()}


class Sampler:
    """Samples the GPU's clock and power by nvidia-smi while it is entered; zeros where that does not run."""

    COMMAND = "nvidia-smi -i 0 --query-gpu=clocks.sm,power.draw --format=csv,noheader,nounits -lms 50"

    def __enter__(self):
        try:
            self.process = subprocess.Popen(self.COMMAND.split(), stdout=subprocess.PIPE, text=True)
        except OSError:
            self.process = None
        return self

    def __exit__(self, *_):
        self.samples = []
        if self.process:
            self.process.terminate()
            lines = self.process.communicate()[0].splitlines()
            pairs = (re.fullmatch(r"\s*([\d.]+),\s*([\d.]+)\s*", line) for line in lines)
            self.samples = [tuple(map(float, pair.groups())) for pair in pairs if pair]

    @property
    def medians(self) -> dict:
        """{'clock_mhz', 'watts'}."""
        clocks, watts = zip(*self.samples) if self.samples else ((0.0,), (0.0,))
        return {"clock_mhz": statistics.median(clocks), "watts": statistics.median(watts)}


def eager_times(functions: dict, args: tuple, calls: int) -> dict[str, dict]:
    """{name: microseconds per call of `calls` back to back}: until the host has launched all, until the GPU is done."""
    times = {name: ([], []) for name in functions}
    for turn in range(ROUNDS + 1):  # the first one warms up
        for name, function in functions.items():
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(calls):
                function(*args)
            launched = time.perf_counter()
            torch.cuda.synchronize()
            finished = time.perf_counter()
            if turn:
                times[name][0].append((launched - begun) / calls)
                times[name][1].append((finished - begun) / calls)
    records = {}
    for name, (host, eager) in times.items():
        host, eager = timing.summarize(host), timing.summarize(eager)
        records[name] = {
            "host_us": host.median * 1e6,
            "eager_us": eager.median * 1e6,
            "eager_us_p20": eager.p20 * 1e6,
            "eager_us_p80": eager.p80 * 1e6,
        }
    return records


#: Words in a kernel's name that say what it belongs to, tried in this order. A memset clears a matmul's workspace, and
#: the lean reduction adds up the splits of cuDNN's attention.
WORDS = {
    "elementwise": ("triton_poi",),
    "attention": ("flash", "fmha", "attention", "sdpa", "lean_reduction"),
    "matmul": ("gemm", "nvjet", "cutlass", "gemv", "splitk", "triton_tem", "cublas", "_mm", "memset"),
}


def lane(name: str) -> str:
    """What kind of kernel this is, by its name: matmul, attention or elementwise."""
    kinds = (kind for kind, words in WORDS.items() if any(word in name.lower() for word in words))
    return next(kinds, "elementwise")


def trace(call) -> list[Span]:
    """The kernels of one call, from the beginning of the first one."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        profile.export_chrome_trace(f"{folder}/trace.json")
        events = json.loads(Path(folder, "trace.json").read_text())["traceEvents"]
    events = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    events.sort(key=lambda event: event["ts"])
    return [
        Span(lane=lane(e["name"]), name=short(e["name"]), start=round(e["ts"] - events[0]["ts"], 2), us=e["dur"])
        for e in events
    ]


def short(name: str) -> str:
    """A kernel's name without its arguments and templates."""
    plain = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return plain.split("(")[0].split("<")[0].rsplit("::", 1)[-1][:60] + template_of(name)


def template_of(name: str) -> str:
    """What an elementwise kernel of torch computes, where its template says so."""
    for word in (
        "MulFunctor",
        "CUDAFunctor_add",
        "silu",
        "rsqrt",
        "MeanOps",
        "neg_kernel",
        "pow",
        "copy",
        "index_copy",
    ):
        if word in name and word not in name.split("<")[0]:
            return f" {word}"
    return ""


def relative_error(result, expected) -> float:
    """||result - expected|| / ||expected||, over all tensors of a result."""
    pairs = list(zip(result, expected, strict=True))
    wrong = sum((a.float() - b.float()).square().sum().item() for a, b in pairs)
    return (wrong / sum(b.float().square().sum().item() for _, b in pairs)) ** 0.5


def tuple_of(function):
    """The function, with its result as a tuple."""

    def call(*args):
        result = function(*args)
        return result if isinstance(result, tuple) else (result,)

    return call


def measure(functions: dict, args: tuple, expected: tuple, nbytes: int, dry: bool, **fields) -> list[DecoderLayer]:
    """The records of {name: function of args}."""
    errors = {}
    for name, function in functions.items():
        begun = time.perf_counter()
        errors[name] = relative_error(function(*args), expected)
        assert errors[name] < LIMIT, f"{fields['part']}, {fields['phase']}, {name}: error {errors[name]:.1e}"
        tqdm.write(f"{name}: error {errors[name]:.1e}, first call {time.perf_counter() - begun:.1f} s")
    if dry:
        return []
    with Sampler() as sampler:
        graphs = timing.from_graphs(functions, args, nbytes, BUDGET * len(functions))
        torch.cuda.empty_cache()
        eager = eager_times(functions, args, 5 if fields["queries"] > 1 and fields["part"] == "layer" else 20)
    records = []
    for name, function in functions.items():
        once = timing.Graphed(function, args, 1) if fields["part"] == "layer" else None
        records.append(
            DecoderLayer(
                **fields,
                impl=name,
                error=errors[name],
                us=graphs[name].median * 1e6,
                us_p20=graphs[name].p20 * 1e6,
                us_p80=graphs[name].p80 * 1e6,
                **eager[name],
                **sampler.medians,
                eager_spans=trace(partial(function, *args)),
                graph_spans=trace(once.graph.replay) if once else [],
                kernel_hash=kernel_hash(function) if name.startswith("bytes-first") else "",
            )
        )
        del once
        torch.cuda.empty_cache()
    return records


def whole_layer(batch: int, queries: int, keys: int, search: bool, dry: bool) -> list[DecoderLayer]:
    """The layer, for `queries` tokens of each sequence at the end of `keys`."""
    model = TINY if dry else LLAMA_3_8B
    if dry:
        batch, queries, keys = min(batch, 2), min(queries, 8), 8
    weights = LayerWeights.random(model, BF16, device())
    x, residual = (torch.randn(batch, queries, model.hidden, device=device()).to(BF16) for _ in range(2))
    positions = torch.arange(keys - queries, keys, device=device())
    cache = [torch.randn(batch, model.kv_heads, keys, model.head_dim, device=device()).to(BF16) for _ in range(2)]
    cos, sin = rope_tables(positions, model.head_dim, BF16)

    def of(layer, **options):
        return lambda x, residual: layer(x, residual, weights, cos, sin, *cache, positions, model, **options)

    precise = [t.float() for t in (x, residual, cos, sin, *cache)]
    expected = decoder.decoder_layer_reference(*precise[:2], weights.to(torch.float32), *precise[2:], positions, model)
    del precise
    torch.cuda.empty_cache()
    unfused = of(decoder.decoder_layer_reference)
    functions = {
        "eager": unfused,
        "bytes-first, 7 matmuls": of(decoder.decoder_layer, joined=False),
        "bytes-first": of(decoder.decoder_layer),
        **({} if dry else compiled(unfused, search)),
    }
    nbytes = 2 * (weights.qkv.numel() + weights.output.numel() + weights.gate_up.numel() + weights.down.numel())
    phase = "decode" if keys > queries else "prefill"
    fields = {"part": "layer", "phase": phase, "batch": batch, "queries": queries, "keys": keys}
    return measure(functions, (x, residual), expected, nbytes, dry, **fields)


def parts(batch: int, queries: int, search: bool, dry: bool) -> list[DecoderLayer]:
    """Add and norm, RoPE and SwiGLU, each alone."""
    model = TINY if dry else LLAMA_3_8B
    queries = min(queries, 8) if dry else queries
    tokens, records = batch * queries, []
    weight = torch.randn(model.hidden, device=device()).to(BF16)
    cos, sin = rope_tables(torch.arange(queries, device=device()), model.head_dim, BF16)

    def random(*shape):
        return torch.randn(*shape, device=device()).to(BF16)

    def add_norm(x, residual):
        residual = residual + x
        return decoder.rmsnorm_as_written(residual, weight), residual

    def q_or_k(heads):
        return random(batch, queries, heads, model.head_dim).transpose(1, 2)

    ops = decoder.fused_ops(model, batch, queries)
    table = {
        "add and norm": (
            add_norm,
            lambda x, residual: add_rmsnorm(x, residual, weight, decoder.EPS),
            (random(tokens, model.hidden), random(tokens, model.hidden)),
        ),
        "RoPE": (
            lambda q, k: rope_reference(q, k, cos, sin),
            lambda q, k: rope(q, k, cos, sin),
            (q_or_k(model.heads), q_or_k(model.kv_heads)),
        ),
        "SwiGLU": (swiglu_reference, swiglu, (random(tokens, model.inter), random(tokens, model.inter))),
    }
    for part, (unfused, fused, args) in table.items():
        functions = {"eager": tuple_of(unfused), "bytes-first": tuple_of(fused)}
        functions |= {} if dry else compiled(tuple_of(unfused), search)
        expected = tuple_of(unfused)(*(each.float() for each in args))
        fields = {"part": part, "phase": "decode" if queries == 1 else "prefill", "batch": batch}
        fields |= {"queries": queries, "keys": 0}
        records += measure(functions, args, expected, ops[part].bytes, dry, **fields)
    return records


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="the figures' file; what else it holds stays")
    parser.add_argument("--only", default="", help="runs, with commas between them: " + ", ".join((*LAYERS, *PARTS)))
    parser.add_argument("--quick", action="store_true", help="without max-autotune")
    parser.add_argument("--dry", action="store_true", help="tiny sizes, on any machine; nothing is written")
    options = parser.parse_args(arguments)
    wanted = names_in(options.only)
    if strange := [name for name in wanted if name not in {*LAYERS, *PARTS}]:
        parser.error(f"--only: no run {strange[0]!r}, expected some of {', '.join((*LAYERS, *PARTS))}")
    if not options.dry:
        if not torch.cuda.is_available():
            print("bench/decoder_layer.py: this machine has no GPU to time on; --dry tries it", file=sys.stderr)
            return 2
        path = options.json or results.place()
        try:
            need_same(results.read(path), versions())
        except ValueError as error:
            parser.error(str(error))
    torch.manual_seed(0)
    for name, (*sizes, search) in tqdm((LAYERS | PARTS).items(), desc="layer", unit="run", disable=None):
        if wanted and name not in wanted:
            continue
        run = whole_layer if name in LAYERS else parts
        with torch.no_grad():
            records = run(*sizes, search and not options.quick, options.dry)
        for r in records:
            tqdm.write(
                f"{name}, {r.part}, {r.impl}: graph {r.us:.1f} us, eager {r.eager_us:.1f}, host {r.host_us:.1f}, "
                f"{len(r.eager_spans)} kernels, {r.clock_mhz:.0f} MHz, {r.watts:.0f} W"
            )
        if records:
            figures = results.read(path)
            new = {(r.part, r.phase, r.batch, r.queries) for r in records}
            old = [r for r in figures.layers if (r.part, r.phase, r.batch, r.queries) not in new]
            results.store(msgspec.structs.replace(figures, layers=old + records), path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
