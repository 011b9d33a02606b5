from widgets.drawings.norms import partial_sums


def test_partial_sums_say_who_adds_what():
    drawing = partial_sums()
    assert "four programs" in drawing.alt and "in a fixed order" in drawing.alt
