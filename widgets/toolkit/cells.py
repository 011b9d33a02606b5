"""Grids of elements, and words, as pixels: for the panel that steps through a launch, fast to paint and crisp.

A grid is drawn in cells of whole pixels. A small tensor has a cell for each element; in a large one a cell stands for a
block of elements and shows the strongest thing that happens in it.
"""

import numpy as np
from matplotlib.artist import Artist
from matplotlib.colors import to_rgb
from PIL import ImageFont

from widgets.toolkit.letters import face
from widgets.toolkit.panel import BLUE, GREEN, ORANGE, RED, SHARPNESS

#: What a cell shows, the stronger the higher.
BEYOND, UNTOUCHED, EARLIER, BEFORE, MASKED, READ, WRITTEN, AGAIN, OUTSIDE = range(9)

WHITE, INK = (np.array([shade] * 3, np.uint8) for shade in (255, 0))
FRAME = np.array([120] * 3, np.uint8)


def rgb(colour: str) -> np.ndarray:
    return np.array([round(255 * part) for part in to_rgb(colour)], np.uint8)


_COLOURS = np.stack([rgb(c) for c in ("white", "#ebebeb", "#c9c9c9", "#b5dcf2", "white", BLUE, GREEN, ORANGE, RED)])

LEAST, MOST = 2, 44  # pixels of a cell
_GAP = 7  # pixels of an element from which on a line parts it from the next


def font(points: float, style: str = "") -> ImageFont.FreeTypeFont:
    """The letters of so many points; style as `letters.face` has it."""
    return face(points * SHARPNESS * 100 / 72, style)


class Pixels(Artist):
    """All of a figure's pixels at once, which nothing resamples.

    `pixels`: uint8 [height, width, RGB], or RGBA, which is painted faster.
    """

    def __init__(self, height: int, width: int):
        super().__init__()
        self.pixels = np.full((height, width, 3), 255, np.uint8)
        self.words = []  # (words, (x, y) of the baseline's start or end, font, anchor) of all that is written

    def boxes(self) -> list:
        """(words, box) of all that is written: left, top, right, bottom, in pixels."""
        boxes_of_words = []
        for words, (x, y), letters, anchor in self.words:
            left, top, right, bottom = letters.getbbox(words, anchor=anchor)
            boxes_of_words.append((words, (x + left, y + top, x + right, y + bottom)))
        return boxes_of_words

    def draw(self, renderer):
        np.asarray(renderer.buffer_rgba())[..., : self.pixels.shape[2]] = self.pixels


class Blocks(Artist):
    """An array of colours that fills an axes, an even block of pixels for each: `colours`, uint8 [rows, cols, RGB]."""

    def __init__(self, axes, colours: np.ndarray):
        super().__init__()
        self.colours, self._axes = colours, axes
        self.set_animated(True)
        axes.add_artist(self)

    def draw(self, renderer):
        left, bottom, right, top = (round(end) for end in self._axes.bbox.extents)
        rows, cols = (np.arange(n) * m // n for n, m in zip((top - bottom, right - left), self.colours.shape))
        page = np.asarray(renderer.buffer_rgba())
        page[len(page) - top : len(page) - bottom, left:right, :3] = self.colours[rows[:, None], cols]


def paint(pixels: np.ndarray, top: int, left: int, levels: np.ndarray):
    """Colour an area by what each of its pixels shows, with marks beside colours. levels: uint8 [height, width]."""
    area = pixels[top : top + levels.shape[0], left : left + levels.shape[1]]
    area[:] = _COLOURS[levels]
    y, x = np.ogrid[: levels.shape[0], : levels.shape[1]]
    rising, falling = (x + y) % 6, (x - y) % 6
    for level, marks, colour in (
        (MASKED, ((x + y) % 4 == 0) & (y % 2 == 0), FRAME),
        (WRITTEN, (x % 5 == 2) & (y % 5 == 2), WHITE),
        (AGAIN, rising < 2, WHITE),
        (OUTSIDE, (rising < 1) | (falling < 1), INK),
    ):
        here = levels == level
        if here.any():
            area[here & marks] = colour


def box(pixels: np.ndarray, top: int, left: int, bottom: int, right: int, colour=INK, width: int = 1):
    """A frame around the pixels from top to bottom and from left to right, ends left out; the frame lies outside."""
    t, l, b, r = top - width, left - width, bottom + width, right + width  # noqa: E741
    height, breadth = pixels.shape[:2]
    t, l, b, r = max(t, 0), max(l, 0), min(b, height), min(r, breadth)  # noqa: E741
    for rows, cols in (
        (slice(t, top), slice(l, r)),
        (slice(bottom, b), slice(l, r)),
        (slice(t, b), slice(l, left)),
        (slice(t, b), slice(right, r)),
    ):
        pixels[rows, cols] = colour


def _block(count: int, pixels: int) -> int:
    """Elements in a row of one cell: the power of two, as tiles end there, whose cells fill so many pixels best."""
    block = 1
    while -(-count // block) * LEAST > pixels:
        block *= 2
    filled = {b: pixels // -(-count // b) * -(-count // b) for b in (block, 2 * block)}
    return block if filled[block] > 0.9 * filled[2 * block] or count * MOST < pixels else 2 * block


def wanted(rows: int, cols: int, width: int, height: int) -> tuple:
    """(width, height) in pixels that a grid likes to take of so much room: near its own proportions, and no thread."""
    scale = min(width / cols, height / rows, MOST)
    wide, tall = cols * scale, rows * scale
    tall = max(tall, min(height, max(44, min(15 * rows, 0.35 * wide))))
    wide = max(wide, min(width, max(28, min(15 * cols, 0.35 * tall))))
    return int(wide), int(tall)


class Cells:
    """A grid of elements at its place on the page.

    rows, cols: (first, end) of the elements shown, which may begin and end beyond the tensor. top, left: of the first
    pixel. width, height: the pixels there are at most. inner: (rows, cols) of the tensor itself, framed.
    """

    def __init__(self, rows: tuple, cols: tuple, top: int, left: int, width: int, height: int, inner: tuple):
        self.rows, self.cols, self.top, self.left, self.inner = rows, cols, top, left, inner
        self.block = _block(rows[1] - rows[0], height), _block(cols[1] - cols[0], width)
        self.first = rows[0] // self.block[0], cols[0] // self.block[1]  # cells are counted from element (0, 0)
        self.shape = tuple(-(-end // b) - first for (_, end), b, first in zip((rows, cols), self.block, self.first))
        self.cell = tuple(max(1, min(room // n, MOST)) for room, n in zip((height, width), self.shape))
        self.height, self.width = (n * pixels for n, pixels in zip(self.shape, self.cell))
        ends = [-(-n // b) for n, b in zip(inner, self.block)]
        self.own = tuple(slice(-first, end - first) for first, end in zip(self.first, ends))  # the tensor's own cells
        parts = [np.arange(n * pixels) for n, pixels in zip(self.shape, self.cell)]
        self._row, self._col = (part // pixels for part, pixels in zip(parts, self.cell))
        self._gaps = [  # white lines part elements, so there are none between blocks of them
            part[part % pixels == pixels - 1] if pixels >= _GAP and block == 1 else []
            for part, pixels, block in zip(parts, self.cell, self.block)
        ]

    def blank(self) -> np.ndarray:
        """Levels of all cells where nothing has happened."""
        levels = np.full(self.shape, BEYOND, np.uint8)
        levels[self.own] = UNTOUCHED
        return levels

    def earliest(self, first: np.ndarray) -> np.ndarray:
        """The least number in each of the tensor's own cells. first: by element, [rows, cols]."""
        for axis, block in enumerate(self.block):
            first = np.minimum.reduceat(first, np.arange(0, first.shape[axis], block), axis)
        return first

    def places(self, rows, cols) -> tuple:
        """The cells of elements; those further away than what is shown are in the outermost ones."""
        return tuple(
            np.clip(np.asarray(place) // block - first, 0, n - 1)
            for place, block, first, n in zip((rows, cols), self.block, self.first, self.shape)
        )

    def paint(self, pixels: np.ndarray, levels: np.ndarray):
        """The cells, and the frame of the tensor."""
        pixel_levels = levels[self._row][:, self._col]
        paint(pixels, self.top, self.left, pixel_levels)
        area = pixels[self.top : self.top + self.height, self.left : self.left + self.width]
        area[self._gaps[0]] = WHITE
        area[:, self._gaps[1]] = WHITE
        self.frame(pixels, *((own.start, own.stop - 1) for own in self.own), colour=FRAME)

    def frame(self, pixels: np.ndarray, rows: tuple, cols: tuple, colour=INK, width: int = 1):
        """A frame around the cells from the first to the last row and column."""
        (top, bottom), (left, right) = (
            (start + first * pixel, start + (last + 1) * pixel)
            for start, (first, last), pixel in zip((self.top, self.left), (rows, cols), self.cell)
        )
        box(pixels, top, left, bottom, right, colour, width)
