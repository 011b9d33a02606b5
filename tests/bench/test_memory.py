"""bench/memory.py on a GPU of straw: 100 bytes are taken before the call, and memory ends at 1,000."""

import pytest
import torch

from bench import memory
from bench.cases import Call, peak_calls
from instruments import results
from tests.figures import figures


class Event:
    def __init__(self, enable_timing):
        pass

    def record(self):
        pass

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return 2.0


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    path = tmp_path / "h200.json"
    results.store(figures(), path)
    taken = []
    fakes = {
        "is_available": lambda: True,
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "memory_allocated": lambda: 100,
        "reset_peak_memory_stats": taken.clear,
        "max_memory_allocated": lambda: max(taken),
        "Event": Event,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(memory, "versions", lambda: {"device": "NVIDIA H200", "torch": "2.11.0", "triton": "3.6.0"})

    def call(size):
        def run():
            if size > 1000:
                raise torch.OutOfMemoryError
            taken.append(size)

        return Call("attention", "eager ops", (size,), lambda: run)

    monkeypatch.setattr(memory, "peak_calls", lambda: [call(400), call(2000)])
    return path


def test_peaks_are_recorded_until_memory_ends(gpu, capsys):
    assert memory.main(["--json", str(gpu)]) == 0
    after = results.read(gpu)
    assert (after.peak("attention", "eager ops", 400).peak, after.peak("attention", "eager ops", 400).us) == (300, 2000)
    assert (after.peaks[1].peak, after.peaks[1].us) == (0, 0) and "out of memory" in capsys.readouterr().out
    assert after.counters == figures().counters
    with pytest.raises(ValueError, match=r"no peak of attention, torch, \(400,\), expected one of: attention, eager"):
        after.peak("attention", "torch", 400)


def test_a_peer_that_is_not_installed_is_left_out(gpu, monkeypatch, capsys):
    def missing():
        raise ImportError("no such package")

    monkeypatch.setattr(memory, "peak_calls", lambda: [Call("loss", "quack", (8,), missing)])
    assert memory.main(["--json", str(gpu)]) == 0
    assert results.read(gpu).peaks == [] and "loss, quack is left out: no such package" in capsys.readouterr().out
    monkeypatch.setattr(memory, "peak_calls", lambda: [Call("loss", "bytes-first, chunks", (8,), missing)])
    with pytest.raises(ImportError):
        memory.main(["--json", str(gpu)])


def test_calls_are_listed_without_a_gpu(capsys):
    assert memory.main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{call.kernel}, {call.variant}, {call.shape}" for call in peak_calls()
    ]


def test_attention_is_measured_at_the_same_lengths_in_each_way():
    lengths = {}
    for call in (call for call in peak_calls() if call.kernel.startswith("attention")):
        lengths.setdefault((call.kernel, call.variant), []).append(call.shape[2])
    assert len(set(map(tuple, lengths.values()))) == 1 and len(lengths) == 4
