"""Bars in multiples of a minimum, in groups under headings: the picture of `portrait`."""

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from widgets.toolkit import cells
from widgets.toolkit.panel import SHARPNESS, WIDTH, canvas
from widgets.toolkit.words import number, size


@dataclass(frozen=True)
class Row:
    """A bar in multiples of the least, the part read and the part written; no colour for a row of words alone."""

    name: str
    words: str
    colour: str = ""
    parts: tuple = (0.0, 0.0)

    @property
    def multiple(self) -> str:
        return times_of(sum(self.parts))


@dataclass(frozen=True)
class Group:
    """Rows under a heading, and their text alternative. mark: where a dashed line stands, in multiples."""

    heading: str
    rows: list
    text: str
    mark: float | None = None


def times_of(multiple: float) -> str:
    """A multiple as it stands beside a bar."""
    return f"{multiple:.2f}" if multiple < 10 else number(multiple, digits=3)


def bar(name: str, read: int, written: int, least: int, colour: str) -> Row:
    """A row of bytes, in multiples of the least."""
    words = f"{times_of((read + written) / least)}   {size(read + written)}"
    return Row(name, words, colour, (read / least, written / least))


_NAMES = 130, 320  # CSS pixels that rows' names get at least, and at most
_WORDS = 150  # behind the longest bar, for its words
MOST = 4  # the longest bar, in multiples of the least
_HEADING, _LINE_HEIGHT, _BAR, _FOOT = 30, 18, 13, 40  # CSS pixels of height
_POINTS = 8.5
_LINE = np.array([221] * 3, np.uint8)


def _pixels(css: float) -> int:
    return round(css * SHARPNESS)


def _wide(words: str, style: str = "") -> float:
    """CSS pixels that words take."""
    return cells.font(_POINTS, style).getlength(words) / SHARPNESS


def fitted(words: str, room: float, style: str = "") -> str:
    """The words, cut where they need more CSS pixels than there are."""
    while _wide(words, style) > room:
        words = f"{words[:-2]}…"
    return words


class Bars:
    """One figure for all charts of a function, as high as the highest needs; `show` paints one of them."""

    def __init__(self, charts: list):
        height = max(sum(_HEADING + _LINE_HEIGHT * len(group.rows) for group in chart) for chart in charts) + _FOOT
        height += -height % 4  # as many whole pixels
        names = [_wide(row.name) for chart in charts for group in chart for row in group.rows]
        least, most = _NAMES
        self.zero = round(min(max([least, *names]), most)) + 16  # where bars begin
        self.one = (WIDTH - _WORDS - self.zero) / MOST  # how long a bar of 1 is
        self.figure = canvas(WIDTH, height)
        self.page = cells.Pixels(_pixels(height), _pixels(WIDTH))
        self.page.set_animated(True)
        self.figure.add_artist(self.page)
        foot, words = height - _FOOT + 8, []
        for multiple in range(MOST + 1):
            at = self.zero + multiple * self.one
            self.page.pixels[_pixels(_HEADING) : _pixels(foot), _pixels(at)] = _LINE
            words.append((at, foot + 9, str(multiple), "m"))
        words += [(self.zero - 14, foot + 9, "multiples", "r")]
        words += [(self.zero + MOST * self.one + 18, foot + 9, "hatched: written", "l")]
        self.ground = self._written(self.page.pixels, words)

    @staticmethod
    def _written(pixels: np.ndarray, words: list) -> np.ndarray:
        """The pixels with words on them, each (x, middle, text, anchor, style), in CSS pixels."""
        image = Image.fromarray(pixels)
        draw = ImageDraw.Draw(image)
        for x, middle, text, anchor, *style in words:
            text = fitted(text, x if anchor == "r" else WIDTH - x, *style)
            baseline = (middle + 0.35 * _POINTS * 100 / 72) * SHARPNESS
            draw.text(
                (x * SHARPNESS, baseline), text, fill="black", font=cells.font(_POINTS, *style), anchor=f"{anchor}s"
            )
        return np.asarray(image)

    def show(self, chart: list):
        """Paint a list of groups below each other."""
        pixels, top, words = self.ground.copy(), 0, []
        for group in chart:
            pixels[_pixels(top + 4) : _pixels(top + _HEADING)] = 255
            words.append((12, top + _HEADING / 2 + 3, group.heading, "l", "-Bold"))
            top += _HEADING
            for row in group.rows:
                words += self._row(pixels, row, top + _LINE_HEIGHT / 2)
                if row.colour:
                    self._upright(pixels, 1, top)
                if row.colour and group.mark:
                    self._upright(pixels, group.mark, top, dash=6)
                top += _LINE_HEIGHT
        self.page.pixels = self._written(pixels, words)

    def _row(self, pixels: np.ndarray, row: Row, middle: float) -> list:
        """Paints the bar of a row, and returns its words."""
        top, bottom = _pixels(middle - _BAR / 2), _pixels(middle + _BAR / 2)
        read, end = (min(part, MOST) for part in (row.parts[0], sum(row.parts)))
        ends = [_pixels(self.zero + self.one * part) for part in (0, read, end)]
        beside = self.zero + self.one * max(end, 1) + 8 if row.colour else self.zero + 8  # beyond the line at 1
        pixels[top:bottom, _pixels(beside) : _pixels(beside) + round(cells.font(_POINTS).getlength(row.words))] = 255
        if row.colour:
            pixels[top:bottom, ends[0] : ends[2]] = cells.rgb(row.colour)
            y, x = np.ogrid[top:bottom, ends[1] : ends[2]]
            pixels[top:bottom, ends[1] : ends[2]][(x + y) % 7 < 2] = 255
            pixels[top:bottom, ends[1] : ends[1] + 1] = 255
        if sum(row.parts) > MOST:  # cut off
            y, x = np.ogrid[top:bottom, ends[2] - 18 : ends[2] - 2]
            pixels[top:bottom, ends[2] - 18 : ends[2] - 2][abs((x - ends[2] + 10) + (y - top) // 2 - 3) < 2] = 255
        return [(self.zero - 8, middle, row.name, "r"), (beside, middle, row.words, "l")]

    def _upright(self, pixels: np.ndarray, multiple: float, top: float, dash: int = 0):
        """A line across a row; dash: pixels of its strokes and of the gaps between."""
        at = _pixels(self.zero + self.one * multiple)
        down = np.arange(_pixels(top), _pixels(top + _LINE_HEIGHT))
        pixels[down[down // dash % 2 == 0] if dash else down, at - 1 : at + 1] = 0
