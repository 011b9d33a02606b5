import pytest
import torch

from instruments import timing
from kernels.quantize_schemes import quantize_reference

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
    assert timing.summarize([7e-6]) == timing.Timing(7e-6, 7e-6, 7e-6)


@no_gpu
@pytest.mark.parametrize(
    "call",
    [
        timing.need_gpu,
        lambda: timing.as_called(torch.relu, (torch.ones(1),)),
        lambda: timing.Graphed(torch.relu, (torch.ones(1),), 2),
        lambda: timing.from_graphs({"relu": torch.relu}, (torch.ones(1),), 8),
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


@gpu
def test_a_copy_is_slower_from_dram_than_its_bytes_at_the_datasheet_rate():
    x = torch.randn(1 << 26, device="cuda")
    nbytes = 2 * x.numel() * 4
    t = timing.from_graphs({"copy": lambda x: x + 1}, (x,), nbytes)["copy"]
    assert t.p20 <= t.median <= t.p80
    assert nbytes / t.median < 9e12
    assert timing.as_called(lambda x: x + 1, (x,), calls=20) > 0.9 * t.median
