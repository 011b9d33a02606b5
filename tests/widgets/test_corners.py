"""No panel's words lie on others or leave the picture, at any corner of its ranges and at places inside them."""

import pytest

from tests.widgets.corners import NAMES, corners, faults, made, settings, texts_of
from widgets.toolkit.panel import canvas, caption_of

pytestmark = pytest.mark.once


@pytest.mark.parametrize("name", NAMES)
def test_words_keep_clear_of_each_other(name):
    panel = made(name)
    texts = texts_of(panel.figure)
    for values in settings(panel):
        text = panel._draw(**values)  # without the painting of the picture, which takes most of a redraw
        assert caption_of(text), f"{name} at {values}: the first sentence is longer than a line: {text}"
        found = faults(panel.figure, texts)
        assert found == [], f"{name} at {values}: {found[0]}"


def test_what_is_wrong_is_found():
    figure = canvas(400, 100)
    axes = figure.add_axes((0.5, 0, 0.5, 1))
    for x, words in ((0.1, "one"), (0.15, "another"), (-0.1, "left"), (0.6, "in the axes")):
        figure.text(x, 0.1 if words in ("one", "another") else 0.6, words)
    axes.set(xticks=[], yticks=[])
    assert [fault.replace("'", "") for fault in faults(figure)] == [
        "left leaves the picture",
        "in the axes lies in axes that are not its own",
        "one and another overlap",
    ]


def test_corners_are_the_ends_of_every_control():
    assert len(corners(made("coalescing"))) == 2 * 2 * 3
    assert len(corners(made("roofline"), most=10)) == 10
