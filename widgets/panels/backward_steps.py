"""The panel of attention's backward: which program visits which tile of the weights, and what it has added up."""

import numpy as np
from matplotlib.patches import Rectangle

from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, BLUE, GREEN, RED, WIDTH, Example, Panel, canvas, menu, whole

EXAMPLE = Example(entry="3", text="Step 3", arguments={"way": "one loop, atomics"})

TILES = 6
COLUMNS, ROWS, ONE = "down columns: dk, dv", "along rows: dq", "one loop, atomics"
#: {loop: matmuls per tile}
WAYS = {COLUMNS: 4, ROWS: 3, ONE: 5}
_SIDE, _LEFT, _TOP, _HEIGHT = 36, 96, 54, 352
_SEEN, _AHEAD, _SKIPPED = "#9dc9e8", "white", "#d9d9d9"


def visited(way: str, step: int) -> list[tuple[int, int]]:
    """(row, column) of the tile that each program visits at a step from 1 on: rows are tiles of queries, columns tiles
    of keys, and all programs run at once. A program that is done visits none."""
    if way == ROWS:
        return [(row, step - 1) for row in range(TILES) if step - 1 <= row]
    return [(column + step - 1, column) for column in range(TILES) if column + step - 1 < TILES]


def backward_steps(step: int = 0, way: str = COLUMNS) -> Panel:
    """Six programs over the tiles of a causal backward.

    Args:
        step: Tiles that each program has visited.
        way: One of WAYS.
    """
    picture = _Picture()

    def draw(step, way):
        now = visited(way, step) if step else []
        seen = [tile for earlier in range(1, step + 1) for tile in visited(way, earlier)]
        picture.show(way, now, seen)
        total = TILES * (TILES + 1) // 2
        done = f"{len(seen)} of {total} tiles are visited, {WAYS[way]} matmuls each: {WAYS[way] * len(seen)} so far."
        if not step:
            owner = "queries" if way == ROWS else "keys"
            return f"Nothing is visited yet: {TILES} programs, each of which owns a tile of {owner}. {done}"
        meanwhile = f"{len(now)} program{'s are' if len(now) > 1 else ' is'} at work"
        adds = {
            COLUMNS: "Each adds to its own dk and dv.",
            ROWS: "Each adds to its own dq.",
            ONE: "Each adds to its own dk and dv, and by atomics to the dq of the row that it visits.",
        }[way]
        return f"Step {step}: {meanwhile}. {adds} {done}"

    controls = {"step": whole("step", 0, TILES, 0), "way": menu("loop", WAYS, COLUMNS)}
    return Panel("Loops over the tiles of the weights", picture.figure, controls, draw).set(step=step, way=way)


class _Picture:
    """The tiles of the weights; right of them dq, below them dk and dv, each filled by the share that is added up."""

    def __init__(self):
        self.figure = canvas(height=_HEIGHT)
        axes = self.figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(_HEIGHT, 0))
        axes.axis("off")
        side = TILES * _SIDE
        axes.text(_LEFT + side / 2, 34, "keys", fontsize=9.5, ha="center", va="center")
        axes.text(_LEFT - 16, _TOP + side / 2, "queries", fontsize=9.5, ha="center", va="center", rotation=90)
        axes.text(_LEFT, 14, "tiles of the weights", fontsize=9.5, weight="bold", va="center")
        for row in range(TILES):
            for column in range(TILES):
                color = _AHEAD if column <= row else _SKIPPED
                place = _LEFT + column * _SIDE, _TOP + row * _SIDE
                axes.add_patch(Rectangle(place, _SIDE, _SIDE, facecolor=color, edgecolor=BLACK, linewidth=0.8))
        for at in range(TILES):  # the mask cuts a tile on the diagonal in two
            ends = [_LEFT + at * _SIDE, _LEFT + (at + 1) * _SIDE], [_TOP + at * _SIDE, _TOP + (at + 1) * _SIDE]
            axes.plot(*ends, color=BLACK, linewidth=1, linestyle=":", animated=True, zorder=3)
        look = {"edgecolor": BLACK, "linewidth": 0.8}
        self.seen = Boxes(axes, _SEEN, **look)
        self.now = Boxes(axes, "none", edgecolor=RED, linewidth=2.8, zorder=4)
        self.dq_x, self.dk_y = _LEFT + side + 46, _TOP + side + 22
        for at in range(TILES):
            place = self.dq_x, _TOP + at * _SIDE + 3
            axes.add_patch(Rectangle(place, 90, _SIDE - 6, facecolor="white", **look))
            place = _LEFT + at * _SIDE + 3, self.dk_y
            axes.add_patch(Rectangle(place, _SIDE - 6, 30, facecolor="white", **look))
        axes.text(self.dq_x + 45, 34, "dq", fontsize=9.5, ha="center", va="center", color=BLUE, weight="bold")
        axes.text(
            _LEFT - 10, self.dk_y + 15, "dk, dv", fontsize=9.5, ha="right", va="center", color="#00694d", weight="bold"
        )
        self.dq = Boxes(axes, BLUE, **look)
        self.dk = Boxes(axes, GREEN, **look)
        words = (
            "thick frame: visited now",
            "blue tile: visited before",
            "gray: above the diagonal, skipped",
            "dotted: the diagonal",
        )
        for line, text in enumerate((*words, "bars: the share that is added up")):
            axes.text(self.dq_x + 122, _TOP + 12 + line * 21, text, fontsize=9, va="center")
        self.where = axes.text(self.dq_x + 122, _TOP + 130, "", fontsize=9.5, va="center", weight="bold", animated=True)

    def show(self, way: str, now: list, seen: list):
        """now: tiles that are visited at this step. seen: with those of all steps before."""
        place = np.array(seen, float).reshape(-1, 2)
        self.seen.place(_LEFT + place[:, 1] * _SIDE, _TOP + place[:, 0] * _SIDE, _SIDE, _SIDE)
        place = np.array(now, float).reshape(-1, 2)
        self.now.place(_LEFT + place[:, 1] * _SIDE, _TOP + place[:, 0] * _SIDE, _SIDE, _SIDE)
        at = np.arange(TILES)
        rows = np.array([sum(row == own for row, _ in seen) / (own + 1) for own in at]) * (way != COLUMNS)
        columns = np.array([sum(column == own for _, column in seen) / (TILES - own) for own in at]) * (way != ROWS)
        self.dq.place(self.dq_x + 0 * at, _TOP + at * _SIDE + 3, 90 * rows, _SIDE - 6)
        self.dk.place(_LEFT + at * _SIDE + 3, self.dk_y + 30 * (1 - columns), _SIDE - 6, 30 * columns)
        self.where.set_text(
            {COLUMNS: "dk, dv in registers", ROWS: "dq in registers"}.get(way, "dq in memory, by atomics")
        )
