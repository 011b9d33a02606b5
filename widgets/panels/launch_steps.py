"""From one line of Python to 32 threads: the launch of lesson 02's row sum, level by level."""

from matplotlib.collections import PatchCollection
from matplotlib.patches import FancyArrowPatch, Rectangle

from instruments.gpus import GPUS
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, PURPLE, WIDTH, Example, Panel, canvas, whole

EXAMPLE = Example(entry="3", text="Each of the 132 SMs holds 16 of these programs at once", arguments={"step": 1})

ROWS, COLS, TILE_ROWS, WARPS, HELD = 1_048_576, 128, 16, 4, 16  # HELD: programs that an SM holds at once
PROGRAMS = ROWS // TILE_ROWS
STEPS = 5
WARP_COLOURS = (BLUE, ORANGE, GREEN, PURPLE)  # as in warp_view
_DRAWN = 22, 24  # programs of the grid, across and down
_GREY, _HEIGHT = "#cccccc", 318


def launch_steps(step: int = STEPS) -> Panel:
    """The row sum of 1,048,576 rows of 128 on an H200: its grid, the SMs, one SM, one program, one warp.

    Args:
        step: The last level that is drawn, 1 to STEPS.
    """
    if not isinstance(step, int) or not 1 <= step <= STEPS:
        raise ValueError(f"step: got {step!r}, expected a whole number from 1 to {STEPS}")
    figure = canvas(height=_HEIGHT)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(_HEIGHT, 0))
    axes.axis("off")
    levels = [_grid(axes), _gpu(axes), _sm(axes), _program(axes), _warp(axes)]

    def draw(step):
        for level, artists in enumerate(levels, 1):
            for artist in artists:
                artist.set_visible(level <= step)
        return _sentence(step)

    return Panel("One launch, level by level", figure, {"step": whole("step", 1, STEPS, STEPS)}, draw).set(step=step)


def _sentence(step: int) -> str:
    sms = GPUS["H200"].sms
    return (
        f"Step 1, the grid: row_sum starts {PROGRAMS:,} programs, one for each tile of {TILE_ROWS} rows.",
        f"Step 2, the GPU: the programs are handed out to {sms} SMs, in no order that a kernel may rely on.",
        f"Step 3, one SM: Each of the {sms} SMs holds {HELD} of these programs at once, "
        f"{HELD * sms:,} on the whole GPU. When one ends, the next of the grid takes its place.",
        f"Step 4, one program: its tile of {TILE_ROWS} rows and {COLS} columns is shared by {WARPS} warps, "
        "each with a color of its own.",
        "Step 5, one warp: its 32 threads load two rows with one instruction, 8 elements of bf16 per thread. "
        f"A program of {WARPS} warps has {32 * WARPS} threads, the whole grid {32 * WARPS * PROGRAMS:,}.",
    )[step - 1]


def _box(x, y, width, height, colour="white", edge="#777777", line=0.8) -> Rectangle:
    return Rectangle((x, y), width, height, facecolor=colour, edgecolor=edge, linewidth=line)


def _drawn(axes, boxes: list[Rectangle]) -> PatchCollection:
    """The boxes as one artist: hundreds of them would take 50 ms to draw."""
    return axes.add_collection(PatchCollection(boxes, match_original=True, animated=True), autolim=False)


def _words(axes, x, y, words, size=9, **look):
    return axes.text(x, y, words, fontsize=size, animated=True, **look)


def _arrow(axes, x):
    arrow = FancyArrowPatch(
        (x, 108), (x + 20, 108), arrowstyle="-|>", mutation_scale=12, color=BLACK, linewidth=1.4, animated=True
    )
    return axes.add_patch(arrow)


def _grid(axes) -> list:
    across, down = _DRAWN
    boxes = [
        _box(8 + col * 7, 34 + row * 6.5, 5.5, 5, BLACK if (row, col) == (10, 12) else _GREY, "none", 0)
        for row in range(down)
        for col in range(across)
    ]
    words = f"{PROGRAMS:,} programs,\n{across * down} of them drawn"
    return [
        _drawn(axes, boxes),
        _words(axes, 8, 18, "grid", weight="bold"),
        _words(axes, 8, 206, words, va="center_baseline"),
    ]


def _gpu(axes) -> list:
    boxes = [
        _box(194 + col * 14, 34 + row * 13, 12, 11, ORANGE if (row, col) == (3, 5) else _GREY, "none", 0)
        for row in range(12)
        for col in range(11)
    ]
    return [
        _arrow(axes, 168),
        _drawn(axes, boxes),
        _words(axes, 194, 18, "H200", weight="bold"),
        _words(axes, 194, 206, f"{GPUS['H200'].sms} SMs"),
    ]


def _sm(axes) -> list:
    boxes = [_box(382, 32, 160, 158, "#fdf0d5")]
    for place in range(HELD):
        left, top, own = 388 + place % 4 * 38, 37 + place // 4 * 38, place == 6
        boxes.append(_box(left, top, 34, 34, "white", BLACK if own else "#999999", 1.8 if own else 0.6))
        for warp in range(WARPS):
            colour = WARP_COLOURS[warp] if own else _GREY
            boxes.append(_box(left + 4, top + 4 + warp * 7, 26, 5, colour, "none", 0))
    return [
        _arrow(axes, 354),
        _drawn(axes, boxes),
        _words(axes, 382, 18, "one SM", weight="bold"),
        _words(axes, 382, 206, f"{HELD} programs, {HELD * WARPS} warps"),
    ]


def _program(axes) -> list:
    boxes = []
    for row in range(TILE_ROWS):
        colour = WARP_COLOURS[row % 8 // 2]
        boxes.append(_box(580, 34 + row * 9.75, 168, 9.75, colour, "white", 0.8))
    return [
        _arrow(axes, 552),
        _drawn(axes, boxes),
        _words(axes, 580, 18, "one program: its tile", weight="bold"),
        _words(axes, 580, 206, f"{TILE_ROWS} rows of {COLS}, {WARPS} warps"),
    ]


def _warp(axes) -> list:
    artists = [_words(axes, 8, 238, "one warp, one load: 32 threads, two rows of 128 elements in bf16", weight="bold")]
    boxes = []
    for row in range(2):
        for place in range(16):
            left, top = 8 + place * 46.5, 248 + row * 26
            boxes.append(_box(left, top, 44.5, 22, BLUE, "white", 0.8))
            artists.append(
                _words(axes, left + 22, top + 11, f"{16 * row + place}", 9, ha="center", va="center", color="white")
            )
    artists.insert(0, _drawn(axes, boxes))
    artists.append(_words(axes, 8, 311, "each box: one thread, 8 elements, 16 bytes"))
    return artists
