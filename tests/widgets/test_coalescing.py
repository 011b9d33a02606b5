import pytest

from instruments.gpus import DTYPES
from widgets import coalescing


def test_stride_and_offset_cost_sectors():
    panel = coalescing(stride=1)
    assert (
        "32 threads want 64 different bytes and touch 2 sectors, 64 B, so 100% of the sectors' bytes are useful"
        in panel.sentence
    )
    before = panel.png
    panel.set(offset=1)
    assert "touch 3 sectors, 96 B, so 67%" in panel.sentence and panel.png != before
    assert "touch 32 sectors, 1,024 B, so 6%" in panel.set(stride=16, offset=0).sentence
    assert (
        "Neighbours from a sector's start take 2. If nothing else used the rest, the H200's 4.8 TB/s would "
        "deliver 300 GB/s." in panel.sentence
    )


def test_fp32_and_a_broadcast():
    assert "want 128 different bytes and touch 4 sectors" in coalescing(stride=1, dtype="fp32").sentence
    assert "want 4 different bytes and touch 1 sector, 32 B, so 12%" in coalescing(stride=0, dtype="fp32").sentence


def test_all_of_it_draws():
    panel = coalescing()
    for dtype in DTYPES:
        for stride in (0, 1, 7, 32):
            for offset in (0, 31):
                panel.set(stride=stride, offset=offset, dtype=dtype)
                assert f"{dtype}, stride {stride}, offset {offset}: 32 threads want" in panel.sentence


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="dtype: got 'fp8', expected one of fp32"):
        coalescing(dtype="fp8")
