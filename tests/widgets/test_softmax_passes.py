import pytest

from instruments.gpus import GPUS
from widgets import softmax_passes
from widgets.softmax_passes import KEPT, ONLINE, OPS, PASSES, SAFE, at_work, traffic


@pytest.mark.parametrize("form, reads, writes", [(OPS, 5, 3), (SAFE, 3, 1), (ONLINE, 2, 1), (KEPT, 1, 1)])
def test_the_boxes_are_the_passes_of_the_model(form, reads, writes):
    full, work = 4096 * 8192 * 2, traffic(form, 4096, 8192)
    assert (round(work.bytes_read / full), round(work.bytes_written / full)) == (reads, writes)
    written = sum(words.startswith("-") for words in PASSES[form])
    assert (len(PASSES[form]) - written, written) == (reads, writes)


def test_only_the_kept_row_ends_somewhere():
    widths = [2**k for k in range(7, 19)]
    assert all(traffic(form, 8, cols) for form in PASSES if form != KEPT for cols in widths)
    assert traffic(KEPT, 8, 8192) and not traffic(KEPT, 8, 262144)


def test_rows_at_work():
    assert at_work(10**6, 131072, "H200") == 132 * 2 and at_work(100, 131072, "H200") == 100  # 32 warps each, of 64
    assert at_work(10**6, 131072, "T4") == 40 * 1 and at_work(10**6, 8192, "A100") == 108 * 8


def test_the_sentence_counts():
    panel = softmax_passes(8192)
    assert "8,192 x 8,192 bf16, one reading, row kept: 2 times |x|, 268 MB" in panel.sentence
    assert "A row is 32 KiB in fp32, 12.5% of an SM's registers; nothing is read again." in panel.sentence
    assert f"{2 * 2**27 / GPUS['H200'].bandwidth * 1e6:.1f} µs" in panel.sentence
    before = panel.png
    assert "256 KiB in fp32, 100% of an SM's registers, which no" in panel.set(cols=65536).sentence
    assert panel.png != before
    assert "3 times |x|, 403 MB" in panel.set(form=ONLINE).sentence and "which L2 can hold." in panel.sentence
    wide = panel.set(cols=131072).sentence
    assert "264 rows are at work, 69.2 MB, of which L2 can hold at most 91%" in wide
    before = panel.png
    assert "40 rows are at work" in panel.set(gpu="T4").sentence and panel.png != before
    before = panel.png
    assert "537 MB" in panel.set(form=SAFE).sentence and panel.png != before
    assert "Between two kernels the tensor waits, 134 MB" in panel.set(form=OPS).sentence


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
