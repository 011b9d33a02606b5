"""Gate and up in one weight, step by step: concatenated, a tile has only gates; interleaved, it has pairs."""

from matplotlib.patches import Rectangle

from widgets.toolkit.panel import BLACK, ORANGE, SKY, WIDTH, Example, Panel, canvas, whole

EXAMPLE = Example(entry="3", text="neighbors in one tile", arguments={"step": 1})

STEPS, COLUMNS, TILE = 4, 8, 8  # gates in the picture; columns of a tile
_SIDE, _LEFT, _HEIGHT = 36, 120, 250

_SENTENCES = (
    "Step 1: gate and up are two matmuls, and each reads x.",
    "Step 2: gate and up are concatenated, and one matmul reads x once. Tile 0 has only gates and tile 1 only ups, so "
    "neither can compute silu(gate) · up.",
    "Step 3: rows of gate and up alternate, so a gate and its up are neighbors in one tile of 8 columns.",
    "Step 4: each tile splits into gates and ups and stores silu(gate) · up: 4 columns per tile instead of 8.",
)


def interleave_steps(step: int = STEPS) -> Panel:
    """Eight gates and eight ups, and tiles of eight columns.

    Args:
        step: The last step that is drawn, 1 to STEPS.
    """
    if not isinstance(step, int) or not 1 <= step <= STEPS:
        raise ValueError(f"step: got {step!r}, expected a whole number from 1 to {STEPS}")
    figure = canvas(height=_HEIGHT)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(_HEIGHT, 0))
    axes.axis("off")
    gates, ups = [f"g{i}" for i in range(COLUMNS)], [f"u{i}" for i in range(COLUMNS)]
    turns = [name for pair in zip(gates, ups) for name in pair]
    levels = (
        _row(axes, 14, "two matmuls", gates, gap=0) + _row(axes, 14, "", ups, skip=COLUMNS, gap=26),
        _row(axes, 74, "concatenated", gates + ups) + _tiles(axes, 74, 2),
        _row(axes, 134, "interleaved", turns) + _tiles(axes, 134, 2),
        _row(axes, 194, "stored", [f"y{i}" for i in range(COLUMNS)], stored=True)
        + _tiles(axes, 194, 2, wide=TILE // 2),
    )

    def draw(step):
        for level, artists in enumerate(levels, 1):
            for artist in artists:
                artist.set_visible(level <= step)
        return _SENTENCES[step - 1]

    return Panel("Gate and up in one tile", figure, {"step": whole("step", 1, STEPS, STEPS)}, draw).set(step=step)


def _row(axes, top, words, names, skip=0, gap=0, stored=False) -> list:
    artists = [axes.text(8, top + _SIDE / 2, words, fontsize=9.5, va="center", weight="bold")] if words else []
    for place, name in enumerate(names):
        column = place + place // (TILE // 2) * (TILE // 2) if stored else place  # half a tile of y for each tile
        x, wide = _LEFT + gap + (column + skip) * _SIDE, _SIDE
        look = {"g": (SKY, ""), "u": (ORANGE, "//"), "y": ("#DDDDDD", "")}[name[0]]
        box = Rectangle((x, top), wide, _SIDE, facecolor=look[0], hatch=look[1], edgecolor="white", linewidth=1)
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        text = axes.text(x + wide / 2, top + _SIDE / 2, name, fontsize=9, ha="center", va="center", bbox=ground)
        artists += [axes.add_patch(box), text]
    return artists


def _tiles(axes, top, count, wide=TILE) -> list:
    artists = []
    for tile in range(count):
        x = _LEFT + tile * TILE * _SIDE
        frame = Rectangle((x + 1, top), wide * _SIDE - 2, _SIDE, fill=False, edgecolor=BLACK, linewidth=2.2)
        artists += [axes.add_patch(frame)]
        artists += [axes.text(x + 4, top + _SIDE + 9, f"tile {tile}", fontsize=9, va="center")]
    return artists
