import numpy as np

from tests.widgets.corners import faults
from widgets.toolkit.labels import Labels, line_boxes, text_boxes
from widgets.toolkit.panel import canvas


def _axes():
    figure = canvas(300, 200)
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.set(xlim=(0, 10), ylim=(0, 10), xticks=[], yticks=[])
    return figure, axes


def _seen(axes):
    return [text.get_text() for text in axes.texts if text.get_visible() and text.get_text()]


def test_labels_of_near_points_keep_apart():
    figure, axes = _axes()
    labels = Labels(axes, 4)
    labels.place([(name, 5 + i / 10, 5) for i, name in enumerate(("one", "two", "three", "four"))], [])
    assert len(_seen(axes)) == 4 and faults(figure) == []


def test_a_label_stays_in_the_axes_and_off_what_is_taken():
    figure, axes = _axes()
    words, labels = axes.text(6, 9, "taken"), Labels(axes, 1)
    (line,) = axes.plot([0, 10], [0, 10])
    taken = [*text_boxes(words), *line_boxes(line)]
    for x, y in ((0, 0), (10, 10), (10, 0), (6, 8), (5, 5)):
        labels.place([("label", x, y)], taken)
        assert len(_seen(axes)) == 2 and faults(figure) == []
        box, frame = axes.texts[-1].get_window_extent(), axes.get_window_extent()
        assert frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
        assert all(box.x1 <= a or c <= box.x0 or box.y1 <= b or d <= box.y0 for a, b, c, d in line_boxes(line))


def test_a_label_without_room_is_left_out():
    _, axes = _axes()
    labels = Labels(axes, 2)
    labels.place([("one", 5, 5), ("two", 5, 5)], [axes.get_window_extent().extents])
    assert _seen(axes) == []
    labels.place([("one", 5, 5)], np.empty((0, 4)))
    assert _seen(axes) == ["one"]
