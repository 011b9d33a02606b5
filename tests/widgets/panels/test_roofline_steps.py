from tests.widgets.corners import faults
from widgets import roofline_steps
from widgets.panels.roofline_steps import LAST, layer_matmul


def test_each_step_adds_to_the_picture_and_says_what():
    panel, pictures = roofline_steps(), set()
    for step in range(1, LAST + 1):
        panel.set(step=step)
        pictures.add(panel.png)
        assert panel.alt.startswith(f"Step {step}: ") and panel.caption
    assert len(pictures) == LAST and "Decode" not in roofline_steps(4).alt


def test_words_keep_clear_of_each_other():
    for step in range(1, LAST + 1):
        assert faults(roofline_steps(step).figure) == [], step


def test_decode_reads_the_weights_of_prefill():
    decode, prefill = layer_matmul(1), layer_matmul(4096)
    assert decode.read["b"] == prefill.read["b"] and prefill.flops == 4096 * decode.flops
    assert f"{decode.intensity:.1f}" == "1.0" and "1,911 FLOP/byte" in roofline_steps(6).alt
