import pytest
import torch

from instruments import gpus
from instruments.gpus import DTYPES, GPUS, dtype_name, this_gpu


@pytest.mark.parametrize(
    "name, unit, flop_per_byte",
    [
        ("H200", "bf16", 206),
        ("H100", "bf16", 295),
        ("A100", "bf16", 153),
        ("T4", "fp16", 203),
        ("H100", "vector", 20),
        ("B200", "fp8", 562.5),
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
    assert ("bf16" in rates) == (gpu.arch >= 80) and ("fp8" in rates) == (gpu.arch >= 89)
    assert gpu.ridge("vector") < gpu.ridge("fp16")
    assert 1e11 < gpu.bandwidth < 1e13 and gpu.l2 < gpu.memory and gpu.source


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


@pytest.mark.parametrize(
    "device, name",
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla T4", "T4"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", None),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GeForce RTX 4090", None),
        ("NVIDIA GB200", None),
    ],
)
def test_this_gpu_by_its_device_name(monkeypatch, device, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *a: device)
    this_gpu.cache_clear()
    found = gpus.this_gpu()
    this_gpu.cache_clear()
    assert (found.name if found else None) == name


def test_this_gpu_without_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    this_gpu.cache_clear()
    assert this_gpu() is None
    this_gpu.cache_clear()
