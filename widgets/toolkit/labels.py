"""Words beside points, put where they lie on nothing else: for pictures whose points move."""

import numpy as np
from matplotlib.transforms import IdentityTransform

GAP = 8  # pixels between a point and its words
EDGE = 3  # pixels between words and their axes
#: Directions from a point, tried in this order: (to the right, up)
DIRECTIONS = ((-1, 1), (1, -1), (1, 1), (-1, -1), (0, 1), (0, -1), (1, 0), (-1, 0))


def text_boxes(*texts) -> list:
    """The boxes of those texts that are seen: [(left, bottom, right, top)] in pixels."""
    return [text.get_window_extent().extents for text in texts if text.get_visible() and text.get_text()]


def line_boxes(line, side: float = 4) -> list:
    """Small boxes along a line, in pixels."""
    ends, boxes = line.axes.transData.transform(line.get_xydata()), []
    for start, end in zip(ends, ends[1:]):
        steps = np.linspace(start, end, 2 + int(np.abs(end - start).max() / side))
        boxes.extend(np.hstack((steps - side / 2, steps + side / 2)))
    return boxes


class Labels:
    """`count` animated texts in an axes, of which `place` puts as many as it is given words for beside their points."""

    def __init__(self, axes, count: int, fontsize: float = 9):
        self._axes, self._sizes = axes, {}
        self._texts = [
            axes.text(0, 0, "", fontsize=fontsize, va="bottom", transform=IdentityTransform(), animated=True)
            for _ in range(count)
        ]

    def _size(self, text, words: str) -> np.ndarray:
        if words not in self._sizes:
            text.set(text=words, visible=True)
            self._sizes[words] = text.get_window_extent().size
        return self._sizes[words]

    def place(self, labels: list, taken: list):
        """Put words beside points; those that find no room are left out.

        labels: (words, x, y) in data coordinates, the most important first. taken: boxes (left, bottom, right, top) in
        pixels, where no words may lie.
        """
        frame = self._axes.get_window_extent().extents
        points = self._axes.transData.transform([(x, y) for _, x, y in labels])
        taken = np.array([*taken, *np.hstack((points - GAP, points + GAP))])
        sizes = [self._size(text, words) for text, (words, *_) in zip(self._texts, labels)]
        for text in self._texts:
            text.set_visible(False)
        for text, (words, *_), point, size in zip(self._texts, labels, points, sizes):
            for away in (GAP, 2 * GAP, 3 * GAP, 5 * GAP):
                steps = np.array(DIRECTIONS)
                low = point + steps * away + (steps - 1) / 2 * size  # of the words' boxes, one for each direction
                low = np.clip(low, frame[:2] + EDGE, frame[2:] - EDGE - size)
                high = low + size
                apart = (low[:, None] >= taken[:, 2:]) | (high[:, None] <= taken[:, :2])
                free = apart.any(2).all(1)
                if free.any():
                    first = free.argmax()
                    taken = np.vstack((taken, np.hstack((low[first], high[first]))))
                    text.set(text=words, position=low[first], visible=True)
                    break
