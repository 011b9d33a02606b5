"""The picture of `watch`: a launch's tensors as grids of cells, one access of a program, and its line of source."""

import linecache
import textwrap

import numpy as np
import torch
from PIL import Image, ImageDraw

from instruments import trace as tracing
from instruments.trace import Program, Step, Trace
from widgets.toolkit import cells
from widgets.toolkit.cells import Cells
from widgets.toolkit.panel import BLUE, GREEN, INK_RED, SHARPNESS, WIDTH, canvas
from widgets.toolkit.words import size

_VERBS = {"read": "loads", "write": "stores", "atomic": "updates"}
_SHORT = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64"}
_LEFT, _TOP, _MAPS, _SIDE, _SIDE_WIDTH, _SIDE_HEIGHT = 12, 36, 520, 556, 192, 256  # CSS pixels
_TITLE = 19  # above a map
_BYTE_TOPS = _TOP + 188, _TOP + 226  # of the bars
_LINES, _COLUMNS = 5, 92  # of source
_HERE = np.array([255, 243, 176], np.uint8)  # behind the line of source
_GREY = "#555555"
_LEGEND = (
    (cells.READ, "loads"),
    (cells.WRITTEN, "stores"),
    (cells.AGAIN, "once more"),
    (cells.MASKED, "masked off"),
    (cells.OUTSIDE, "outside the tensor"),
    (cells.BEFORE, "this program, before"),
    (cells.EARLIER, "earlier programs"),
)


def _pixels(css: float) -> int:
    return round(css * SHARPNESS)


def _fitted(words: str, room: float, points: float, style: str = "") -> str:
    """The words, cut where they need more CSS pixels than there are."""
    while _width(words, points, style) > room and len(words) > 2:
        words = words.rstrip("…")[:-1] + "…"
    return words


def _width(words: str, points: float, style: str = "") -> float:
    return cells.font(points, style).getlength(words) / SHARPNESS


def _reached(trace: Trace) -> dict:
    """{tensor: ((first, end) of rows, (first, end) of columns)} that lanes are at.

    The tensor itself is included, and what is beyond it no further than it is large.
    """
    reached = {name: ([0, 0], list(place.first.shape)) for name, place in trace.tensors.items()}
    for program in trace.programs:
        for step in program.steps:
            low, high = reached[step.tensor]
            here = step.lanes != tracing.ELSEWHERE
            for axis, places in enumerate((step.rows, step.cols)):
                low[axis] = min(low[axis], int(places[here].min()))
                high[axis] = max(high[axis], int(places[here].max()) + 1)
    result = {}
    for name, (low, high) in reached.items():
        own = trace.tensors[name].first.shape
        result[name] = tuple((max(a, -max(8, n)), min(b, n + max(8, n))) for a, b, n in zip(low, high, own))
    return result


def _shelves(trace: Trace) -> tuple:
    """The tensors in order, on the shelves that show them largest.

    Returns {tensor: Cells}, the width of a place on a shelf, and the height of all shelves, in CSS pixels.
    """
    reached = _reached(trace)
    names = [name for name, place in trace.tensors.items() if place.first.size]
    best = None
    for across in range(1, min(len(names), 4) + 1):
        rows = [names[i : i + across] for i in range(0, len(names), across)]
        breadth = (_MAPS + 12) // across - 12
        most = max(20, 300 // len(rows) - _TITLE - 8)
        sizes = {
            name: cells.wanted(*(b - a for a, b in reached[name]), _pixels(breadth), _pixels(most)) for name in names
        }
        area = sum(wide * tall for wide, tall in sizes.values())
        if best is None or area > 1.15 * best[0]:  # fewer beside each other, unless that costs much
            best = area, rows, breadth, sizes
    _, rows, breadth, sizes = best
    heights = [round(max(sizes[name][1] for name in row) / SHARPNESS) for row in rows]
    taken = sum(heights) + _TITLE * len(rows)
    gap = min(30, max(12, (_SIDE_HEIGHT - taken) // len(rows)))
    maps, top = {}, _TOP - 2
    for row, height in zip(rows, heights):
        for place, name in enumerate(row):
            left = _pixels(_LEFT + place * (breadth + 12))
            own = trace.tensors[name].first.shape
            maps[name] = Cells(*reached[name], _pixels(top + _TITLE), left, *sizes[name], own)
        top += _TITLE + height + gap
    return maps, breadth, taken + gap * (len(rows) - 1) + 14  # words about cells may stand below a map


def program_words(trace: Trace, program: Program) -> str:
    axes = [axis for axis, n in enumerate(program.grid) if n > 1]
    last = int(np.prod(program.grid)) - 1
    of = f"Program {program.number}" + (f" (the last is {last})" if program.number < last else " (the last)")
    if axes and axes[-1] > 0:
        of += f", at {program.index[: axes[-1] + 1]} in the grid"
    if len(trace.sizes) > 1:
        of = f"Launch {program.launch + 1} of {len(trace.sizes)}, {program.kernel}: {of[0].lower()}{of[1:]}"
    return of


def action_words(program: Program, at: int) -> str:
    step = program.steps[at]
    return f"access {at + 1} of {len(program.steps)}: {_VERBS[step.kind]} {step.where}"


def requested_words(trace: Trace) -> str:
    """What the whole launch requests, in words."""
    ratio = trace.report.traffic.bytes / trace.report.unique.bytes if trace.report.unique.bytes else 0
    often = f"{ratio:.2f}".rstrip("0").rstrip(".")
    return "the minimum" if often == "1" else f"{often} times the minimum"


def is_last(trace: Trace, program: Program, at: int) -> bool:
    rest = trace.programs[trace.programs.index(program) + 1 :]
    return at == len(program.steps) - 1 and not any(other.steps for other in rest)


class LaunchPicture:
    """The figure of a trace: `show` moves it to a program and one of its steps."""

    def __init__(self, trace: Trace, at: tuple | None):
        self.trace, self.at, self.cells = trace, at, {}
        self.maps, breadth, taken = _shelves(trace)
        self.source_top = _TOP + max(taken, _SIDE_HEIGHT) + 4
        height = self.source_top + _LINES * 16 + 12 + 26
        height += -height % 4  # as many whole pixels
        self.figure = canvas(WIDTH, height)
        self.page = cells.Pixels(_pixels(height), _pixels(WIDTH))
        self.page.set_animated(True)
        self.figure.add_artist(self.page)
        self.earliest = {name: grid.earliest(trace.tensors[name].first) for name, grid in self.maps.items()}
        report = trace.report
        self.totals = report.traffic.bytes_read, report.traffic.bytes_written
        self.once = report.unique.bytes_read, report.unique.bytes_written
        ground = self.page.pixels  # what stays
        ground[_pixels(self.source_top) : _pixels(height - 26), _pixels(_LEFT) : _pixels(WIDTH - _LEFT)] = 246
        legend = self._swatches(ground, height - 12)
        image = Image.fromarray(ground)
        self.words = ImageDraw.Draw(image)
        for name, grid in self.maps.items():
            self._title(name, trace.tensors[name], grid, breadth)
        for top, words in zip(_BYTE_TOPS, ("read", "written")):
            self._write(_SIDE, top - 9, words, 9, "-Bold")
        for x, words in legend:
            self._write(x, height - 12, words, 8.5)
        self.ground, self.always = np.asarray(image), len(self.page.words)

    def _write(self, x, y, words, points, style="", colour="black", anchor="l"):
        """Words from (or with anchor 'r' to) x, about y, in CSS pixels."""
        place = x * SHARPNESS, (y + 0.35 * points * 100 / 72) * SHARPNESS
        face, anchor = cells.font(points, style), anchor + "s"
        self.words.text(place, words, font=face, fill=colour, anchor=anchor)
        self.page.words.append((words, place, face, anchor))

    def _title(self, name, place, grid, breadth):
        dtype = _SHORT.get(place.dtype, str(place.dtype).removeprefix("torch."))
        words = f"{' x '.join(map(str, place.shape)) or 'scalar'} {dtype}"
        x, y = grid.left / SHARPNESS, grid.top / SHARPNESS - 10
        if max(grid.block) > 1:
            rows, cols = grid.block
            block = f"cells of {f'{rows} x ' if place.first.shape[0] > 1 else ''}{cols}"
            if _width(f"{words}, {block}", 8.5) + _width(name, 9, "-Bold") + 7 < breadth:
                words += f", {block}"
            else:
                self._write(x, y + 19 + grid.height / SHARPNESS, block, 8, colour=_GREY)
        name = _fitted(name, breadth - 7 - _width(words, 8.5), 9, "-Bold")
        self._write(x, y, name, 9, "-Bold")
        self._write(x + _width(name, 9, "-Bold") + 7, y, words, 8.5, colour=_GREY)

    def _swatches(self, ground, y) -> list:
        """Paints the legend of what occurs in this trace, and says where its words go."""
        x, legend = _LEFT, []
        steps = [step for program in self.trace.programs for step in program.steps]
        rare = {cells.AGAIN: tracing.AGAIN, cells.MASKED: tracing.MASKED, cells.OUTSIDE: tracing.OUTSIDE}
        for level, words in _LEGEND:
            if level in rare and not any(step.count(rare[level]) for step in steps):
                continue
            top, left, side = _pixels(y - 6), _pixels(x), _pixels(12)
            cells.paint(ground, top, left, np.full((side, side), level, np.uint8))
            cells.box(ground, top, left, top + side, left + side, cells.FRAME)
            legend.append((x + 18, words))
            x += 18 + _width(words, 8.5) + 13
        return legend

    def show(self, program: Program, at: int):
        pixels = self.ground.copy()
        step = program.steps[at] if at >= 0 else None
        for name, grid in self.maps.items():
            levels = grid.blank()
            levels[grid.own][self.earliest[name] < self.trace.ordinal(program)] = cells.EARLIER
            for before in program.steps[: max(at, 0)]:
                if before.tensor == name:
                    levels[self._performed(before)] = cells.BEFORE
            if step and step.tensor == name:
                rows, cols = grid.places(step.rows, step.cols)
                for lane, level in _levels(step):
                    lanes = step.lanes == lane
                    levels[rows[lanes], cols[lanes]] = level
            grid.paint(pixels, levels)
            if step and step.tensor == name:
                here = step.lanes != tracing.ELSEWHERE
                ends = [(int(places[here].min()), int(places[here].max())) for places in (rows, cols)]
                grid.frame(pixels, *ends, width=2)
            if self.at and self.at[0] == name:
                self._mark(pixels, grid)
        texts = self._tile(pixels, step) + self._bytes(pixels, program, at) + self._source(pixels, step)
        head = program_words(self.trace, program) + (
            f", {action_words(program, at)}" if step else ", touches no memory"
        )
        texts.append((_LEFT, 17, _fitted(head, WIDTH - 2 * _LEFT, 10, "-Bold"), 10, "-Bold"))
        image = Image.fromarray(pixels)
        self.words = ImageDraw.Draw(image)
        del self.page.words[self.always :]
        for words in texts:
            self._write(*words)
        self.page.pixels = np.asarray(image.convert("RGBA"))

    def _performed(self, step: Step) -> tuple:
        """The cells whose elements a step read or wrote."""
        if step not in self.cells:
            done = (step.lanes == tracing.INSIDE) | (step.lanes == tracing.AGAIN)
            grid = self.maps[step.tensor]
            rows, cols = grid.places(step.rows[done], step.cols[done])
            self.cells[step] = np.unravel_index(np.unique(rows * grid.shape[1] + cols), grid.shape)
        return self.cells[step]

    def _mark(self, pixels, grid):
        """A ring around the element that the panel was opened at."""
        row, col = (
            int(place) for place in grid.places(*tracing.as_grid(self.trace.tensors[self.at[0]].shape, self.at[1]))
        )
        for width, colour in ((4, cells.INK), (2, cells.WHITE)):
            grid.frame(pixels, (row, row), (col, col), colour, width)

    def _tile(self, pixels, step) -> list:
        """Paints the lanes of an access; these three return what `_write` is to write."""
        if not step:
            return []
        lanes = step.lanes.reshape(-1, step.lanes.shape[-1] if step.lanes.ndim else 1)
        wrapped = lanes.shape[0] == 1 and lanes.size > 16  # so many are drawn in one row
        if wrapped:  # to two to four times as wide as high: cells of few elements, so that masked-off ones show
            width = 1 << ((2 * lanes.size - 1).bit_length() + 1) // 2
            lanes = np.pad(lanes[0], (0, -lanes.size % width), constant_values=tracing.ELSEWHERE).reshape(-1, width)
        rows, cols = lanes.shape
        room = cells.wanted(rows, cols, _pixels(_SIDE_WIDTH), _pixels(92))
        grid = Cells((0, rows), (0, cols), _pixels(_TOP + 20), _pixels(_SIDE), *room, lanes.shape)
        levels = np.full(grid.shape, cells.BEYOND, np.uint8)
        at = np.indices(lanes.shape)
        for lane, level in _levels(step):
            levels[grid.places(*at[:, lanes == lane])] = level
        grid.paint(pixels, levels)
        masked, again, outside = (step.count(what) for what in (tracing.MASKED, tracing.AGAIN, tracing.OUTSIDE))
        shape = " x ".join(map(str, step.lanes.shape or (1,)))
        texts = [(f"{step.count(tracing.INSIDE) + again:,} inside, {masked:,} masked off", _GREY)]
        texts += [(f"{again:,} once more", _GREY)] if again else []
        texts += [(f"{outside:,} OUTSIDE the tensor", INK_RED)] if outside else []
        texts += [(f"one row, drawn as {rows}", _GREY)] if wrapped else []
        head = f"its tile: {shape} element{'s' * (step.lanes.size != 1)}"
        return [
            (_SIDE, _TOP + 8, head, 9, "-Bold"),
            *((_SIDE, _TOP + 124 + 14 * i, words, 8.5, "", colour) for i, (words, colour) in enumerate(texts)),
        ]

    def _bytes(self, pixels, program, at) -> list:
        most, left, width, height = max(*self.totals, 1), _pixels(_SIDE), _pixels(_SIDE_WIDTH), _pixels(9)
        texts = []
        for so_far, total, once, top, colour in zip(
            self._so_far(program, at), self.totals, self.once, _BYTE_TOPS, (BLUE, GREEN)
        ):
            ends = [left + round(width * count / most) for count in (so_far, total, once)]
            texts.append((_SIDE + _SIDE_WIDTH, top - 9, f"{size(so_far)} of {size(total)}", 8.5, "", "black", "r"))
            top = _pixels(top)
            bar = pixels[top : top + height]
            bar[:, left : ends[1]] = 225
            bar[:, left : ends[0]] = cells.rgb(colour)
            pixels[top - 3 : top + height + 3, max(ends[2] - 2, left) : max(ends[2], left + 2)] = cells.INK
        last = at >= 0 and is_last(self.trace, program, at)
        end = f"in all {requested_words(self.trace)}" if last else "black mark: each byte once"
        return [*texts, (_SIDE, _BYTE_TOPS[-1] + 24, end, 8.5, "", "black" if last else _GREY)]

    def _so_far(self, program, at) -> tuple:
        """Bytes read and written up to a step, or by the programs before one that makes none."""
        if at >= 0:
            return program.steps[at].read, program.steps[at].written
        earlier = [
            other.steps[-1] for other in self.trace.programs[: self.trace.programs.index(program)] if other.steps
        ]
        return (earlier[-1].read, earlier[-1].written) if earlier else (0, 0)

    def _source(self, pixels, step) -> list:
        if not step:
            return []
        top = self.source_top + 6
        here = top + 16 * (_LINES // 2)
        pixels[_pixels(here) : _pixels(here + 16), _pixels(_LEFT) : _pixels(WIDTH - _LEFT)] = _HERE
        numbers = range(step.line - _LINES // 2, step.line + _LINES // 2 + 1)
        code = [linecache.getline(step.file, number).rstrip() if number > 0 else "" for number in numbers]
        if not code[_LINES // 2]:  # a kernel whose file is not there
            return [(_LEFT + 8, here + 8, f"{step.line:>4}", 8.5, "Mono")]
        for i, line in enumerate(code):
            if i > _LINES // 2 and line[:1].strip(") "):  # the kernel has ended
                code[i:] = [""] * (_LINES - i)
        texts = []
        for i, (number, line) in enumerate(zip(numbers, textwrap.dedent("\n".join(code)).split("\n"))):
            line = line if len(line) <= _COLUMNS else line[: _COLUMNS - 1] + "…"
            colour = "black" if number == step.line else _GREY
            if line:
                texts.append((_LEFT + 8, top + 8 + 16 * i, f"{number:>4}  {line}", 8.5, "Mono", colour))
        return texts


def _levels(step: Step) -> tuple:
    """(what an element does, how it is shown), the strongest last."""
    performed = cells.READ if step.kind == "read" else cells.WRITTEN
    return (
        (tracing.MASKED, cells.MASKED),
        (tracing.INSIDE, performed),
        (tracing.AGAIN, cells.AGAIN),
        (tracing.OUTSIDE, cells.OUTSIDE),
    )
