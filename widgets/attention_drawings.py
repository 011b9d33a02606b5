"""Still drawings of attention: where its tensors lie, and who walks over which tiles."""

from matplotlib.patches import Rectangle

from widgets.panel import BLUE, GREEN, ORANGE, SKY, Panel
from widgets.pictures import arrow, box, page, picture

_DRAM, _CHIP = "#eeeeee", "#e3f1fa"


def forward_tiles() -> Panel:
    """What one program of attention's forward holds, and what streams past it."""
    figure, axes = page(300)
    axes.add_patch(Rectangle((6, 6), 336, 288, facecolor=_DRAM, edgecolor="none"))
    axes.add_patch(Rectangle((408, 6), 346, 288, facecolor=_CHIP, edgecolor="none"))
    axes.text(16, 22, "DRAM", fontsize=9.5, weight="bold", va="center")
    axes.text(418, 22, "on the chip: one program", fontsize=9.5, weight="bold", va="center")
    tiles, top, side = 7, 62, 30
    for x, name in ((22, "q"), (106, "k"), (186, "v"), (270, "out")):
        axes.text(x + 26, 48, name, fontsize=11, ha="center", va="center")
        for tile in range(tiles):
            own = tile == 4 and name in ("q", "out")
            now = tile == 2 and name in ("k", "v")
            colour = GREEN if own and name == "out" else SKY if own else ORANGE if now else "white"
            box(axes, x, top + tile * side, 52, side, colour, linewidth=1.6 if own or now else 0.8)
    arrow(axes, (166, top + 8), (166, top + tiles * side), "#8a5f00")
    axes.text(172, 284, "tile by tile, all keys and values", fontsize=9, ha="center", va="center", color="#8a5f00")
    box(axes, 424, 66, 100, 46, SKY)
    axes.text(474, 89, "tile of q", fontsize=9.5, ha="center", va="center")
    box(axes, 640, 66, 100, 46, ORANGE)
    axes.text(690, 89, "tiles of k, v", fontsize=9.5, ha="center", va="center")
    box(axes, 512, 138, 140, 54, "white", linestyle="--")
    axes.text(582, 158, "tile of scores", fontsize=9.5, ha="center", va="center")
    axes.text(582, 176, "made, used, gone", fontsize=9, ha="center", va="center")
    arrow(axes, (490, 114), (532, 137))
    arrow(axes, (674, 114), (632, 137))
    box(axes, 424, 226, 54, 54, "white")
    box(axes, 484, 226, 54, 54, "white")
    box(axes, 560, 226, 180, 54, GREEN)
    for x, name, below in ((451, "m", "largest"), (511, "l", "total"), (650, "out", "weighted values so far")):
        axes.text(x, 244, name, fontsize=11, ha="center", va="center")
        axes.text(x, 265, below, fontsize=8.5, ha="center", va="center")
    arrow(axes, (560, 193), (500, 225))
    arrow(axes, (590, 193), (606, 225))
    axes.text(676, 207, "repaired, then added to", fontsize=8.5, ha="center", va="center")
    arrow(axes, (344, 180), (406, 180), "#8a5f00")
    arrow(axes, (406, 210), (344, 210), "#00694d")
    axes.text(375, 166, "read", fontsize=9, ha="center", va="center", color="#8a5f00")
    axes.text(375, 226, "write", fontsize=9, ha="center", va="center", color="#00694d")
    return picture(
        "The scores live for one tile",
        figure,
        "In DRAM lie q, k, v and out, no scores. A program reads a tile of q and keeps it; tiles of k and v stream by. "
        "For each it makes a tile of scores on the chip, takes the larger m, repairs l and out, adds to them, and "
        "drops the scores. At the end it writes its tile of out.",
    )


def backward_walks() -> Panel:
    """Which programs of the backward walk over which tiles of the weights, and what they add up."""
    figure, axes = page(270)
    tiles, side, top = 6, 30, 66
    for left, title, own, colour in (
        (96, "a program for each tile of queries", "dq", BLUE),
        (476, "a program for each tile of keys", "dk, dv", GREEN),
    ):
        axes.text(left + 3 * side, 20, title, fontsize=9.5, weight="bold", ha="center", va="center")
        axes.text(left + 3 * side, 50, "keys", fontsize=9.5, ha="center", va="center")
        axes.text(left - 12, top + 3 * side, "queries", fontsize=9.5, ha="center", va="center", rotation=90)
        for row in range(tiles):
            for col in range(tiles):
                walked = row == 3 if own == "dq" else col == 2
                seen = col <= row
                shade = colour if walked and seen else "white" if seen else "#d9d9d9"
                box(axes, left + col * side, top + row * side, side, side, shade, linewidth=0.8)
        if own == "dq":
            arrow(axes, (left + 5, top + 3.5 * side), (left + 4 * side - 3, top + 3.5 * side), "white")
            axes.text(left + 6 * side + 10, top + 3.5 * side, "adds up dq", fontsize=9.5, va="center", color=BLUE)
        else:
            arrow(axes, (left + 2.5 * side, top + 2 * side + 5), (left + 2.5 * side, top + 6 * side - 3), "white")
            axes.text(
                left + 6 * side + 10, top + 5 * side, "adds up\ndk and dv", fontsize=9.5, va="center", color="#00694d"
            )
    axes.text(380, 258, "grey: above the diagonal, skipped", fontsize=9, ha="center", va="center", color="#555555")
    return picture(
        "Two walks over the same tiles",
        figure,
        "Tiles of the weights, queries downwards, keys to the right, those above the diagonal skipped. A program that "
        "owns a tile of queries walks along its row and adds up dq; one that owns a tile of keys walks down its column "
        "and adds up dk and dv.",
    )
