import pytest

from instruments.gpus import GPUS
from kernels.softmax.models import ONLINE, PASSES, RESIDENT_ROW, SAFE, UNFUSED, rows_in_flight, softmax_passes_traffic
from widgets import softmax_passes


@pytest.mark.parametrize("form, reads, writes", [(UNFUSED, 5, 3), (SAFE, 3, 1), (ONLINE, 2, 1), (RESIDENT_ROW, 1, 1)])
def test_the_boxes_are_the_passes_of_the_model(form, reads, writes):
    full, work = 4096 * 8192 * 2, softmax_passes_traffic(form, 4096, 8192)
    assert (round(work.bytes_read / full), round(work.bytes_written / full)) == (reads, writes)
    written = sum(words.startswith("-") for words in PASSES[form])
    assert (len(PASSES[form]) - written, written) == (reads, writes)


def test_only_the_kept_row_ends_somewhere():
    widths = [2**k for k in range(7, 19)]
    assert all(softmax_passes_traffic(form, 8, cols) for form in PASSES if form != RESIDENT_ROW for cols in widths)
    assert softmax_passes_traffic(RESIDENT_ROW, 8, 8192) and not softmax_passes_traffic(RESIDENT_ROW, 8, 262144)


def test_rows_in_flight():
    assert (
        rows_in_flight(10**6, 131072, "H200") == 132 * 2 and rows_in_flight(100, 131072, "H200") == 100
    )  # 32 warps each, of 64
    assert rows_in_flight(10**6, 131072, "T4") == 40 * 1 and rows_in_flight(10**6, 8192, "A100") == 108 * 8


def test_the_sentence_counts():
    panel = softmax_passes(8192)
    assert "8,192 x 8,192 bf16, one read, resident: 2 times |x|, 268 MB" in panel.alt
    assert "A row is 32 KiB in fp32, 12.5% of an SM's registers; nothing is read again." in panel.alt
    assert f"{2 * 2**27 / GPUS['H200'].bandwidth * 1e6:.1f} µs" in panel.alt
    before = panel.png
    assert "256 KiB in fp32, 100% of an SM's registers, which no" in panel.set(cols=65536).alt
    assert panel.png != before
    assert "3 times |x|, 403 MB" in panel.set(form=ONLINE).alt and "which L2 can hold." in panel.alt
    wide = panel.set(cols=131072).alt
    assert "264 rows are in flight, 69.2 MB, of which L2 can hold at most 91%" in wide
    before = panel.png
    assert "40 rows are in flight" in panel.set(gpu="T4").alt and panel.png != before
    before = panel.png
    assert "537 MB" in panel.set(form=SAFE).alt and panel.png != before
    assert "Between two kernels the tensor waits, 134 MB" in panel.set(form=UNFUSED).alt


@pytest.mark.parametrize(
    "arguments, said",
    [
        (dict(cols=64), "cols: got 64, expected 128"),
        (dict(form="four"), "form: got 'four'"),
        (dict(gpu=1), "gpu: got 1"),
    ],
)
def test_bad_arguments_name_themselves(arguments, said):
    with pytest.raises(ValueError, match=said):
        softmax_passes(**arguments)
