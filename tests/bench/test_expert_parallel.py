"""bench/expert_parallel.py away from its GPUs: what is planned, and what is made of a trace."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch

from bench import expert_parallel as bench
from instruments import results
from instruments.results import AllToAll, Parallel, Span, Timeline

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "expert_parallel.py"


def event(name, ts, cat="kernel"):
    return {"cat": cat, "name": name, "ts": ts, "dur": 2.0, "args": {"grid": [4, 3, 1]}}


def test_a_trace_becomes_spans():
    names = [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",  # the barrier before the step
        "route_kernel",
        "void at::native::vectorized_elementwise_kernel<4>(int)",
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        "grouped_hopper_kernel",
        "grouped_matmul_persistent_kernel",
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    ]
    events = [event(name, ts) for ts, name in enumerate(names)]
    trace = {"traceEvents": [event("cudaLaunchKernel", 0, "cuda_runtime"), {"ph": "M"}, *reversed(events)]}
    spans = bench.spans_of(trace, chunks=1)
    assert [(span.lane, span.name) for span in spans] == [
        ("rows", "route_kernel"),
        ("rows", "torch"),
        ("link", "counts"),
        ("link", "dispatch 1"),
        ("experts", "gate and up 1"),
        ("experts", "down 1"),
        ("link", "combine 1"),
    ]
    assert [span.start for span in spans] == list(range(1, 8)) and (spans[0].us, spans[0].blocks) == (2, 12)
    told = bench.spans_of(trace, chunks=2, counts=False)
    assert [span.name for span in told if span.lane == "link"] == ["dispatch 1", "dispatch 2", "combine 1"]


def test_a_step_is_told_its_counts(monkeypatch):
    def exchange_counts(*arguments):
        asked.append(arguments)
        return "planned"

    asked, got = [], []
    monkeypatch.setattr(bench.layer, "exchange_counts", exchange_counts)
    call = bench.with_known_counts(lambda: got.append(bench.layer.exchange_counts(1, 2)))
    call()
    assert got == ["planned"] * 2 and asked == [(1, 2)] and bench.layer.exchange_counts is exchange_counts


def test_popular_experts_are_spread_over_the_ranks():
    def rows(routing):
        chosen = bench.logits_of(routing, 2, 2000, 64).float().topk(6).indices
        return (chosen < 32).double().mean().item()  # the share of the first rank

    assert abs(rows("even") - 0.5) < 0.02 and rows("zipf") > 0.7 and abs(rows("zipf, spread") - 0.5) < 0.05


def test_parts_are_collected_as_far_as_they_came(tmp_path):
    record = AllToAll(bytes=1, ctas=0, us=1.0, us_p20=1.0, us_p80=1.0, gbps=1.0)
    (tmp_path / "all_to_all.json").write_bytes(msgspec.json.encode([record]))
    line = Timeline(model="fine", routing="even", link="NVLink", chunks=1, sms=0, rows=(1, 2), ranks=[[], []])
    for name, link in (("timelines", "NVLink"), ("slow_timelines", "host memory")):
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode([msgspec.structs.replace(line, link=link)]))
    found = bench.collect(tmp_path)
    assert found["all_to_all"] == [record] and found["steps"] == found["same"] == []
    assert [timeline.link for timeline in found["timelines"]] == ["NVLink", "host memory"]


def test_records_are_read_by_their_fields(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    span = Span(lane="link", name="counts", start=0.0, us=1.5)
    line = Timeline(model="fine", routing="even", link="NVLink", chunks=2, sms=0, rows=(1, 2), ranks=[[span], []])
    versions = dict.fromkeys(("device", "driver", "torch", "triton", "nccl", "date"), "1")
    results.store(Parallel(**versions, ranks=2, timelines=[line]), results.parallel_place("toy", 2))
    read = results.read(results.parallel_place("toy", 2), Parallel)
    assert read.timeline(model="fine", chunks=2) == line and "2 1, torch 1" in read.provenance
    with pytest.raises(ValueError, match=r"chunks, link: no timeline with \(4, 'NVLink'\), expected one of: .*2, 'NV"):
        read.timeline(chunks=4, link="NVLink")
    with pytest.raises(ValueError, match="no such file; bench/expert_parallel.py makes it"):
        results.read(results.parallel_place("toy", 4), Parallel)


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="there are GPUs to time on")
def test_one_gpu_is_too_few():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 2 and "2 or more are needed" in done.stderr


def test_every_record_of_several_gpus_is_what_would_be_written():
    for path in (results.RESULTS / "parallel").glob("*.json"):
        assert results.encode(results.read(path, Parallel)) == path.read_bytes()
