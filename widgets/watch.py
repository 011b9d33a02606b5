"""The watch panel: what a launch really does, stepped through access by access, for any Triton kernel."""

import linecache
import textwrap
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageDraw

from instruments import trace as tracing
from instruments.trace import Program, Step, Trace
from widgets import cells
from widgets.cells import Cells
from widgets.panel import BLUE, GREEN, INK_RED, SHARPNESS, WIDTH, Panel, canvas, whole
from widgets.words import size

_VERBS = {"read": "loads", "write": "stores", "atomic": "updates"}
_SHORT = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64"}


def watch(
    function: Callable, *arguments, program: int = 0, access: int = 1, at: tuple | str | None = None, **options
) -> Panel:
    """Step through `function(*arguments, **options)`: which elements each program loads, stores or updates, in order.

    The function is called once, with its kernels interpreted on any machine. program: the one to open at, from 0,
    counted through all launches. access: the one to open at, from 1. at: (name, index) of an element, such as
    ("y", (3, 5)): opens at the program that stores it, or at the store that comes nearest. Or "outside": opens at the
    first access that leaves its tensor. A function that has an argument of one of these three names goes into a
    lambda. Of a large launch the first programs are kept (instruments/trace.py says how many), and the rest is only
    summed up, which the sentence says.

    Raises ValueError for arguments that cannot be watched: no function, a function that launches no kernel or gives it
    no tensor, an array that is no tensor, a program, access or element that is not there, and "outside" where no access
    leaves its tensor.
    """
    _check(function, arguments, program, access, at)
    if isinstance(at, tuple):
        at = at[0], tuple(at[1]) if isinstance(at[1], (tuple, list)) else (at[1],)
    kept = tracing.trace(function, arguments, options, at)
    nearness = None
    if at == "outside":
        if (place := kept.leaving()) is None:
            raise ValueError('at: got "outside", and no access leaves its tensor')
        at, program, access = None, place[0], place[1] + 1
    elif at is not None:
        program, access, nearness = kept.nearest(*at)
        access += 1
    if program >= len(kept.programs):
        raise ValueError(f"program: got {program}, expected at most {len(kept.programs) - 1}, the last one kept")
    steps = len(kept.programs[program].steps)
    if access > max(1, steps):
        raise ValueError(f"access: got {access}, expected at most {steps}, as many as program {program} makes")
    picture = _Picture(kept, at)
    controls = {"program": _slider("program", 0, len(kept.programs) - 1), "access": _slider("access", 1, 1)}

    def limit(_change=None):  # before the panel hears of the change: observers are called in their order
        _reach(controls["access"], 1, len(kept.programs[min(controls["program"].value, len(kept.programs) - 1)].steps))

    controls["program"].observe(limit, names="value")
    limit()

    def draw(program, access):
        chosen = kept.programs[min(program, len(kept.programs) - 1)]
        step = min(access, len(chosen.steps)) - 1
        picture.show(chosen, step)
        return _sentence(kept, chosen, step, _element(at, nearness) if at else "")

    for name, value in (("program", program), ("access", access)):  # in this order: the first limits the second
        controls[name].value = value
    names = list(dict.fromkeys(kept.report.kernels))
    return Panel(f"Watch {', '.join(names)}", picture.figure, controls, draw)


def check_call(function, arguments):
    """Raise ValueError unless a function that launches kernels is given, and no NumPy array to call it with."""
    if not callable(function) or hasattr(function, "arg_names"):  # as kernels and their tuners have
        expected = "a function that launches it, such as lambda: kernel[grid](x, y)"
        raise ValueError(f"function: got {type(function).__name__}, expected {expected}")
    for place, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            raise ValueError(f"arguments[{place}]: got a NumPy array, expected a torch tensor")


def _check(function, arguments, program, access, at):
    check_call(function, arguments)
    for name, value, least in (("program", program, 0), ("access", access, 1)):
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name}: got {value!r}, expected a whole number from {least} on")
    if at not in (None, "outside") and not (isinstance(at, tuple) and len(at) == 2 and isinstance(at[0], str)):
        expected = 'a tensor\'s name and an index, such as ("y", (3, 5)), or "outside"'
        raise ValueError(f"at: got {at!r}, expected {expected}")


def _slider(label: str, low: int, high: int):
    slider = whole(label, low, low + 1, low)
    _reach(slider, low, high)
    return slider


def _reach(slider, low: int, high: int):
    """Let a slider go up to high; one that has nowhere to go stands still."""
    slider.max, slider.disabled = max(high, low + 1), high <= low
    if slider.disabled:
        slider.value = low


# ---------------------------------------------------------------- the sentence


def _lanes(count: int) -> str:
    return f"{count:,} lane{'s' * (count != 1)}"


def _lanes_said(step: Step) -> str:
    """What the lanes of an access do."""
    inside = step.count(tracing.INSIDE) + step.count(tracing.AGAIN)
    masked, outside = step.count(tracing.MASKED), step.count(tracing.OUTSIDE)
    total = inside + masked + outside
    if inside == total:
        said = "its lane inside" if total == 1 else f"all {_lanes(total)} inside"
    else:
        said = f"{inside:,} of {_lanes(total)} inside"
    if masked:
        said += f", {masked:,} masked off"
    if outside:
        said += f", {outside:,} OUTSIDE the tensor (left out here; on a GPU they meet other memory)"
    return said


def _again_said(step: Step) -> str:
    again = step.count(tracing.AGAIN)
    if not again:
        return ""
    done = "read" if step.kind == "read" else "written"
    others = again - step.own_again
    whom = "this program has" if not others else "other programs have" if not step.own_again else "programs have"
    return f"; {_lanes(again)} at what {whom} {done} before"


def _program_said(kept: Trace, program: Program) -> str:
    axes = [axis for axis, n in enumerate(program.grid) if n > 1]
    last = int(np.prod(program.grid)) - 1
    of = f"Program {program.number}" + (f" (the last is {last})" if program.number < last else " (the last)")
    if axes and axes[-1] > 0:
        of += f", at {program.index[: axes[-1] + 1]} in the grid"
    if len(kept.sizes) > 1:
        of = f"Launch {program.launch + 1} of {len(kept.sizes)}, {program.kernel}: {of[0].lower()}{of[1:]}"
    return of


def _action(program: Program, at: int) -> str:
    step = program.steps[at]
    return f"access {at + 1} of {len(program.steps)}: {_VERBS[step.kind]} {step.where}"


def _asked(kept: Trace) -> str:
    """What the whole launch asks for, in words."""
    ratio = kept.report.traffic.bytes / kept.report.unique.bytes if kept.report.unique.bytes else 0
    often = f"{ratio:.2f}".rstrip("0").rstrip(".")
    return "the minimum" if often == "1" else f"{often} times the minimum"


def _is_last(kept: Trace, program: Program, at: int) -> bool:
    rest = kept.programs[kept.programs.index(program) + 1 :]
    return at == len(program.steps) - 1 and not any(other.steps for other in rest)


def _element(at: tuple, nearness) -> str:
    element = f"{at[0]}[{', '.join(map(str, at[1]))}]"
    return {
        tracing.INSIDE: f"{element} is stored here. ",
        tracing.MASKED: f"No program stores {element}: here its lane is masked off. ",
        tracing.ELSEWHERE: f"No program stores {element}: this store comes nearest. ",
        None: f"No program stores to {at[0]}. ",
    }[nearness]


def _sentence(kept: Trace, program: Program, at: int, element: str) -> str:
    """The current step in words."""
    report = kept.report
    said = element + _program_said(kept, program)
    if at < 0:
        return f"{said}, touches no memory."
    step = program.steps[at]
    said += f", {_action(program, at)}, {_lanes_said(step)}{_again_said(step)}. So far "
    total, once = report.traffic, report.unique
    said += (
        f"{step.read:,} of {total.bytes_read:,} bytes read and {step.written:,} of {total.bytes_written:,} written; "
        f"each byte once: {once.bytes_read:,} and {once.bytes_written:,}"
    )
    if _is_last(kept, program, at):
        said += f", so that the whole asks for {_asked(kept)}"
    code = linecache.getline(step.file, step.line).strip()
    said += f". Line {step.line}" + (f": `{code}`" if code else "") + "."
    if not program.whole:
        said += f" Only the first {len(program.steps):,} accesses of this program are kept."
    if len(kept.programs) < sum(kept.sizes):
        said += f" {len(kept.programs):,} of {sum(kept.sizes):,} programs are kept, the others only summed up."
    return said


# ---------------------------------------------------------------- the picture

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


def _reached(kept: Trace) -> dict:
    """{tensor: ((first, end) of rows, (first, end) of columns)} that lanes are at.

    The tensor itself is included, and what is beyond it no further than it is large.
    """
    reached = {name: ([0, 0], list(place.first.shape)) for name, place in kept.tensors.items()}
    for program in kept.programs:
        for step in program.steps:
            low, high = reached[step.tensor]
            here = step.lanes != tracing.ELSEWHERE
            for axis, places in enumerate((step.rows, step.cols)):
                low[axis] = min(low[axis], int(places[here].min()))
                high[axis] = max(high[axis], int(places[here].max()) + 1)
    result = {}
    for name, (low, high) in reached.items():
        own = kept.tensors[name].first.shape
        result[name] = tuple((max(a, -max(8, n)), min(b, n + max(8, n))) for a, b, n in zip(low, high, own))
    return result


def _shelves(kept: Trace) -> tuple:
    """The tensors in order, on the shelves that show them largest.

    Returns {tensor: Cells}, the width of a place on a shelf, and the height of all shelves, in CSS pixels.
    """
    reached = _reached(kept)
    names = [name for name, place in kept.tensors.items() if place.first.size]
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
            own = kept.tensors[name].first.shape
            maps[name] = Cells(*reached[name], _pixels(top + _TITLE), left, *sizes[name], own)
        top += _TITLE + height + gap
    return maps, breadth, taken + gap * (len(rows) - 1) + 14  # words about cells may stand below a map


class _Picture:
    """The figure of a trace: `show` moves it to a program and one of its steps."""

    def __init__(self, kept: Trace, at: tuple | None):
        self.kept, self.at, self.cells = kept, at, {}
        self.maps, breadth, taken = _shelves(kept)
        self.source_top = _TOP + max(taken, _SIDE_HEIGHT) + 4
        height = self.source_top + _LINES * 16 + 12 + 26
        height += -height % 4  # as many whole pixels
        self.figure = canvas(WIDTH, height)
        self.page = cells.Pixels(_pixels(height), _pixels(WIDTH))
        self.page.set_animated(True)
        self.figure.add_artist(self.page)
        self.earliest = {name: grid.earliest(kept.tensors[name].first) for name, grid in self.maps.items()}
        report = kept.report
        self.totals = report.traffic.bytes_read, report.traffic.bytes_written
        self.once = report.unique.bytes_read, report.unique.bytes_written
        ground = self.page.pixels  # what stays
        ground[_pixels(self.source_top) : _pixels(height - 26), _pixels(_LEFT) : _pixels(WIDTH - _LEFT)] = 246
        legend = self._swatches(ground, height - 12)
        image = Image.fromarray(ground)
        self.words = ImageDraw.Draw(image)
        for name, grid in self.maps.items():
            self._title(name, kept.tensors[name], grid, breadth)
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
        """Paints the legend, and says where its words go."""
        x, legend = _LEFT, []
        for level, words in _LEGEND:
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
            levels[grid.own][self.earliest[name] < self.kept.ordinal(program)] = cells.EARLIER
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
        said = self._tile(pixels, step) + self._bytes(pixels, program, at) + self._source(pixels, step)
        head = _program_said(self.kept, program) + (f", {_action(program, at)}" if step else ", touches no memory")
        said.append((_LEFT, 17, _fitted(head, WIDTH - 2 * _LEFT, 10, "-Bold"), 10, "-Bold"))
        image = Image.fromarray(pixels)
        self.words = ImageDraw.Draw(image)
        del self.page.words[self.always :]
        for words in said:
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
            int(place) for place in grid.places(*tracing.as_grid(self.kept.tensors[self.at[0]].shape, self.at[1]))
        )
        for width, colour in ((4, cells.INK), (2, cells.WHITE)):
            grid.frame(pixels, (row, row), (col, col), colour, width)

    def _tile(self, pixels, step) -> list:
        """Paints the lanes of an access; these three return what `_write` is to write."""
        if not step:
            return []
        lanes = step.lanes.reshape(-1, step.lanes.shape[-1] if step.lanes.ndim else 1)
        if lanes.shape[0] == 1:  # folded, to about twice as wide as high
            width = 1 << max(0, (2 * lanes.size - 1).bit_length() // 2)
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
        said = [(f"{step.count(tracing.INSIDE) + again:,} inside, {masked:,} masked off", _GREY)]
        said += [(f"{again:,} once more", _GREY)] if again else []
        said += [(f"{outside:,} OUTSIDE the tensor", INK_RED)] if outside else []
        return [
            (_SIDE, _TOP + 8, f"its tile: {shape} lane{'s' * (step.lanes.size != 1)}", 9, "-Bold"),
            *((_SIDE, _TOP + 124 + 14 * i, words, 8.5, "", colour) for i, (words, colour) in enumerate(said)),
        ]

    def _bytes(self, pixels, program, at) -> list:
        most, left, width, height = max(*self.totals, 1), _pixels(_SIDE), _pixels(_SIDE_WIDTH), _pixels(9)
        said = []
        for so_far, total, once, top, colour in zip(
            self._so_far(program, at), self.totals, self.once, _BYTE_TOPS, (BLUE, GREEN)
        ):
            ends = [left + round(width * count / most) for count in (so_far, total, once)]
            said.append((_SIDE + _SIDE_WIDTH, top - 9, f"{size(so_far)} of {size(total)}", 8.5, "", "black", "r"))
            top = _pixels(top)
            bar = pixels[top : top + height]
            bar[:, left : ends[1]] = 225
            bar[:, left : ends[0]] = cells.rgb(colour)
            pixels[top - 3 : top + height + 3, max(ends[2] - 2, left) : max(ends[2], left + 2)] = cells.INK
        last = at >= 0 and _is_last(self.kept, program, at)
        end = f"in all {_asked(self.kept)}" if last else "black mark: each byte once"
        return [*said, (_SIDE, _BYTE_TOPS[-1] + 24, end, 8.5, "", "black" if last else _GREY)]

    def _so_far(self, program, at) -> tuple:
        """Bytes read and written up to a step, or by the programs before one that makes none."""
        if at >= 0:
            return program.steps[at].read, program.steps[at].written
        earlier = [other.steps[-1] for other in self.kept.programs[: self.kept.programs.index(program)] if other.steps]
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
        said = []
        for i, (number, line) in enumerate(zip(numbers, textwrap.dedent("\n".join(code)).split("\n"))):
            line = line if len(line) <= _COLUMNS else line[: _COLUMNS - 1] + "…"
            colour = "black" if number == step.line else _GREY
            if line:
                said.append((_LEFT + 8, top + 8 + 16 * i, f"{number:>4}  {line}", 8.5, "Mono", colour))
        return said


def _levels(step: Step) -> tuple:
    """(what a lane does, how it is shown), the strongest last."""
    performed = cells.READ if step.kind == "read" else cells.WRITTEN
    return (
        (tracing.MASKED, cells.MASKED),
        (tracing.INSIDE, performed),
        (tracing.AGAIN, cells.AGAIN),
        (tracing.OUTSIDE, cells.OUTSIDE),
    )
