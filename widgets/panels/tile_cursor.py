"""The tile cursor panel: which tiles of the scores a program of attention computes, one after the other, and which it
skips."""

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from kernels.attention.models import CAUSAL, MASKS, TILE_M, TILE_N, visited_tiles
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, RED, SKY, Example, Panel, canvas, menu, whole

EXAMPLE = Example(entry="9", text="step 9 of 16", arguments={"program": 15, "step": 2})

KEYS = 1024
QUERIES = (256, 512, 1024)
_SKIPPED, _LATER, _DONE, _NOW = "#ffffff", "#cfe4f3", BLUE, ORANGE
_OTHERS = "#ededed"  # tiles that other programs visit


def tile_cursor(
    mask: str = CAUSAL, program: int = 9, step: int | None = None, queries: int = 1024, window: int = 256
) -> Panel:
    """One program of attention's forward, stepped through its tiles of scores over 1,024 keys.

    Args:
        mask: One of MASKS.
        program: The tile of queries, from 0.
        step: The one to open at, from 1; the last by default.
        queries: One of QUERIES; the last one is at the last key's position.
        window: Keys less than so many positions away are attended to, 16 to 1,024 in steps of 16.
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
        programs, _ = visited_tiles(controls["queries"].value, KEYS, controls["mask"].value, controls["window"].value)
        controls["step"].max = max(2, len(programs[controls["program"].value]))

    for name in ("program", "mask", "queries", "window"):
        controls[name].observe(limit, names="value")
    limit()

    def draw(step, program, mask, queries, window):
        programs, pairs = visited_tiles(queries, KEYS, mask, window)
        program = min(program, len(programs) - 1)
        own = programs[program]
        step = min(step, len(own))
        tile = own[step - 1]
        picture.show(programs, pairs, program, step, queries)
        of_tile = TILE_M * TILE_N
        cut = sum(pairs[program, tile] < of_tile for tile in own)
        masking = "no pair is masked out" if pairs[program, tile] == of_tile else "some pairs are masked out"
        visited, every = sum(map(len, programs)), pairs.size
        return (
            f"Program {program} of 0 to {len(programs) - 1}, step {step} of {len(own)}: keys {tile * TILE_N:,} to "
            f"{tile * TILE_N + TILE_N - 1:,}, where {masking}. Mask: {mask}. The program has queries "
            f"{program * TILE_M:,} to {program * TILE_M + TILE_M - 1:,}. "
            f"It visits {len(own)} of {pairs.shape[1]} tiles, {cut} of them with the mask, and skips "
            f"{pairs.shape[1] - len(own)}. All programs visit {visited} of {every}, {visited / every:.1%}; "
            f"{pairs.sum() / (queries * KEYS):.1%} of all pairs are attended to."
        )

    panel = Panel("Tile by tile over the keys", picture.figure, controls, draw)
    panel.set(mask=mask, queries=queries, window=window)
    for name, value in (("program", program), ("step", step)):  # in this order: the first limits the second
        low, high = controls[name].min, controls[name].max
        value = len(visited_tiles(queries, KEYS, mask, window)[0][program]) if value is None else value
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
        self.figure.text(0.56, y, "some of its pairs are masked out", fontsize=9, va="center")
        right = self.figure.add_axes((0.53, 0.06, 0.45, 0.4))
        right.set(xlim=(0, 1.18), ylim=(2.5, -0.6), yticks=[], xticks=[])
        right.spines[["top", "right", "bottom"]].set_visible(False)
        self.bars, self.values = [], []
        names = ("tiles of this program, of its row", "tiles of all programs, of all", "pairs attended to, of all")
        for row, (words, colour, hatch) in enumerate(zip(names, (ORANGE, SKY, GREEN), ("", "//", ".."))):
            right.text(0.01, row - 0.32, words, fontsize=9, va="center")
            self.bars += right.barh(row + 0.05, 0, 0.4, color=colour, hatch=hatch, edgecolor="white", animated=True)
            self.values.append(right.text(1, row + 0.05, "", fontsize=9, va="center", animated=True))

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
        for bar, words, share in zip(self.bars, self.values, shares):
            bar.set_width(share)
            words.set(text=f"{share:.1%}", x=share + 0.012)
