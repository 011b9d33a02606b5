import pytest

from instruments.gpus import DTYPES
from widgets import coalescing


def test_stride_and_offset_cost_sectors():
    panel = coalescing(stride=1)
    assert "32 threads use 64 of 64 B in 2 sectors (100%)." in panel.caption
    before = panel.png
    panel.set(offset=1)
    assert "64 of 96 B in 3 sectors (67%)" in panel.alt and panel.png != before
    assert "64 of 1,024 B in 32 sectors (6%)" in panel.set(stride=16, offset=0).alt
    assert (
        "Neighbors from a sector's start take 2. If nothing else used the rest, the H200's copy bandwidth of 4.29 TB/s "
        "would deliver at most 268 GB/s." in panel.alt
    )


def test_fp32_and_a_broadcast():
    assert "use 128 of 128 B in 4 sectors" in coalescing(stride=1, dtype="fp32").alt
    assert "use 4 of 32 B in 1 sector (12%)" in coalescing(stride=0, dtype="fp32").alt


def test_all_of_it_draws():
    panel = coalescing()
    for dtype in DTYPES:
        for stride in (0, 1, 7, 32):
            for offset in (0, 31):
                panel.set(stride=stride, offset=offset, dtype=dtype)
                assert f"{dtype}, stride {stride}, offset {offset}: 32 threads use" in panel.alt


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="dtype: got 'fp8', expected one of fp32"):
        coalescing(dtype="fp8")
