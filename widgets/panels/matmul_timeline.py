"""The panel of a matmul's work over time: which SM multiplies which step along K of which tile of c."""

import numpy as np
from matplotlib.patches import Rectangle

from instruments.backend import cdiv
from kernels.matmul.stream_k import stream_plan
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, RED, WIDTH, Example, Panel, canvas, menu, whole

TILES, SPLIT, STREAM = "one program per tile", "split-K", "stream-K"
WAYS = (TILES, SPLIT, STREAM)
SMS = 6
#: {name: (tiles of c, steps along K of each, parts per tile with split-K)}
SHAPES = {"1 tile of 24 steps": (1, 24, 6), "7 tiles of 6 steps": (7, 6, 2), "6 tiles of 6 steps": (6, 6, 2)}
EXAMPLE = Example(entry="3", text="Time 3", arguments={"way": SPLIT})

_HEIGHT, _LEFT, _TOP, _STEP, _ROW = 430, 96, 34, 25, 21
_LINES, _BAR = 244, 25  # top of the timelines, height of an SM's line
#: One color per SM: its steps above, its line below.
COLORS = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#9db7d5")


def programs_of(way: str, shape: str) -> list[list[tuple[int, int]]]:
    """The steps (tile, step) of each program, in its order.

    Args:
        way: one of WAYS.
        shape: one of SHAPES.
    """
    tiles, steps, parts = SHAPES[shape]
    if way == STREAM:  # tiles of one element, so that sizes count tiles and steps
        plan = stream_plan(tiles, 1, steps, SMS, {"BLOCK_M": 1, "BLOCK_N": 1, "BLOCK_K": 1})
        pieces = [plan.pieces(program) for program in range(plan.programs)]
        return [[(tile, first + at) for tile, first, count in own for at in range(count)] for own in pieces]
    size = cdiv(steps, parts if way == SPLIT else 1)
    starts = [(tile, start) for tile in range(tiles) for start in range(0, steps, size)]
    return [[(tile, step) for step in range(start, min(start + size, steps))] for tile, start in starts]


def schedule(programs: list) -> list[tuple[int, int]]:
    """(SM, start) of each program: the SM that is free first takes the next one."""
    free, places = [0] * SMS, []
    for steps in programs:
        sm = min(range(SMS), key=free.__getitem__)
        places.append((sm, free[sm]))
        free[sm] += len(steps)
    return places


def shared_tiles(programs: list) -> int:
    """How many tiles have parts of several programs, which have to be added."""
    owners = [{tile for tile, _ in steps} for steps in programs]
    return sum(sum(tile in of for of in owners) > 1 for tile in {tile for of in owners for tile in of})


#: {name: units of time that the timelines hold}, the same for all ways
SPANS = {name: (tiles * steps if tiles == 1 else 2 * steps) + 1 for name, (tiles, steps, _) in SHAPES.items()}
LAST = max(SPANS.values())


def matmul_timeline(step: int = 0, way: str = TILES, shape: str = "7 tiles of 6 steps") -> Panel:
    """A matmul on a GPU of six SMs, one program each at a time; every step along K takes one unit of time.

    Args:
        step: Units of time that have passed.
        way: One of WAYS.
        shape: One of SHAPES.
    """
    picture = _Picture()

    def draw(step, way, shape):
        tiles, steps, _ = SHAPES[shape]
        programs = programs_of(way, shape)
        places = schedule(programs)
        end, shared = max(start + len(own) for own, (_, start) in zip(programs, places)), shared_tiles(programs)
        last = end + (shared > 0)
        now = min(step, last)
        picture.show(programs, places, tiles, now, end if shared else None, SPANS[shape])
        busy = sum(start < now <= start + len(own) for own, (_, start) in zip(programs, places))
        done = sum(min(max(now - start, 0), len(own)) for own, (_, start) in zip(programs, places))
        finish = f"{last} units of time" + (", the last one for adding parts." if shared else ", and nothing to add.")
        plan = f"{way}: {len(programs)} programs on {SMS} SMs, {finish}"
        idle = f"The SMs are busy for {tiles * steps / (end * SMS):.0%} of the time before that."
        if now == 0:
            return f"Nothing is multiplied yet: {tiles * steps} steps in {tiles} tiles. {plan} {idle}"
        if now > end:
            return f"Time {now}: the second kernel adds the parts of {shared} tile{'s' * (shared > 1)}. {plan} {idle}"
        return f"Time {now}: {busy} of {SMS} SMs are busy, {done} of {tiles * steps} steps are done. {plan} {idle}"

    controls = {
        "step": whole("time", 0, LAST, 0),
        "way": menu("programs", WAYS, TILES),
        "shape": menu("matmul", SHAPES, "7 tiles of 6 steps"),
    }
    return Panel("Who multiplies which step", picture.figure, controls, draw).set(step=step, way=way, shape=shape)


class _Picture:
    """Above, each tile's steps along K, colored by the SM that multiplies them; below, a line of time per SM."""

    def __init__(self):
        self.figure = canvas(height=_HEIGHT)
        axes = self.figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(_HEIGHT, 0))
        axes.axis("off")
        bold = {"fontsize": 9.5, "weight": "bold", "va": "center"}
        axes.text(8, 14, "tiles of C, each a row of steps along K", **bold)
        axes.text(8, _LINES - 16, "SMs over time", **bold)
        words = "thick edge: a piece of a tile begins    hatched: parts are added"
        axes.text(WIDTH - 8, _LINES - 16, words, fontsize=9, ha="right", va="center")
        look = {"edgecolor": BLACK, "linewidth": 0.8}
        self.ahead = [Boxes(axes, color, alpha=0.28, **look) for color in COLORS]
        self.done = [Boxes(axes, color, **look) for color in COLORS]
        self.now = Boxes(axes, "none", edgecolor=RED, linewidth=2.5, zorder=4)
        self.lines = [Boxes(axes, color, **look) for color in COLORS]
        self.begins = Boxes(axes, BLACK, zorder=4)
        self.sums = Boxes(axes, "white", hatch="////", **look)
        self.rows = [axes.text(_LEFT - 8, 0, "", fontsize=9, ha="right", va="center", animated=True) for _ in range(7)]
        for sm in range(SMS):
            axes.text(_LEFT - 8, _LINES + (sm + 0.5) * _BAR, f"SM {sm}", fontsize=9, ha="right", va="center")
            axes.add_patch(Rectangle((_LEFT - 90, _LINES + sm * _BAR + 5), 14, 14, facecolor=COLORS[sm], **look))
        bottom = _LINES + SMS * _BAR
        look = {"fontsize": 9, "ha": "center", "va": "center", "animated": True}
        self.ticks = {at: axes.text(0, bottom + 12, "", **look) for at in range(0, LAST, 2)}
        axes.text(WIDTH - 10, bottom + 28, "units of time", fontsize=9, ha="right", va="center")
        (self.clock,) = axes.plot([], [], "--", color=RED, linewidth=1.5, animated=True)

    def show(self, programs, places, tiles: int, now: int, sums_at: int | None, span: int):
        """sums_at: when the second kernel starts, None without one. span: units of time that the width holds."""
        unit = (WIDTH - _LEFT - 14) / span
        ahead, done, lines = ([[] for _ in COLORS] for _ in range(3))
        row = _ROW if tiles > 1 else 5 * _ROW  # a tile alone is drawn taller
        running, begins = [], []
        for steps, (sm, start) in zip(programs, places):
            y = _LINES + sm * _BAR + 2
            for at, (tile, step) in enumerate(steps):
                begin = start + at
                place = (_LEFT + step * _STEP, _TOP + tile * (_ROW + 3))
                (done if begin < now else ahead)[sm].append(place)
                if begin + 1 == now:
                    running.append(place)
                if begin < now:
                    lines[sm].append((_LEFT + begin * unit, y))
                    if at == 0 or steps[at - 1][0] != tile:
                        begins.append((_LEFT + begin * unit - 1.5, y))
        for boxes, of in ((self.ahead, ahead), (self.done, done)):
            for each, spots in zip(boxes, of):
                _place(each, spots, _STEP - 2, row)
        for each, spots in zip(self.lines, lines):
            _place(each, spots, unit, _BAR - 4)
        _place(self.now, running, _STEP - 2, row)
        _place(self.begins, begins, 4, _BAR - 4)
        adding = sums_at is not None and now > sums_at
        spots = [(_LEFT + sums_at * unit, _LINES + sm * _BAR + 2) for sm in range(SMS)] if adding else []
        _place(self.sums, spots, unit, _BAR - 4)
        for at, text in self.ticks.items():
            text.set(text=str(at) if at < span else "", x=_LEFT + at * unit)
        for tile, text in enumerate(self.rows):
            text.set(text=f"tile {tile}" if tile < tiles else "", y=_TOP + tile * (_ROW + 3) + row / 2)
        self.clock.set_data([_LEFT + now * unit] * 2, [_LINES - 4, _LINES + SMS * _BAR])


def _place(boxes: Boxes, places: list, width: float, height: float):
    x, y = np.array(places, float).reshape(-1, 2).T
    boxes.place(x, y, width, height)
