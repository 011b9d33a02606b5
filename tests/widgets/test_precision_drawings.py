import numpy as np

from widgets.precision_drawings import bit_fields, lost, packed, word_steps

DRAWN = {
    "bits": bit_fields({"fp32": (8, 23, "3.4 · 10³⁸"), "E2M1": (2, 1, "6")}, "bits", "Bits"),
    "lost": lost({"all": (np.full((4, 8), 2.0), "100% lost"), "none": (np.zeros((4, 8)), "0% lost")}, "lost", "Lost"),
    "packed": packed(
        {"bf16": (16, None, ""), "NVFP4": (4, 16, "4 bytes of scales, E4M3, and an fp32 for the tensor")},
        "packed",
        "64 numbers",
    ),
    "word": word_steps({"the word": "-" * 12 + "seem" + "-" * 12 + "seem", "& 15": "." * 28 + "seem"}, "word", "Bits"),
}


def test_the_drawings_say_what_they_show():
    assert DRAWN["bits"].sentence == "Bits: fp32 1 + 8 + 23, to 3.4 · 10³⁸; E2M1 1 + 2 + 1, to 6."
    assert DRAWN["lost"].sentence == "Lost: all, 100% lost; none, 0% lost."
    assert DRAWN["word"].sentence == (
        "Bits. the word: sign in bits 19 and 3, mantissa in bits 16 and 0; & 15: sign in bit 3, mantissa in bit 0."
    )
    assert "bf16 128 bytes of codes; NVFP4 32 bytes of codes and 4 bytes of scales" in DRAWN["packed"].sentence


def test_a_box_stands_for_each_bit_and_each_byte():
    boxes = {name: len(panel.figure.axes[0].patches) for name, panel in DRAWN.items()}
    assert boxes["bits"] == 3 + 32 + 4  # the words' boxes, and the bits
    assert boxes["packed"] == 128 + 32 + 4 and boxes["word"] == 2 * 32


def test_what_is_lost_is_dark_and_what_is_kept_white():
    dark, white = (axes.images[0].get_array() for axes in DRAWN["lost"].figure.axes)
    assert dark.max() < 0.7 and white.min() == 1


def test_no_words_lie_on_others_or_leave_the_picture():
    for panel in DRAWN.values():
        texts = panel.figure.texts + [text for axes in panel.figure.axes for text in axes.texts]
        boxes = [text.get_window_extent() for text in texts]
        assert not any(one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])
        assert all(panel.figure.bbox.x0 <= box.x0 and box.x1 <= panel.figure.bbox.x1 for box in boxes)
