"""Pictures of lesson 00: the tiles of a copy, and a tensor beside the memory that it lies in."""

from widgets.drawings.pictures import arrow, box, page, picture
from widgets.toolkit.panel import BLUE, INK_RED, ORANGE, SKY, Panel

_GREY = "#555555"
_LEFT, _TILE = 36, 34  # CSS pixels: where a tensor's strip begins, and a tile's width


def _strip(axes, y: int, size: int, tile: int, chosen: int):
    """A tensor of `size` elements at y, cut into tiles, the chosen one marked."""
    programs = -(-size // tile)
    for program in range(programs):
        x = _LEFT + program * _TILE
        full = min(1.0, (size - program * tile) / tile)
        if full < 1:
            box(axes, x, y, _TILE, 26, hatch="....", edgecolor="#999999", linestyle="--")
        color = ORANGE if program == chosen else SKY
        box(axes, x, y, _TILE * full, 26, color, edgecolor="white" if program != chosen else "black")


def copy_tiles(size: int = 20_011, tile: int = 1024, chosen: int = 2) -> Panel:
    """Which program copies which elements: two tensors cut into tiles, and the places of one of them."""
    programs = -(-size // tile)
    figure, axes = page(208)
    axes.text(_LEFT, 14, "program", fontsize=9, color=_GREY, va="center")
    for program in range(programs):
        middle = _LEFT + (program + 0.5) * _TILE
        axes.text(middle, 34, f"{program}", fontsize=9, ha="center", va="center")
    for y, name in ((46, "x"), (140, "y")):
        axes.text(12, y + 13, name, fontsize=11, weight="bold", va="center")
        _strip(axes, y, size, tile, chosen)
    for program in range(programs):
        middle = _LEFT + (program + 0.35) * _TILE
        arrow(axes, (middle, 74), (middle, 138), _GREY if program != chosen else "black", linewidth=1)
    first, last = chosen * tile, (chosen + 1) * tile - 1
    label = {"fontsize": 9.5, "va": "center", "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 2}}
    text = f"program {chosen}: start = {chosen} x {tile:,} = {first:,}; it copies elements {first:,} to {last:,}"
    axes.text(_LEFT + chosen * _TILE + 24, 106, text, zorder=5, **label)
    alt = (
        f"Each program copies one tile of {tile:,} elements. {size:,} elements take {programs} programs. Program "
        f"{chosen} starts at {first:,} and copies elements {first:,} to {last:,}."
    )
    if size % tile:
        end = _LEFT + programs * _TILE
        held = f"tile ends past the last element, {size - 1:,}; the mask holds that part back"
        note = f"program {programs - 1}: its {held}"
        axes.text(max(end, 560), 190, note, fontsize=9.5, ha="right", va="center", color=INK_RED)
        alt += f" In program {programs - 1} the {held}."
    return picture(f"Copying {size:,} elements: {programs} programs, a tile for each", figure, alt)


def where_in_memory(rows: int = 3, cols: int = 4, row: int = 2, col: int = 1) -> Panel:
    """A tensor as a grid with one element marked, and the line of memory that holds it, with its places unnamed."""
    figure, axes = page(150)
    side = 34
    axes.text(12, 16, f"x, as you index it: {rows} x {cols}", fontsize=9.5, weight="bold", va="center")
    for i in range(rows):
        for j in range(cols):
            chosen = (i, j) == (row, col)
            x, y = 12 + 62 * j, 32 + side * i
            box(axes, x, y, 62, side, ORANGE if chosen else "white")
            weight = "bold" if chosen else "normal"
            axes.text(x + 31, y + side / 2, f"[{i}, {j}]", fontsize=9.5, weight=weight, ha="center", va="center")
    left = 300
    count = rows * cols
    axes.text(left, 16, f"the same {count} elements, as they lie in memory", fontsize=9.5, weight="bold", va="center")
    for place in range(count):
        x = left + 37 * place
        box(axes, x, 66, 37, side, "white")
        axes.text(x + 18.5, 112, f"{place}", fontsize=9, color=_GREY, ha="center", va="center")
    axes.text(left, 133, "place, in elements from the first", fontsize=9, color=_GREY, va="center")
    axes.text(left, 50, f"which place holds x[{row}, {col}]?", fontsize=9.5, color=BLUE, va="center")
    alt = (
        f"On the left x, a grid of {rows} x {cols} elements, with x[{row}, {col}] marked. On the right memory: a line "
        f"of {count} places, from 0 to {count - 1}. Which of them holds x[{row}, {col}]?"
    )
    return picture(f"Element x[{row}, {col}], and the memory that holds it", figure, alt)
