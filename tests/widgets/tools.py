"""What tests of panels share."""


def moves(panel, **values):
    """Every control is named, and when one takes its value, after those before it, picture and sentence change."""
    assert list(values) == list(panel.controls)
    for name, value in values.items():
        before, said = panel.png, panel.alt
        panel.set(**{name: value})
        assert panel.png != before and panel.alt != said, name
