import pytest
import torch

from instruments.gpus import GPUS
from kernels.norms.rmsnorm import rmsnorm_ops, rmsnorm_traffic
from widgets import fusion_savings
from widgets.toolkit.words import size, time

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own


def test_the_sentence_says_what_the_models_say():
    panel = fusion_savings(rows=1024, cols=8192)
    naive = rmsnorm_traffic(1024, 8192, torch.bfloat16, path="naive")
    fused = rmsnorm_traffic(1024, 8192, torch.bfloat16)
    said = panel.alt
    assert said.startswith("1,024 x 8,192 bf16: ")
    assert f"resident moves {size(fused.bytes)} instead of {size(naive.bytes)}, 3.5 times less" in said
    assert f"On an H200, at 4.8 TB/s, it takes at least {time(fused.memory_seconds(GPUS['H200']))} instead of" in said
    assert "33.6 MB instead of 117 MB" in said and "6.99 µs" in said
    assert "The 5 launches saved are worth 25 µs" in said
    assert "All 33.6 MB fit in the H200's 60 MiB L2" in said


@pytest.mark.parametrize(
    "values, phrase",
    [
        (dict(rows=65536), "do not fit in the H200's 60 MiB L2"),
        (dict(gpu="T4"), "On a T4, "),
        (dict(dtype="fp32"), "8,192 fp32"),
        (dict(rows=1), "worth 25 µs, more than the bytes"),
        (dict(rows=65536), "worth 25 µs, less than the bytes"),
        (dict(per_launch=10), "The 5 launches saved are worth 50 µs"),
        (dict(ops=("x * x", "mean")), "The launch saved is worth 5 µs"),
        (dict(ops=("mean",)), "resident moves"),
        (dict(ops=()), "tick an op to compare; resident moves"),
    ],
)
def test_each_control_speaks(values, phrase):
    panel = fusion_savings()
    before = panel.png
    panel.set(**values)
    assert phrase in panel.alt
    assert panel.png != before


def test_less_and_more_are_said_as_such():
    panel = fusion_savings(ops=("mean",))
    assert "268 MB instead of 134 MB, twice as much as these ops alone. On" in panel.alt
    assert "268 MB instead of 268 MB, as much as these ops alone. On" in panel.set(ops=("x * x",)).alt


def test_every_ticked_op_is_drawn_or_named():
    panel = fusion_savings()
    said = " ".join(text.get_text() for axes in panel.figure.axes for text in axes.texts)
    assert all(name in said for name in panel.values["ops"]) and "too thin for a name: + eps, rsqrt" in said


def test_the_list_of_ops_is_the_kernels_own_and_any_part_of_it_adds_up():
    panel = fusion_savings(rows=256, cols=4096, dtype="fp16")
    each = rmsnorm_ops(256, 4096, torch.float16)
    assert panel.values["ops"] == tuple(each)
    for count in range(1, len(each) + 1):
        ops = tuple(each)[:count]
        panel.set(ops=ops)
        assert f"instead of {size(sum(each[name] for name in ops).bytes)}" in panel.alt


def test_corners_draw():
    panel = fusion_savings()
    for rows in (1, 2**20):
        for cols in (16, 2**17):
            for gpu in GPUS:
                assert panel.set(rows=rows, cols=cols, gpu=gpu).error == ""


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="dtype: got 'int8', expected one of fp32, bf16, fp16"):
        fusion_savings(dtype="int8")
    with pytest.raises(ValueError, match="gpu: got 'V100', expected one of T4"):
        fusion_savings(gpu="V100")
    with pytest.raises(ValueError, match="ops: got .*cast.*, expected one of x . x, mean"):
        fusion_savings(ops=("cast",))
    with pytest.raises(ValueError, match="rows: got 0"):
        fusion_savings(rows=0)
