from widgets.attention_drawings import backward_walks, forward_tiles


def test_the_drawings_say_what_they_show():
    drawn = {panel.title: panel.sentence for panel in (forward_tiles(), backward_walks())}
    assert "In DRAM lie q, k, v and out, no scores." in drawn["The scores live for one tile"]
    assert "walks down its column and adds up dk and dv" in drawn["Two walks over the same tiles"]


def test_no_words_lie_on_others():
    for panel in (forward_tiles(), backward_walks()):
        boxes = [text.get_window_extent() for text in panel.figure.axes[0].texts]
        assert not any(one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])
        assert all(panel.figure.bbox.x0 <= box.x0 and box.x1 <= panel.figure.bbox.x1 for box in boxes)
