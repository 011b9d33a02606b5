"""What a layer of experts costs on several GPUs of this host: the exchange alone, whole steps, and what overlaps.

    python bench/expert_parallel.py [--ranks N] [--json FILE]    on N GPUs, by default on all there are
    python bench/expert_parallel.py --dry                        anywhere: tiny sizes, two processes; writes nothing

--json: where to write, by default bench/results/parallel/GPU-xN.json. Each part is written when it is done, so that a
part that fails or takes too long costs no other.

Parts: `same` compares the layer with the same on one GPU; `steps` times it with and without overlap; `all_to_all` times
the exchange by size of the message; `timelines` records the kernels of a step. Steps and timelines run once more where
NCCL may not send from GPU to GPU and goes through host memory: a slow link. Steps run once more from CUDA graphs, where
the host launches nothing. instruments/results.py describes the records.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import msgspec
import torch
import torch.distributed as dist

from bench.cases import moe as cases
from bench.run import versions
from instruments import gpus, results
from instruments.backend import device
from instruments.kernel_hash import kernel_hash
from instruments.ranks import on_ranks
from instruments.results import AllToAll, Parallel, Same, Span, Step, Timeline
from instruments.timing import summarize
from kernels.moe import parallel as layer
from kernels.moe.layer import experts, moe_layer
from kernels.moe.parallel import exchange, expert_parallel_layer, expert_parallel_traffic
from kernels.moe.permute import permute

MODELS = {"Mixtral": cases.MIXTRAL, "fine": cases.FINE}
DRY = {"Mixtral": (4, 2, 32, 40), "fine": (8, 3, 24, 16)}
TOKENS, FEW, DRY_TOKENS = cases.PREFILL, 64, 16  # of each rank
ROUTINGS = ("even", "zipf", "zipf, spread")  # spread: experts, most popular first, dealt to the ranks to and fro
CTAS = (0, 8, 16, 32, 64)  # thread blocks that NCCL may use, 0 for its choice
SPARED = ((0, 0), (0, 32), (116, 0), (116, 16), (124, 8), (100, 0))  # SMs for the matmuls, 0 for all; CTAS
IN_A_ROW = 8  # steps, one after the other, as the layers of a model are
MESSAGES = [1 << power for power in range(14, 30)]  # bytes that a rank sends to the others


def timed(call: Callable, dry: bool, rounds: int = 15, calls: int = 1, each: int = 1) -> dict:
    """Microseconds of a call on the slowest rank, median and quantiles over the rounds.

    Args:
        call: what is timed.
        dry: run it once.
        rounds: before each of which the ranks wait for each other.
        calls: back to back per round.
        each: how often a call does what is timed.
    """
    seconds = []
    warm_up, rounds = (0, 1) if dry else (3, rounds)
    for turn in range(warm_up + rounds):
        dist.barrier()
        if dry:
            start = time.perf_counter()
            call()
            elapsed = time.perf_counter() - start
        else:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            for _ in range(calls):
                call()
            end.record()
            end.synchronize()
            elapsed = start.elapsed_time(end) / 1e3 / calls / each
        if turn >= warm_up:
            seconds.append(elapsed)
    slowest = torch.tensor(seconds, dtype=torch.float32, device=device())
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    times = summarize(slowest.tolist())
    return {"us": times.median * 1e6, "us_p20": times.p20 * 1e6, "us_p80": times.p80 * 1e6}


def group_of(ctas: int, dry: bool):
    """A process group whose NCCL may use so many thread blocks, at high priority; the default group for 0."""
    if not ctas or dry:
        return None
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.max_ctas = ctas
    return dist.new_group(pg_options=options)


def all_to_all(dry: bool, graph: bool = False) -> list[AllToAll]:
    """Each rank sends the same number of bytes to every other one. graph: replay the calls from a CUDA graph."""
    ranks, records = dist.get_world_size(), []
    for ctas in (0,) if dry or graph else CTAS:
        group = group_of(ctas, dry)
        for nbytes in MESSAGES[:2] if dry else MESSAGES:
            part = nbytes // max(1, ranks - 1)
            sent = torch.ones(ranks * part, dtype=torch.uint8, device=device())
            received = torch.empty_like(sent)
            calls = max(1, min(50, (1 << 30) // nbytes))

            def call():
                dist.all_to_all_single(received, sent, group=group)

            def row():
                for _ in range(calls):
                    call()

            times = timed(from_graph(row, dry), dry, 10, each=calls) if graph else timed(call, dry, 10, calls)
            records.append(AllToAll(bytes=nbytes, ctas=ctas, graph=graph, **times, gbps=nbytes / times["us"] / 1e3))
    return records


def shape_of(model: str, tokens: int, dry: bool) -> dict:
    """The fields of a record that say how large a layer is."""
    sizes = (DRY if dry else MODELS)[model]
    return {"tokens": tokens, **dict(zip(("experts", "top_k", "hidden", "inter"), sizes))}


def logits_of(routing: str, ranks: int, tokens: int, experts: int) -> torch.Tensor:
    """The planned logits of all ranks' tokens, [ranks * tokens, experts]."""
    logits = cases.random_logits(ranks * tokens, experts, routing != "even")
    if routing == "zipf, spread":
        dealt = torch.arange(experts).view(-1, ranks)  # a column for each rank
        dealt[1::2] = dealt[1::2].flip(1)
        logits = logits[:, dealt.T.flatten()]
    return logits


def share(model: str, routing: str, tokens: int, dry: bool) -> tuple[list, list]:
    """([x, router, w_gate_up, w_down] of this rank, rows [ranks][experts] that each rank's tokens have)."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    count, top_k, hidden, inter = (DRY if dry else MODELS)[model]
    torch.manual_seed(rank)
    logits = logits_of(routing, ranks, tokens, count).split(tokens)
    choices = [each.sort(dim=1, descending=True, stable=True).indices[:, :top_k].flatten() for each in logits]
    tensors = [*cases.routed_inputs(logits[rank], hidden), *cases.weights(count // ranks, hidden, inter)]
    return tensors, [each.bincount(minlength=count).tolist() for each in choices]


def whole(*shape: int) -> torch.Tensor:
    """-1, 0 and 1 at random, in fp32."""
    return torch.randint(-1, 2, shape, device=device()).float()


def everyones(tensor: torch.Tensor) -> torch.Tensor:
    """The tensors of all ranks, one behind the other."""
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return torch.cat(parts)


def same(dry: bool) -> list[Same]:
    """The layer over ranks, and on each rank the same layer with all weights and tokens.

    Of whole numbers, every column of w_down takes one value alone, so that no sum is rounded.
    """
    ranks, records = dist.get_world_size(), []
    small = DRY["fine"] if dry else (16, 4, 256, 192)
    for data, dtype, sizes in (
        ("whole", torch.float32, small),
        ("normal", torch.float32, small),
        ("normal", cases.BF16, DRY["fine"] if dry else MODELS["fine"]),
    ):
        tokens, (count, top_k, hidden, inter) = 20 if dry else 1024, sizes
        torch.manual_seed(7)  # the router is the same on every rank
        router = cases.random(hidden, count, dtype=dtype) * hidden**-0.5
        torch.manual_seed(dist.get_rank())
        tensors = [cases.random(tokens, hidden, dtype=dtype), *cases.weights(count // ranks, hidden, inter, dtype)]
        if data == "whole":
            router = (router * hidden**0.5 * 8).round() / 64
            tensors[:2] = whole(*tensors[0].shape), whole(*tensors[1].shape) / 16
            tensors[2] *= torch.arange(hidden, device=device()) % inter == torch.arange(inter, device=device())[:, None]
        x, *weights = map(everyones, tensors)
        alone = moe_layer(x, router, *weights, top_k)
        fields = {"data": data, "dtype": gpus.dtype_name(dtype), "tokens": ranks * tokens, "experts": count}
        fields |= {"top_k": top_k, "hidden": hidden, "inter": inter}
        for chunks in (1, 2, count // ranks):
            y = everyones(expert_parallel_layer(tensors[0], router, *tensors[1:], top_k, chunks=chunks))
            error = ((y.double() - alone).norm() / alone.double().norm()).item()
            records.append(Same(**fields, chunks=chunks, equal=torch.equal(y, alone), error=error))
    return records


def parts_of(tensors: list, traffic) -> dict[str, Callable]:
    """The exchanges of a step without its products, and the products without the exchanges."""
    rank = dist.get_rank()
    x, _, w_gate_up, w_down = tensors
    row = x.shape[1] * x.itemsize
    sent = [nbytes // row for nbytes in traffic.dispatch[rank]]
    received = [nbytes[rank] // row for nbytes in traffic.dispatch]
    rows, arrived = x.new_ones(sum(sent), x.shape[1]), x.new_ones(sum(received), x.shape[1])
    expert = torch.arange(len(arrived), device=x.device, dtype=torch.int32) % len(w_down)  # any: as many rows in all
    sorting = permute(expert[:, None], len(w_down))

    def exchanges():
        for what, there, back in ((rows, sent, received), (arrived, received, sent)):
            exchange(what, there, back)[1]()

    return {"exchanges": exchanges, "products": lambda: experts(arrived, w_gate_up, w_down, sorting)}


def with_known_counts(call: Callable) -> Callable:
    """The same step with the counts that it would exchange known in advance, so that the host never waits."""
    exchange_counts, known_counts = layer.exchange_counts, []

    def listen(*arguments):
        known_counts.append(exchange_counts(*arguments))
        return known_counts[0]

    def with_counts(function: Callable):
        layer.exchange_counts = function
        try:
            call()
        finally:
            layer.exchange_counts = exchange_counts

    with_counts(listen)
    return lambda: with_counts(lambda *_: known_counts[0])


def from_graph(call: Callable, dry: bool) -> Callable:
    """A function that replays a call, captured once as a CUDA graph."""
    if dry:
        return call
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog is a thread of its own
        call()
    return graph.replay


def layers(dry: bool, selection: tuple, link: str = "NVLink"):
    """For each (model, routing, tokens): this rank's tensors, the exchange's traffic, the fields of all its records."""
    for model, routing, tokens in selection:
        tokens = DRY_TOKENS if dry else tokens
        tensors, counts = share(model, routing, tokens, dry)
        shape = shape_of(model, tokens, dry)
        traffic = expert_parallel_traffic(counts, shape["hidden"], cases.BF16)
        fields = {
            "model": model,
            "routing": routing,
            "link": link,
            **shape,
            "rows": traffic.rows,
            "sent": traffic.send_bytes,
        }
        yield tensors, traffic, fields


def graph_steps(dry: bool) -> list[Step]:
    """Whole steps from graphs, by chunks and SMs reserved for NCCL."""
    records = []
    selection = [("fine", routing, TOKENS) for routing in ROUTINGS] + [
        ("fine", "even", FEW),
        ("Mixtral", "even", TOKENS),
    ]
    for tensors, _, fields in layers(dry, tuple(selection)):
        for chunks in (1, 2, 4, 8):
            for sms in (0,) if chunks == 1 else (0, 116, 100):
                if chunks > len(tensors[3]):
                    continue
                options = {"chunks": chunks, "sms": sms or None}
                step = with_known_counts(lambda: expert_parallel_layer(*tensors, fields["top_k"], **options))
                times = timed(from_graph(step, dry), dry)
                records.append(Step(part="graph", chunks=chunks, sms=sms, ctas=0, **fields, **times))
    return records


def steps(dry: bool, link: str = "NVLink", selection: tuple = ()) -> list[Step]:
    """Whole steps by chunks, SMs reserved for NCCL and thread blocks that NCCL may use; some of them once more with
    the counts known; and the matmuls and the exchanges alone."""
    records, groups = [], {ctas: group_of(ctas, dry) for ctas in sorted({ctas for _, ctas in SPARED})}
    every = [(model, routing, TOKENS) for model in MODELS for routing in ROUTINGS] + [("fine", "even", FEW)]
    for tensors, traffic, fields in layers(dry, selection or tuple(every), link):
        for part, call in parts_of(tensors, traffic).items():
            records.append(Step(part=part, chunks=1, sms=0, ctas=0, **fields, **timed(call, dry)))
        for chunks in (1, 2, 4, 8):
            if chunks > len(tensors[3]):
                continue
            plans = SPARED if fields["routing"] == "even" else SPARED[:3]
            for sms, ctas in ((0, 0),) if dry or chunks == 1 or fields["tokens"] == FEW else plans:
                options = {"chunks": chunks, "sms": sms or None, "group": groups[ctas]}

                def step():
                    expert_parallel_layer(*tensors, fields["top_k"], **options)

                records.append(Step(part="whole", chunks=chunks, sms=sms, ctas=ctas, **fields, **timed(step, dry)))
                if (sms, ctas) == (0, 0):
                    known_counts = with_known_counts(step)
                    for part, call, calls in (
                        ("counts known", known_counts, 1),
                        ("whole, in a row", step, IN_A_ROW),
                        ("counts known, in a row", known_counts, IN_A_ROW),
                    ):
                        times = timed(call, dry, calls=1 if dry else calls)
                        records.append(Step(part=part, chunks=chunks, sms=0, ctas=0, **fields, **times))
    return records


def spans_of(trace: dict, chunks: int, counts: bool = True) -> list[Span]:
    """The kernels of one step in a trace of torch.profiler, without those up to the last all-reduce, a barrier's.
    counts: whether the ranks exchanged them."""
    events = [e for e in trace["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    events.sort(key=lambda event: event["ts"])
    barriers = [place for place, event in enumerate(events) if "AllReduce" in event["name"]]
    exchanges = [*["counts"] * counts, *(f"{way} {i + 1}" for way in ("dispatch", "combine") for i in range(chunks))]
    products = [f"{product} {i + 1}" for i in range(chunks) for product in ("gate and up", "down")]
    records = []
    for event in events[barriers[-1] + 1 if barriers else 0 :]:
        lane, name = "rows", event["name"].split("(")[0]
        if "nccl" in name:
            lane, name = "link", exchanges.pop(0) if exchanges else "exchange"
        elif "grouped_" in name:
            lane, name = "experts", products.pop(0) if products else "product"
        elif not name.endswith("_kernel") or "::" in name:
            name = "torch"
        blocks = math.prod(event.get("args", {}).get("grid", (0,)))
        records.append(Span(lane=lane, name=name, start=event["ts"], us=event["dur"], blocks=blocks))
    return records


def trace_ranks(call: Callable, dry: bool, chunks: int, counts: bool = True) -> list[list[Span]]:
    """The kernels of one call on every rank, by the clock of the host."""

    def step():
        dist.barrier()
        if not dry:
            torch.cuda.synchronize()
        call()
        if not dry:
            torch.cuda.synchronize()

    for _ in range(0 if dry else 3):
        step()
    activity = torch.profiler.ProfilerActivity  # the host's own work would be slower for being traced
    with torch.profiler.profile(activities=[activity.CPU if dry else activity.CUDA]) as profile:
        step()
    with tempfile.TemporaryDirectory() as folder:
        profile.export_chrome_trace(f"{folder}/trace.json")
        trace = json.loads(Path(folder, "trace.json").read_text())
    own, every = (trace.get("baseTimeNanoseconds", 0), spans_of(trace, chunks, counts)), [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    shift = [(base - every[0][0]) / 1e3 for base, _ in every]
    first = min((span.start + by for by, (_, spans) in zip(shift, every) for span in spans), default=0)
    return [
        [msgspec.structs.replace(span, start=round(span.start + by - first, 3)) for span in spans]
        for by, (_, spans) in zip(shift, every)
    ]


def timelines(dry: bool, link: str = "NVLink", selection: tuple = (), part: str = "whole") -> list[Timeline]:
    """One step for each (model, routing, chunks, sms)."""
    records, names = [], ("model", "routing", "link", "rows")
    for model, routing, chunks, sms in selection:
        for tensors, _, fields in layers(dry, ((model, routing, TOKENS),), link):
            options = {"chunks": chunks, "sms": sms or None}

            def step():
                expert_parallel_layer(*tensors, fields["top_k"], **options)

            call = step if part == "whole" else from_graph(with_known_counts(step), dry)
            ranks = trace_ranks(call, dry, chunks, part == "whole")
            common = {name: fields[name] for name in names}
            records.append(Timeline(part=part, chunks=chunks, sms=sms, ranks=ranks, **common))
    return records


def fastest_sms(records: list[Step], model: str, chunks: int) -> int:
    """SMs for the matmuls with which a step of so many chunks was fastest."""
    own = [s for s in records if (s.model, s.routing, s.part, s.chunks, s.ctas) == (model, "even", "whole", chunks, 0)]
    return min(own, key=lambda step: step.us).sms


def write(folder: str, part: str, records: list):
    """Write the records of a part into a file of the folder, on the first rank."""
    if dist.get_rank() == 0:
        Path(folder, f"{part}.json").write_bytes(msgspec.json.encode(records))
        print(f"{part}: {len(records)} records, {time.strftime('%X')}", flush=True)


def fast_link(dry: bool, folder: str):
    """Every part but those of `slow_link` and `graphs`, each written when it is done."""
    write(folder, "same", same(dry))
    records = steps(dry)
    write(folder, "steps", records)
    write(folder, "all_to_all", all_to_all(dry))
    best = torch.tensor([fastest_sms(records, model, 4 if not dry else 2) for model in MODELS], device=device())
    dist.broadcast(best, 0)  # times differ a little from rank to rank
    chunks = 2 if dry else 4
    selection = [
        (model, "even", *plan) for model, sms in zip(MODELS, best.tolist()) for plan in ((1, 0), (chunks, sms))
    ]
    selection += [("fine", routing, 1, 0) for routing in ROUTINGS[1:]]
    write(folder, "timelines", timelines(dry, selection=selection))


def graphs(dry: bool, folder: str):
    """Steps from graphs, in a run of their own: a step that cannot be captured costs no other part."""
    write(folder, "graph_all_to_all", all_to_all(dry, graph=True))
    write(folder, "graph_steps", graph_steps(dry))
    selection = [("fine", routing, 1, 0) for routing in ROUTINGS]
    selection += [("fine", "even", 2, 0)] if dry else [("fine", "even", 4, 0), ("fine", "even", 4, 100)]
    write(folder, "graph_timelines", timelines(dry, selection=tuple(selection), part="graph"))


def slow_link(dry: bool, folder: str):
    """Some steps and timelines, for a process with NCCL_P2P_DISABLE set."""
    link, plans = "host memory", ((1, 0), (2, 0)) if dry else ((1, 0), (4, 0), (2, 0), (2, 100))
    parts = {
        "slow_steps": lambda: steps(dry, link, (("fine", "even", TOKENS),)),
        "slow_timelines": lambda: timelines(dry, link, [("fine", "even", *plan) for plan in plans]),
    }
    for part, measure in parts.items():
        write(folder, part, measure())


def kernel_hashes() -> dict[str, str]:
    """{part: hash of the kernels that it may launch}; all_to_all launches NCCL's alone."""
    return {"same": kernel_hash(same), "steps": kernel_hash(steps, graph_steps), "timelines": kernel_hash(timelines)}


KINDS = {"same": Same, "steps": Step, "all_to_all": AllToAll, "timelines": Timeline}


def collect(folder: Path) -> dict[str, list]:
    """The records of every part that was written."""
    records = {}
    for name, kind in KINDS.items():
        files = [path for run in ("", "slow_", "graph_") if (path := folder / f"{run}{name}.json").exists()]
        records[name] = [record for path in files for record in msgspec.json.decode(path.read_bytes(), type=list[kind])]
    return records


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, help="GPUs to use")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--seconds", type=float, default=300, help="that each of the three runs may take")
    parser.add_argument("--dry", action="store_true", help="tiny sizes, on any machine; nothing is written")
    options = parser.parse_args(arguments)
    ranks = options.ranks or (2 if options.dry else torch.cuda.device_count())
    if not options.dry and not 2 <= ranks <= torch.cuda.device_count():
        print(f"bench/expert_parallel.py: {torch.cuda.device_count()} GPUs here, 2 or more are needed", file=sys.stderr)
        return 2
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        for function, variables in ((fast_link, {}), (slow_link, {"NCCL_P2P_DISABLE": "1"}), (graphs, {})):
            os.environ.update(variables)  # what the processes inherit
            try:
                on_ranks(function, [(options.dry, folder)] * ranks, seconds=options.seconds)
            except RuntimeError as error:
                bad.append(f"{function.__name__}: {error}")
            for name in variables:
                del os.environ[name]
        parts = collect(Path(folder))
    for complaint in bad:
        print(complaint, file=sys.stderr)
    for name, records in parts.items():
        for record in records if name != "timelines" else ():
            print(name, ", ".join(f"{k} {v}" for k, v in msgspec.structs.asdict(record).items()))
    if not options.dry:
        path = options.json or results.parallel_place(gpus.file_stem(*gpus.this_device()), ranks)
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        results.store(Parallel(**versions(), ranks=ranks, nccl=nccl, kernel_hashes=kernel_hashes(), **parts), path)
        print(f"wrote {path}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
