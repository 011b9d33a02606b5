"""The order panel: the waves of programs over c, and how often each strip of a and b comes from DRAM."""

from functools import cache

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from instruments.cache import grouped, matmul_dram
from widgets.toolkit.cells import Blocks
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, Example, Panel, canvas, whole
from widgets.toolkit.words import number, times

EXAMPLE = Example(entry="8", text="In groups of 8 rows")

TILES, STEPS = 16, 8  # of c each way; of K
TILE = 16  # elements: the model is the same at any scale
STRIP = TILE * TILE * STEPS * 2  # bytes of a row of tiles of a, or of a column of tiles of b, in 16 bit
MOST = 2 * TILES + TILES * TILE * TILES * TILE * 2 // STRIP  # strips: room for a, b and the tiles of c


_GAP = (np.nan, np.nan)  # where a line is broken


def _strokes(order: list) -> list:
    """The tiles in order, with a gap wherever the next one is no neighbour."""
    strokes = []
    for before, tile in zip([None, *order], order):
        if before and abs(before[0] - tile[0]) + abs(before[1] - tile[1]) > 1:
            strokes.append(_GAP)
        strokes.append(tile)
    return strokes


def _spans(counts: list) -> list:
    """Equal neighbours joined: [(what they say, first, end)]."""
    starts = [i for i, count in enumerate(counts) if i == 0 or count != counts[i - 1]]
    return [(counts[start], start, end) for start, end in zip(starts, [*starts[1:], len(counts)])]


def l2_order(group: int = 4, in_flight: int = 16, strips: int = 12, wave: int = 1) -> Panel:
    """16 x 16 tiles of c in groups of rows: waves drawn tile by tile, and DRAM reads by the cache model.

    Args:
        group: Rows of tiles in a group, 1 to 16.
        in_flight: Programs at once, 1 to 64.
        strips: Strips of a or b that L2 holds.
        wave: The wave in orange, from 1.
    """
    figure = canvas(height=380)
    grid = figure.add_axes((0.075, 0.03, 0.42, 0.84))
    wide, tall = (0, TILES), (TILES, 0)
    grid.set(xlim=wide, ylim=tall, xticks=[], yticks=[])
    image = Blocks(grid, np.zeros((TILES, TILES, 3), np.uint8))
    (path,) = grid.plot([], [], color=BLACK, linewidth=0.8, alpha=0.7, animated=True)
    (starts,) = grid.plot([], [], "o", color=BLACK, markersize=2.5, animated=True)
    edges = np.arange(TILES + 1)
    grid.hlines(edges, *wide, color="white", linewidth=1, zorder=1, animated=True)
    grid.vlines(edges, *wide, color="white", linewidth=1, zorder=1, animated=True)
    grid.spines[:].set_visible(False)
    figure.text(0.075, 0.955, "columns of B: how often each is read from DRAM", fontsize=9)
    figure.text(0.012, 0.45, "rows of A: how often each is read", fontsize=9, rotation=90, va="center")
    look = {"fontsize": 9, "animated": True, "clip_on": False}
    b_texts = [grid.text(0, -0.42, "", ha="center", va="bottom", **look) for _ in range(TILES)]
    a_texts = [grid.text(-0.42, 0, "", ha="right", va="center", **look) for _ in range(TILES)]
    (b_spans,) = grid.plot([], [], color=BLACK, linewidth=1, animated=True, clip_on=False)
    (a_spans,) = grid.plot([], [], color=BLACK, linewidth=1, animated=True, clip_on=False)
    needed = grid.plot([], [], color=ORANGE, linewidth=4, solid_capstyle="butt", animated=True, clip_on=False)[0]
    axes = figure.add_axes((0.545, 0.13, 0.445, 0.74))
    axes.set(xlim=(0, 1.35), ylim=(-0.6, 3.6), xticks=[], yticks=[])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_title("how many times A and B are read in full", fontsize=10, loc="left")
    names = ("requested by the programs", "read from DRAM, row by row", "read from DRAM, in groups", "each byte once")
    bars = [
        axes.barh(3 - i, 0, 0.45, color=colour, hatch=hatch, edgecolor="white", animated=True)[0]
        for i, (colour, hatch) in enumerate((("#999999", ""), (ORANGE, "//"), (BLUE, ""), (GREEN, "..")))
    ]
    for i, name in enumerate(names):
        axes.text(0.01, 3 - i + 0.26, name, fontsize=9, va="bottom")
    texts = [axes.text(0, 3 - i, "", fontsize=9, va="center", animated=True) for i in range(4)]
    now, before, later = np.array([[0.90, 0.62, 0.0], [0.34, 0.71, 0.91], [0.87, 0.89, 0.91]])  # waves
    figure.legend(
        [
            Patch(color=now),
            Patch(color=before),
            Patch(color=later),
            Line2D([], [], color=BLACK, linewidth=0.8, marker="o", markersize=2.5, markevery=[0]),
        ],
        ["this wave, its strips", "before", "later", "order"],
        loc="lower right",
        bbox_to_anchor=(0.99, 0),
        ncols=4,
        fontsize=9,
        frameon=False,
        handlelength=1.4,
        columnspacing=0.8,
        handletextpad=0.4,
    )

    @cache  # row by row stays as it is while the group height moves
    def estimate(group, in_flight, strips):
        size, order = TILES * TILE, grouped(TILES, TILES, group)
        return matmul_dram(order, (size, size, STEPS * TILE), (TILE, TILE, TILE), 2, strips * STRIP, in_flight)

    def draw(group, wave, in_flight, strips):
        wave = min(wave, -(-(TILES**2) // in_flight))
        order = grouped(TILES, TILES, group)
        ours, plain = estimate(group, in_flight, strips), estimate(1, in_flight, strips)
        colours = np.empty((TILES, TILES, 3))
        for i, (m, n) in enumerate(order):
            colours[m, n] = (before, now, later)[(i // in_flight >= wave - 1) + (i // in_flight >= wave)]
        image.colours = np.rint(255 * colours).astype(np.uint8)
        strokes = _strokes(order)
        path.set_data([n + 0.5 for _, n in strokes], [m + 0.5 for m, _ in strokes])
        begun = [tile for before, tile in zip([_GAP, *strokes], strokes) if before == _GAP]
        starts.set_data([n + 0.5 for _, n in begun], [m + 0.5 for m, _ in begun])
        for counts, texts_of, along, lines in (
            (ours.a_times, a_texts, "y", a_spans),
            (ours.b_times, b_texts, "x", b_spans),
        ):
            spans = _spans([number(count, digits=2) for count in counts])
            for text in texts_of:
                text.set_text("")
            for text, (count, start, end) in zip(texts_of, spans):
                text.set(text=count, **{along: (start + end) / 2})
            ends = [place for _, start, end in spans for place in (start + 0.1, end - 0.1, np.nan)]
            beside = [-0.2] * len(ends)
            lines.set_data(*((ends, beside) if along == "x" else (beside, ends)))
        once = 2 * TILES * STRIP
        from_l2 = ours.requested - ours.written
        for bar, text, nbytes in zip(bars, texts, (from_l2, plain.read, ours.read, once)):
            bar.set_width(nbytes / from_l2)
            text.set_x(nbytes / from_l2 + 0.02)
            text.set_text(number(nbytes / once, digits=3))
        together = order[(wave - 1) * in_flight : wave * in_flight]
        row_set, col_set = {m for m, _ in together}, {n for _, n in together}
        ends = [([-0.2, -0.2, np.nan], [m + 0.1, m + 0.9, np.nan]) for m in row_set]
        ends += [([n + 0.1, n + 0.9, np.nan], [-0.2, -0.2, np.nan]) for n in col_set]
        needed.set_data(*(np.concatenate(axis) for axis in zip(*ends)))
        rows, cols = len(row_set), len(col_set)
        text = f"In groups of {group} row{'s' * (group != 1)} a and b are read from DRAM {times(ours.read / once)}"
        if group > 1:
            change = ours.read / plain.read
            less = "less" if change < 1 else "more"
            text += f", row by row {times(plain.read / once)}: "
            text += "no change" if change == 1 else f"{abs(1 - change):.0%} {less}"
        return (
            f"{text}. {TILES} x {TILES} tiles of c, {in_flight} programs at once; L2 holds {strips} "
            f"strip{'s' * (strips != 1)}, a and b have {2 * TILES}. Wave {wave} needs {rows} "
            f"strip{'s' * (rows != 1)} of a and {cols} of b."
        )

    controls = {
        "group": whole("group height", 1, TILES, 1),
        "wave": whole("wave", 1, TILES**2 // 16, 1),
        "in_flight": whole("programs", 1, 64, 16),
        "strips": whole("L2, in strips", 1, MOST, 12),
    }

    def limit(_change=None):  # before the panel hears of the change: observers are called in their order
        controls["wave"].max = -(-(TILES**2) // controls["in_flight"].value)

    controls["in_flight"].observe(limit, names="value")
    panel = Panel("Order and L2, as a model sees it", figure, controls, draw)
    return panel.set(group=group, in_flight=in_flight, strips=strips).set(wave=wave)
