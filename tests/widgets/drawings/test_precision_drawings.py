from widgets.drawings.precision import before_and_after, bit_fields, packed, word_steps

DRAWN = {
    "bits": bit_fields({"fp32": (8, 23, "3.4 · 10³⁸"), "E2M1": (2, 1, "6")}, "bits", "Bits"),
    "values": before_and_after(
        {
            "one scale": ([1.0, -2, 100, 0.5], [0, 0, 100, 0], "error 99%"),
            "per\n2": ([1.0, -2, 3, 0], [1, -2, 3, 0], "0%"),
        },
        "values",
        "Values",
        limit=3.0,
        group=2,
    ),
    "packed": packed(
        {"bf16": (16, None, ""), "NVFP4": (4, 16, "4 bytes of scales, E4M3, and an fp32 for the tensor")},
        "packed",
        "64 numbers",
    ),
    "word": word_steps({"the word": "-" * 12 + "seem" + "-" * 12 + "seem", "& 15": "." * 28 + "seem"}, "word", "Bits"),
}


def test_the_drawings_say_what_they_show():
    assert DRAWN["bits"].alt == "Bits. fp32 1 + 8 + 23, to 3.4 · 10³⁸; E2M1 1 + 2 + 1, to 6."
    assert DRAWN["values"].alt == "Values. one scale, error 99%; per 2, 0%."
    assert DRAWN["word"].alt == (
        "Bits. the word: sign in bits 19 and 3, mantissa in bits 16 and 0; & 15: sign in bit 3, mantissa in bit 0."
    )
    assert "bf16 128 bytes of codes; NVFP4 32 bytes of codes and 4 bytes of scales" in DRAWN["packed"].alt


def test_a_box_stands_for_each_bit_and_each_byte():
    boxes = {name: len(panel.figure.axes[0].patches) for name, panel in DRAWN.items()}
    assert boxes["bits"] == 3 + 32 + 4  # the words' boxes, and the bits
    assert boxes["packed"] == 128 + 32 + 4 and boxes["word"] == 2 * 32


def test_a_value_beyond_the_band_stands_at_its_edge_with_its_number():
    first, second = DRAWN["values"].figure.axes
    assert [text.get_text() for text in first.texts] == ["100, cut off"] and not second.texts
    assert [bar.get_height() for bar in first.patches] == [0, 0, 3, 0]
    assert [bar.get_height() for bar in second.patches] == [1, -2, 3, 0]
    assert len(second.lines) == len(first.lines) + 1  # the line between two groups


def test_no_words_lie_on_others_or_leave_the_picture():
    for panel in DRAWN.values():
        texts = panel.figure.texts + [text for axes in panel.figure.axes for text in axes.texts]
        boxes = [text.get_window_extent() for text in texts]
        assert not any(one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])
        assert all(panel.figure.bbox.x0 <= box.x0 and box.x1 <= panel.figure.bbox.x1 for box in boxes)
