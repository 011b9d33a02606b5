import pytest

from widgets.drawings.decode import intensities, packed_group, paged_cache

TABLES = {"sequence 0": [7, 2, 6, 0], "sequence 1": [5, 1], "sequence 2": [8, 3]}


def pictures() -> dict:
    points = {"group of 1": 1, "group of 4: Llama 3 8B": 4, "group of 32": 32, "prefill, 16,384 tokens": 6554}
    return {
        "roofline": intensities(points, (4, 14, "this lesson's kernel"), 4289, 684, "Decode lies left"),
        "group": packed_group(),
        "pages": paged_cache(TABLES, 16, 10, 37),
    }


def test_the_drawings_say_what_they_show():
    said = {name: panel.alt for name, panel in pictures().items()}
    assert "a ridge point of 159" in said["roofline"] and "14 TFLOP/s" in said["roofline"]
    assert "read once" in said["group"]
    assert "Key 37 of sequence 0 is row 5 of page 6" in said["pages"]  # 37 = 2 * 16 + 5, and entry 2 is page 6


@pytest.mark.parametrize("name", ["roofline", "pages"])
def test_no_words_lie_on_others(name):
    panel = pictures()[name]
    texts = [text for axes in panel.figure.axes for text in axes.texts]
    boxes = [text.get_window_extent() for text in texts]
    overlaps = [
        (texts[at].get_text(), texts[before].get_text())
        for at, one in enumerate(boxes)
        for before, other in enumerate(boxes[:at])
        if one.overlaps(other)
    ]
    assert overlaps == []
    assert all(panel.figure.bbox.x0 <= box.x0 and box.x1 <= panel.figure.bbox.x1 for box in boxes)
