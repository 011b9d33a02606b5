import re

import pytest
import torch

from instruments.gpus import DTYPES, GIB, GPUS, LINKS, dtype_name, file_stem, this_device, this_gpu

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own


@pytest.mark.parametrize(
    "name, unit, flop_per_byte",
    [
        ("H200", "bf16", 206),
        ("H100", "bf16", 295),
        ("A100", "bf16", 153),
        ("T4", "fp16", 203),
        ("H100", "vector", 20),
        ("B200", "fp8", 562.5),
        ("B200", "fp4", 1125),
    ],
)
def test_ridges(name, unit, flop_per_byte):
    assert GPUS[name].ridge(unit) == pytest.approx(flop_per_byte, abs=0.5)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=str)
def test_rates_are_consistent(gpu):
    rates = gpu.matrix
    assert rates["fp16"] > 3 * gpu.vector
    if "bf16" in rates:
        assert rates["bf16"] == rates["fp16"] and rates["tf32"] == pytest.approx(rates["bf16"] / 2, rel=0.01)
    if "fp8" in rates:
        assert rates["fp8"] == pytest.approx(2 * rates["bf16"], rel=0.01)
    assert rates["int8"] == pytest.approx(2 * rates["fp16"], rel=0.01)
    assert rates.get("fp4", 2 * rates.get("fp8", 0)) == 2 * rates.get("fp8", 0) and ("fp4" in rates) == (
        gpu.arch >= 100
    )
    assert ("bf16" in rates) == (gpu.arch >= 80) and ("fp8" in rates) == (gpu.arch >= 89)
    assert gpu.ridge("vector") < gpu.ridge("fp16")
    assert 1e11 < gpu.bandwidth < 1e13 and gpu.l2 < gpu.memory and gpu.source


def test_links_are_slower_than_memory_and_grow_with_the_years():
    rates = [LINKS[gpu.link].rate for gpu in sorted(GPUS.values(), key=lambda gpu: (gpu.bandwidth, gpu.year))]
    assert all(LINKS[gpu.link].rate < gpu.bandwidth / 5 for gpu in GPUS.values())
    assert LINKS[GPUS["H200"].link].rate == 450e9 == LINKS[GPUS["B200"].link].rate / 2 and max(rates) == rates[-1]
    assert all(name == link.name and link.source for name, link in LINKS.items())


def test_l2_as_an_h200_reports_it():
    assert GPUS["H200"].l2 == 62_914_560


def test_the_newer_the_faster():
    order = [GPUS[name] for name in ("T4", "A100", "H100", "H200", "B200")]
    assert all(
        a.year <= b.year and a.bandwidth < b.bandwidth and a.peak("fp16") <= b.peak("fp16")
        for a, b in zip(order, order[1:])
    )


def test_a_unit_that_a_gpu_lacks_is_named():
    with pytest.raises(ValueError, match="unit: T4 has no matrix rate for 'bf16', expected one of vector, fp16"):
        GPUS["T4"].peak("bf16")


def test_dtype_names_go_both_ways():
    assert {dtype_name(dtype): dtype for dtype in DTYPES.values()} == DTYPES
    with pytest.raises(ValueError, match="dtype: got torch.int8, expected one of torch.float32"):
        dtype_name(torch.int8)


@pytest.fixture
def card(monkeypatch):
    """card(device, memory in GiB): this machine has that GPU."""

    def has(device, gib):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda *a: device)
        properties = type("Properties", (), {"total_memory": int(gib * GIB)})
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *a: properties)
        this_gpu.cache_clear()

    yield has
    this_gpu.cache_clear()


@pytest.mark.parametrize(
    "device, gib, name, stem",
    [
        ("Tesla T4", 14.7, "T4", "t4"),
        ("NVIDIA L4", 22.0, "L4", "l4"),
        ("NVIDIA A100-SXM4-80GB", 79.3, "A100", "a100"),
        ("NVIDIA A100-SXM4-40GB", 39.5, None, "nvidia-a100-sxm4-40gb"),
        ("NVIDIA A100 80GB PCIe", 79.3, None, "nvidia-a100-80gb-pcie"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9.5, None, "nvidia-a100-sxm4-80gb-mig-1g-10gb"),
        ("NVIDIA H100 80GB HBM3", 79.2, "H100", "h100"),
        ("NVIDIA H100 PCIe", 79.2, None, "nvidia-h100-pcie"),
        ("NVIDIA H100 NVL", 93.1, None, "nvidia-h100-nvl"),
        ("NVIDIA H200", 139.8, "H200", "h200"),
        ("NVIDIA H200", 70.0, None, "nvidia-h200"),
        ("NVIDIA H200 NVL", 139.8, None, "nvidia-h200-nvl"),
        ("NVIDIA B200", 178.4, "B200", "b200"),
        ("NVIDIA GB200", 184.0, None, "nvidia-gb200"),
        ("NVIDIA L40S", 44.4, None, "nvidia-l40s"),
        ("NVIDIA GeForce RTX 5090", 31.4, None, "nvidia-geforce-rtx-5090"),
    ],
)
def test_a_card_by_its_name_and_memory(card, device, gib, name, stem):
    card(device, gib)
    assert file_stem(*this_device()) == stem
    if name:
        assert this_gpu() is GPUS[name]
    else:
        with pytest.warns(UserWarning, match=f"no datasheet rates of this GPU, {re.escape(device)} with"):
            assert this_gpu() is None


def test_this_gpu_without_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    this_gpu.cache_clear()
    assert this_gpu() is None
    this_gpu.cache_clear()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_this_gpus_entry_is_what_the_device_reports():
    known, here = this_gpu(), torch.cuda.get_device_properties(0)
    if known is None:
        pytest.skip(f"{here.name} has no entry")
    assert (known.sms, known.l2) == (here.multi_processor_count, here.L2_cache_size)
    assert known.shared_per_sm == here.shared_memory_per_multiprocessor
    assert known.memory == pytest.approx(here.total_memory, rel=0.1)
