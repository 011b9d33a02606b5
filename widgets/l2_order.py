"""The order panel: which tiles of c are computed together, and how often each strip of a and b then comes from DRAM."""

from functools import cache

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from instruments.cache import grouped, matmul_dram
from widgets.panel import BLACK, BLUE, GREEN, ORANGE, Example, Panel, canvas, whole
from widgets.words import number

EXAMPLE = Example(typed="8", told="In groups of 8 rows")

TILES, STEPS = 16, 8  # of c each way; of K
TILE = 16  # elements: the model is the same at any scale
STRIP = TILE * TILE * STEPS * 2  # bytes of a row of tiles of a, or of a column of tiles of b, in 16 bit
MOST = 2 * TILES + TILES * TILE * TILES * TILE * 2 // STRIP  # strips: room for a, b and the tiles of c


def l2_order(group: int = 4, in_flight: int = 16, strips: int = 12) -> Panel:
    """16 x 16 tiles of c in groups of so many rows: waves drawn tile by tile, and what the cache model says of DRAM."""
    figure = canvas(height=330)
    grid = figure.add_axes((0.075, 0.03, 0.365, 0.84))
    wide, tall = (0, TILES), (TILES, 0)
    grid.set(xlim=wide, ylim=tall, xticks=[], yticks=[])
    image = grid.imshow(np.zeros((TILES, TILES, 3)), extent=(*wide, *tall), interpolation="nearest", animated=True)
    (path,) = grid.plot([], [], color=BLACK, linewidth=0.7, alpha=0.6, animated=True)
    edges = np.arange(TILES + 1)
    grid.hlines(edges, *wide, color="white", linewidth=1, zorder=1, animated=True)
    grid.vlines(edges, *wide, color="white", linewidth=1, zorder=1, animated=True)
    grid.spines[:].set_visible(False)
    figure.text(0.075, 0.945, "columns of b, each read from DRAM so many times", fontsize=8.5)
    figure.text(0.012, 0.45, "rows of a, each read so many times", fontsize=8.5, rotation=90, va="center")
    b_texts = [
        grid.text(i + 0.5, -0.15, "", fontsize=7.5, ha="center", va="bottom", animated=True, clip_on=False)
        for i in range(TILES)
    ]
    a_texts = [
        grid.text(-0.15, i + 0.5, "", fontsize=7.5, ha="right", va="center", animated=True, clip_on=False)
        for i in range(TILES)
    ]
    axes = figure.add_axes((0.5, 0.12, 0.48, 0.75))
    axes.set(xlim=(0, 1.35), ylim=(-0.6, 3.6), xticks=[], yticks=[])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_title("reads, in readings of all of a and b", fontsize=9.5, loc="left")
    names = ("asked of L2 by the programs", "from DRAM, row by row", "from DRAM, in groups", "each byte once")
    bars = [
        axes.barh(3 - i, 0, 0.45, color=colour, hatch=hatch, edgecolor="white", animated=True)[0]
        for i, (colour, hatch) in enumerate((("#999999", ""), (ORANGE, "//"), (BLUE, ""), (GREEN, "..")))
    ]
    for i, name in enumerate(names):
        axes.text(0.01, 3 - i + 0.26, name, fontsize=8.5, va="bottom")
    texts = [axes.text(0, 3 - i, "", fontsize=8.5, va="center", animated=True) for i in range(4)]
    shades = np.array([[0.34, 0.71, 0.91], [0.75, 0.87, 0.95]])  # waves in turn
    first = np.array([0.90, 0.62, 0.0])  # the first wave
    colours_mean = ((first, "first wave: at work together"), (shades[0], "later"), (shades[1], "waves"))
    figure.legend(
        handles=[
            *(Patch(color=colour, label=name) for colour, name in colours_mean),
            Line2D([], [], color=BLACK, label="order"),
        ],
        loc="lower right",
        bbox_to_anchor=(0.99, 0),
        ncols=4,
        fontsize=8.5,
        frameon=False,
        handlelength=1,
        columnspacing=0.8,
        handletextpad=0.4,
    )

    @cache  # row by row stays as it is while the group height moves
    def estimate(group, in_flight, strips):
        size, order = TILES * TILE, grouped(TILES, TILES, group)
        return matmul_dram(order, (size, size, STEPS * TILE), (TILE, TILE, TILE), 2, strips * STRIP, in_flight)

    def draw(group, in_flight, strips):
        order = grouped(TILES, TILES, group)
        ours, plain = estimate(group, in_flight, strips), estimate(1, in_flight, strips)
        colours = np.empty((TILES, TILES, 3))
        for i, (m, n) in enumerate(order):
            colours[m, n] = first if i < in_flight else shades[(i // in_flight) % 2]
        image.set_data(colours)
        path.set_data([n + 0.5 for _, n in order], [m + 0.5 for m, _ in order])
        for texts_of, times in ((a_texts, ours.a_times), (b_texts, ours.b_times)):
            counts = [number(count, digits=2) for count in times]
            for text, count, before in zip(texts_of, counts, ["", *counts]):  # said once for equal neighbours
                text.set_text("" if count == before else count)
        once = 2 * TILES * STRIP
        asked = ours.requested - ours.written
        for bar, text, nbytes in zip(bars, texts, (asked, plain.read, ours.read, once)):
            bar.set_width(nbytes / asked)
            text.set_x(nbytes / asked + 0.02)
            text.set_text(number(nbytes / once, digits=3))
        together = order[:in_flight]
        rows, cols = len({m for m, _ in together}), len({n for _, n in together})
        said = (
            f"{TILES} x {TILES} tiles of c, {in_flight} programs at once, L2 holds {strips} strip"
            f"{'s' * (strips != 1)}, a and b have {2 * TILES}. In groups of {group} row{'s' * (group != 1)} the "
            f"first wave needs {rows} strip{'s' * (rows != 1)} of a and {cols} of b; DRAM delivers a and b "
            f"{number(ours.read / once, digits=3)} times"
        )
        if group == 1:
            return said + ", with the tiles walked over row by row."
        change = ours.read / plain.read
        said += f", against {number(plain.read / once, digits=3)} times row by row: "
        return said + ("no change." if change == 1 else f"{abs(1 - change):.0%} {'less' if change < 1 else 'more'}.")

    return Panel(
        "Order and L2, as a model sees it",
        figure,
        {
            "group": whole("group height", 1, TILES, 1),
            "in_flight": whole("programs", 1, 64, 16),
            "strips": whole("L2, in strips", 1, MOST, 12),
        },
        draw,
    ).set(group=group, in_flight=in_flight, strips=strips)
