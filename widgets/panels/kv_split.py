"""The panel of the split KV cache: which SM reads which tile of keys, unit of time by unit of time."""

import numpy as np
from matplotlib.patches import Rectangle

from kernels.attention.decode_models import HEADS, SMS, SPLIT, WAYS, WORKLOADS, parts_of, schedule
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, RED, WIDTH, Example, Panel, canvas, menu, whole

EXAMPLE = Example(entry="5", text="Time 5", arguments={"way": SPLIT})

_HEIGHT, _LEFT, _TOP, _TILE = 430, 96, 34, 36
_CACHES, _GAP = 168, 3  # height of all caches together; between two of them
_LINES, _UNIT, _BAR = 244, 36, 25  # top of the timelines, width of a unit of time, height of an SM's line
#: One color per SM: its program's tiles above, its line below.
COLORS = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#9db7d5")
_WAIT, _NONE = "#dddddd", "white"
LAST = max(p.end for work in WORKLOADS.values() for way in WAYS for p in schedule(way, work)) + 1


def kv_split(step: int = 0, way: str = HEADS, caches: str = "2 long caches") -> Panel:
    """A decode step on a GPU of six SMs.

    Args:
        step: Units of time that have passed.
        way: One of WAYS.
        caches: One of WORKLOADS.
    """
    picture = _Picture()

    def draw(step, way, caches):
        work = WORKLOADS[caches]
        programs = schedule(way, work)
        end, merged = max(p.end for p in programs), max(parts_of(programs).values()) > 1
        last = end + merged
        now = min(step, last)
        picture.show(programs, work, now, end if merged else None)
        busy = sum(p.start < now <= p.end for p in programs)
        read = sum(min(max(now - p.start - 1, 0), len(p.tiles)) for p in programs)
        total = work.sequences * work.tiles
        split = sum(n > 1 for n in parts_of(programs).values())
        finish = f"{last} units of time" + (", the last one for merging." if merged else ", and nothing to merge.")
        plan = f"{way}: {len(programs)} programs for {SMS} SMs, {finish}"
        if now == 0:
            return f"Nothing is read yet. {total} tiles in {work.sequences} caches. {plan}"
        if now > end:
            return f"Time {now}: the second kernel merges the parts of {split} caches, and the step is done. {plan}"
        return f"Time {now}: {busy} of {SMS} SMs are busy, {read} of {total} tiles are read. {plan}"

    controls = {
        "step": whole("time", 0, LAST, 0),
        "way": menu("programs", WAYS, HEADS),
        "caches": menu("caches", WORKLOADS, "2 long caches"),
    }
    return Panel("Who reads which keys", picture.figure, controls, draw).set(step=step, way=way, caches=caches)


class _Picture:
    """Above, the keys of each cache in tiles, colored by the SM that reads them; below, a line of time per SM."""

    def __init__(self):
        self.figure = canvas(height=_HEIGHT)
        axes = self.axes = self.figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(_HEIGHT, 0))
        axes.axis("off")
        axes.text(8, 14, "keys and values in HBM, in tiles", fontsize=9.5, weight="bold", va="center")
        axes.text(8, _LINES - 16, "SMs over time", fontsize=9.5, weight="bold", va="center")
        axes.text(
            WIDTH - 8,
            _LINES - 16,
            "gray: waits for its first tile    hatched: merges",
            fontsize=9,
            ha="right",
            va="center",
        )
        look = {"edgecolor": BLACK, "linewidth": 0.8}
        self.ahead = [Boxes(axes, color, alpha=0.28, **look) for color in COLORS]
        self.read = [Boxes(axes, color, **look) for color in COLORS]
        self.now = Boxes(axes, "none", edgecolor=RED, linewidth=2.5, zorder=4)
        self.lines = [Boxes(axes, color, **look) for color in COLORS]
        self.waits = Boxes(axes, _WAIT, **look)
        self.merge = Boxes(axes, _NONE, hatch="////", **look)
        self.rows = [axes.text(_LEFT - 8, 0, "", fontsize=9, ha="right", va="center", animated=True) for _ in range(7)]
        for sm in range(SMS):
            axes.text(_LEFT - 8, _LINES + (sm + 0.5) * _BAR, f"SM {sm}", fontsize=9, ha="right", va="center")
            axes.add_patch(Rectangle((_LEFT - 90, _LINES + sm * _BAR + 5), 14, 14, facecolor=COLORS[sm], **look))
        bottom = _LINES + SMS * _BAR
        for at in range(0, LAST + 1, 2):
            axes.text(_LEFT + at * _UNIT, bottom + 12, str(at), fontsize=9, ha="center", va="center")
        axes.text(WIDTH - 10, bottom + 12, "units of time", fontsize=9, ha="right", va="center")
        (self.clock,) = axes.plot([], [], "--", color=RED, linewidth=1.5, animated=True)

    def show(self, programs, work, now: int, merge_at: int | None):
        """merge_at: when the second kernel starts, None without one."""
        ahead, read, lines = ([[] for _ in COLORS] for _ in range(3))
        row = _CACHES / work.sequences - _GAP  # height of a cache
        reading, waits = [], []
        for program in programs:
            y = _LINES + program.sm * _BAR + 2
            if program.start < now:
                waits.append((_LEFT + program.start * _UNIT, y))
            for at, (pair, tile) in enumerate(program.tiles):
                begin = program.start + 1 + at
                place = (_LEFT + tile * _TILE, _TOP + pair * (row + _GAP))
                (read if begin < now else ahead)[program.sm].append(place)
                if begin + 1 == now:
                    reading.append(place)
                if begin < now:
                    lines[program.sm].append((_LEFT + begin * _UNIT, y))
        for boxes, places in ((self.ahead, ahead), (self.read, read)):
            for each, of in zip(boxes, places):
                _place(each, of, _TILE - 2, row)
        for each, of in zip(self.lines, lines):
            _place(each, of, _UNIT, _BAR - 4)
        _place(self.waits, waits, _UNIT, _BAR - 4)
        _place(self.now, reading, _TILE - 2, row)
        merging = merge_at is not None and now > merge_at
        spots = [(_LEFT + merge_at * _UNIT, _LINES + sm * _BAR + 2) for sm in range(SMS)] if merging else []
        _place(self.merge, spots, _UNIT, _BAR - 4)
        for pair, text in enumerate(self.rows):
            text.set(text=f"cache {pair}" if pair < work.sequences else "", y=_TOP + pair * (row + _GAP) + row / 2)
        self.clock.set_data([_LEFT + now * _UNIT] * 2, [_LINES - 4, _LINES + SMS * _BAR])


def _place(boxes: Boxes, places: list, width: float, height: float):
    x, y = np.array(places, float).reshape(-1, 2).T
    boxes.place(x, y, width, height)
