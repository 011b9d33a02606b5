import pytest
import torch

from instruments import timing
from kernels.quantization.schemes import quantize_reference

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="asks what happens without a GPU")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="times on a GPU")


def test_a_copy_of_an_argument_shares_no_memory_with_it():
    """Else the tensors of a quantised matrix would be found in L2."""
    made = quantize_reference(torch.randn(2, 32), "nvfp4")
    copy = timing._clone(made)
    assert copy.scheme == made.scheme and copy.shape == made.shape and timing._clone("tanh") == "tanh"
    for name in ("codes", "scales", "tensor_scale"):
        mine, other = getattr(made, name), getattr(copy, name)
        assert torch.equal(mine.float(), other.float()) and mine.data_ptr() != other.data_ptr()


def test_summarize_takes_median_and_quantiles():
    t = timing.summarize([5.0, 1.0, 2.0, 3.0, 4.0, 100.0])
    assert (t.p20, t.median, t.p80) == (2.0, 3.5, 5.0)
    assert timing.summarize([7e-6], 4) == timing.Timing(7e-6, 7e-6, 7e-6, 4)


@no_gpu
@pytest.mark.parametrize(
    "call",
    [
        timing.need_gpu,
        lambda: timing.as_called(torch.relu, (torch.ones(1),)),
        lambda: timing.Graphed(torch.relu, (torch.ones(1),), 2),
        lambda: timing.from_graphs({"relu": torch.relu}, (torch.ones(1),), 8),
        lambda: timing.sustained(torch.relu, (torch.ones(1),), 8),
        timing.copy_roof,
        timing.matmul_roof,
    ],
)
def test_without_a_gpu_one_sentence_says_so(call):
    with pytest.raises(RuntimeError, match="no GPU to time on; recorded figures are in instruments.results"):
        call()


def test_copies_exceed_the_l2_four_times(monkeypatch):
    properties = type("Properties", (), {"L2_cache_size": 50 << 20})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert timing.copies_needed(25 << 20) * (25 << 20) >= 4 * (50 << 20)
    assert timing.copies_needed(1 << 40) == 2
    assert timing.copies_needed(0) == timing.copies_needed(8) == timing.MAX_COPIES


@pytest.mark.parametrize(
    ("call", "least", "most", "calls"),
    [
        (50e-6, 2, 1000, 21),  # 2 calls and a gap of 5 us read 52.5 us each: 20 would do
        (50e-6, 2, 8, 8),  # memory has room for no more
        (50e-6, 2, 0, 2),
        (3e-3, 2, 1000, 2),  # long enough as it is
        (1e-6, 16_384, 16_384, 16_384),
    ],
)
def test_a_replay_lasts_a_millisecond_where_memory_allows(monkeypatch, call, least, most, calls):
    """On a GPU that lets 5 us pass between one event and the next beside the calls: half a percent is left of them."""

    class Fake:
        def __init__(self, function, args, copies, warm=False):
            self.sets = [args] * copies

        def seconds(self):
            return call + 5e-6 / len(self.sets)

    monkeypatch.setattr(timing, "Graphed", Fake)
    graph = timing.long_enough(torch.relu, (), least, most)
    assert abs(len(graph.sets) - calls) <= 1 and len(graph.sets) >= least
    if most > calls:
        assert graph.seconds() < 1.006 * call


def test_half_of_the_free_memory_is_for_copies(monkeypatch):
    """Each implementation has its share, by what the arguments take, where that is more than a call moves."""
    asked = []

    class Fake:
        def __init__(self, least):
            self.sets = [()] * least

        def seconds(self):
            return 1e-3

    monkeypatch.setattr(timing, "copies_needed", lambda nbytes: 2)
    monkeypatch.setattr(timing, "_room", lambda: 1 << 20)
    monkeypatch.setattr(timing, "long_enough", lambda f, args, least, most, *_: asked.append(most) or Fake(least))
    x = torch.zeros(1 << 8)  # 1,024 bytes
    weight = quantize_reference(torch.zeros(32, 32), "mxfp4")  # 512 and 32
    timed = timing.from_graphs({"one": torch.relu, "two": torch.relu}, (x, weight, 3), 100)
    assert asked == [(1 << 20) // (2 * 2 * (1024 + 512 + 32))] * 2
    assert timed["one"].calls == 2
    timing.from_graphs({"one": torch.relu}, (x,), 1 << 15)
    assert asked[2] == (1 << 20) // (2 * (1 << 15))
    timing.from_graphs({"one": torch.relu}, (x,), 1 << 15, warm=True)
    assert asked[3] == timing.MAX_COPIES  # no copies are made


@gpu
def test_a_copy_is_slower_from_dram_than_its_bytes_at_the_datasheet_rate():
    x = torch.randn(1 << 26, device="cuda")
    nbytes = 2 * x.numel() * 4
    t = timing.from_graphs({"copy": lambda x: x + 1}, (x,), nbytes)["copy"]
    assert t.p20 <= t.median <= t.p80
    assert nbytes / t.median < 9e12
    assert timing.as_called(lambda x: x + 1, (x,), calls=20) > 0.9 * t.median


@gpu
def test_a_warm_l2_is_faster_than_device_memory():
    x = torch.randn(1 << 20, device="cuda")  # 4 MiB, and as much for the result
    nbytes = 2 * x.numel() * 4
    cold, warm = (timing.from_graphs({"copy": lambda x: x + 1}, (x,), nbytes, warm=w)["copy"].median for w in (0, 1))
    assert warm < cold


def test_sustained_reports_the_second_half(monkeypatch):
    """The first half runs at other clocks: it must not enter a median."""
    began = timing.time.perf_counter()

    class Replays:
        sets = [()] * 3

        def seconds(self):
            timing.time.sleep(1e-3)
            return 5.0 if timing.time.perf_counter() - began < 0.1 else 1.0

    clock = lambda: 1980 if timing.time.perf_counter() - began < 0.1 else 1500  # noqa: E731
    monkeypatch.setattr(timing, "copies_needed", lambda nbytes: 2)
    monkeypatch.setattr(timing, "long_enough", lambda *arguments: Replays())
    monkeypatch.setattr(torch.cuda, "clock_rate", clock)
    monkeypatch.setattr(torch.cuda, "power_draw", lambda: 600_000)
    result = timing.sustained(torch.relu, (), 8, seconds=0.4)
    assert (result.timing.median, result.timing.calls, result.clock_mhz, result.watts) == (1.0, 3, 1500, 600)
