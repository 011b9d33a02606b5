"""The tile cursor panel: which tiles of the scores a program of attention computes, one after the other, and which it
leaves out."""

from functools import lru_cache

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from kernels.attention_plan import FORWARD
from kernels.attention_tiles import sees
from kernels.attention_traffic import key_ranges
from widgets.panel import BLACK, BLUE, GREEN, ORANGE, RED, SKY, Example, Panel, canvas, menu, whole

EXAMPLE = Example(typed="9", told="step 9 of 16", shown={"program": 15, "step": 2})

KEYS = 1024
QUERIES = (256, 512, 1024)
FULL, CAUSAL, WINDOW, BOTH = "full", "causal", "window", "causal, window"
MASKS = (FULL, CAUSAL, WINDOW, BOTH)
TILE_M, TILE_N = (FORWARD["plain"][128][side] for side in ("BLOCK_M", "BLOCK_N"))  # of heads of 128
_SKIPPED, _LATER, _DONE, _NOW = "#ffffff", "#cfe4f3", BLUE, ORANGE
_OTHERS = "#ededed"  # tiles that other programs visit


@lru_cache(maxsize=64)
def tiles(queries: int, mask: str, window: int) -> tuple:
    """(programs, pairs): the tiles of keys that each program visits, as a range; and how many pairs of a query and a
    key that it sees each tile has, [tiles of queries, tiles of keys]."""
    causal, width = mask in (CAUSAL, BOTH), window if mask in (WINDOW, BOTH) else None
    ranges = key_ranges(queries, KEYS, causal, width, TILE_M, TILE_N)
    programs = [range(first // TILE_N, -(-last // TILE_N)) for first, _, last in ranges]
    query, key = np.indices((queries, KEYS))
    seen = sees.fn(query, key, queries, KEYS, width or 0, causal, width is not None)
    pairs = seen.reshape(queries // TILE_M, TILE_M, KEYS // TILE_N, TILE_N).sum(axis=(1, 3))
    return programs, pairs


def tile_cursor(
    mask: str = CAUSAL, program: int = 9, step: int | None = None, queries: int = 1024, window: int = 256
) -> Panel:
    """One program of attention's forward, stepped through its tiles of 64 x 64 scores: 1,024 keys, of which the last is
    at the last query's position.

    mask: one of MASKS. program: the tile of queries, from 0. step: the one to open at, from 1; the last unless given.
    queries: one of QUERIES. window: keys less than so many positions away are seen, 16 to 1,024 in steps of 16.
    """
    picture = _Picture()
    controls = {
        "step": whole("step", 1, KEYS // TILE_N, 1),
        "program": whole("program", 0, KEYS // TILE_M - 1, 0),
        "mask": menu("mask", MASKS, CAUSAL),
        "queries": menu("queries", QUERIES, 1024),
        "window": whole("window", 16, KEYS, 256),
    }
    controls["window"].step = 16

    def limit(_change=None):  # before the panel hears of the change: observers are called in their order
        controls["program"].max = controls["queries"].value // TILE_M - 1
        programs, _ = tiles(*(controls[name].value for name in ("queries", "mask", "window")))
        controls["step"].max = max(2, len(programs[controls["program"].value]))

    for name in ("program", "mask", "queries", "window"):
        controls[name].observe(limit, names="value")
    limit()

    def draw(step, program, mask, queries, window):
        programs, pairs = tiles(queries, mask, window)
        program = min(program, len(programs) - 1)
        own = programs[program]
        step = min(step, len(own))
        tile = own[step - 1]
        picture.show(programs, pairs, program, step, queries)
        of_tile = TILE_M * TILE_N
        cut = sum(pairs[program, tile] < of_tile for tile in own)
        found = "all pairs are seen" if pairs[program, tile] == of_tile else "the mask hides some pairs"
        visited, every = sum(map(len, programs)), pairs.size
        return (
            f"{mask.capitalize()}, program {program} of 0 to {len(programs) - 1}, queries {program * TILE_M:,} to "
            f"{program * TILE_M + TILE_M - 1:,}: step {step} of {len(own)} takes keys {tile * TILE_N:,} to "
            f"{tile * TILE_N + TILE_N - 1:,}, where {found}. It visits {len(own)} of {pairs.shape[1]} tiles, {cut} of "
            f"them with the mask, and skips {pairs.shape[1] - len(own)}. All programs visit {visited} of {every}, "
            f"{visited / every:.1%}; {pairs.sum() / (queries * KEYS):.1%} of all pairs are seen."
        )

    panel = Panel("Tile by tile over the keys", picture.figure, controls, draw)
    panel.set(mask=mask, queries=queries, window=window)
    for name, value in (("program", program), ("step", step)):  # in this order: the first limits the second
        low, high = controls[name].min, controls[name].max
        value = len(tiles(queries, mask, window)[0][program]) if value is None else value
        if not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{name}: got {value!r}, expected a whole number from {low} to {high}")
        panel.set(**{name: value})
    return panel


class _Picture:
    """Left, a cell for each tile of the scores; right, shares of all tiles and of all pairs."""

    def __init__(self):
        self.figure = canvas(height=330)
        left = self.figure.add_axes((0.085, 0.03, 0.385, 0.385 * 760 / 330))
        left.set(xlim=(0, KEYS // TILE_N), ylim=(KEYS // TILE_M, 0))
        left.axis("off")
        self.cells = left.imshow(
            np.ones((1, 1, 3)), extent=(0, KEYS // TILE_N, 1, 0), interpolation="nearest", aspect="auto", animated=True
        )
        left.set(xlim=(0, KEYS // TILE_N), ylim=(KEYS // TILE_M, 0))
        (self.grid,) = left.plot([], [], color="#9a9a9a", linewidth=0.6, animated=True)
        self.cut = left.scatter([], [], marker=(2, 0, 45), s=90, color=BLACK, linewidth=1, animated=True)
        self.here = Rectangle((0, 0), 1, 1, fill=False, edgecolor=RED, linewidth=3, animated=True)
        left.add_patch(self.here)
        self.figure.text(0.278, 0.96, f"tiles of keys, {TILE_N} each", fontsize=9, ha="center", va="center")
        self.figure.text(
            0.04, 0.48, f"programs: {TILE_M} queries each", fontsize=9, ha="center", va="center", rotation=90
        )
        (self.row,) = left.plot([], [], marker=">", color=BLACK, markersize=7, clip_on=False, animated=True)
        for row, (colour, words) in enumerate(
            (
                (_NOW, "now"),
                (_DONE, "done"),
                (_LATER, "still to come"),
                (_OTHERS, "other programs'"),
                (_SKIPPED, "skipped"),
            )
        ):
            y = 0.885 - 0.062 * row
            self.figure.add_artist(Rectangle((0.53, y - 0.02), 0.02, 0.04, facecolor=colour, edgecolor="#777777"))
            self.figure.text(0.56, y, words, fontsize=9, va="center")
        y = 0.885 - 0.062 * 5
        self.figure.add_artist(Line2D((0.533, 0.547), (y + 0.016, y - 0.016), color=BLACK, linewidth=1))
        self.figure.text(0.56, y, "the mask hides some of its pairs", fontsize=9, va="center")
        right = self.figure.add_axes((0.53, 0.06, 0.45, 0.4))
        right.set(xlim=(0, 1.18), ylim=(2.5, -0.6), yticks=[], xticks=[])
        right.spines[["top", "right", "bottom"]].set_visible(False)
        self.bars, self.said = [], []
        names = ("tiles of this program, of its row", "tiles of all programs, of all", "pairs that are seen, of all")
        for row, (words, colour, hatch) in enumerate(zip(names, (ORANGE, SKY, GREEN), ("", "//", ".."))):
            right.text(0.01, row - 0.32, words, fontsize=9, va="center")
            self.bars += right.barh(row + 0.05, 0, 0.4, color=colour, hatch=hatch, edgecolor="white", animated=True)
            self.said.append(right.text(1, row + 0.05, "", fontsize=9, va="center", animated=True))

    def show(self, programs: list, pairs: np.ndarray, program: int, step: int, queries: int):
        rows, cols = pairs.shape
        colours = np.ones((rows, cols, 3))
        for row, own in enumerate(programs):
            colours[row, own.start : own.stop] = to_rgb(_OTHERS)
        own = programs[program]
        colours[program, own.start : own.stop] = to_rgb(_LATER)
        colours[program, own.start : own.start + step] = to_rgb(_DONE)
        colours[program, own.start + step - 1] = to_rgb(_NOW)
        self.cells.set_data(colours)
        self.cells.set_extent((0, cols, rows, 0))
        points = []
        for row in range(rows + 1):
            points += [(0, row), (cols, row), (np.nan, np.nan)]
        for col in range(cols + 1):
            points += [(col, 0), (col, rows), (np.nan, np.nan)]
        self.grid.set_data(*zip(*points))
        cut = [(col, row) for row, own in enumerate(programs) for col in own if pairs[row, col] < TILE_M * TILE_N]
        self.cut.set_offsets(np.array(cut).reshape(-1, 2) + 0.5)
        self.here.set_xy((programs[program].start + step - 1, program))
        self.row.set_data([-0.4], [program + 0.5])
        shares = (
            len(programs[program]) / cols,
            sum(map(len, programs)) / (rows * cols),
            pairs.sum() / (queries * KEYS),
        )
        for bar, words, share in zip(self.bars, self.said, shares):
            bar.set_width(share)
            words.set(text=f"{share:.1%}", x=share + 0.012)
