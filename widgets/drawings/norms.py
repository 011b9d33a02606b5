"""Drawings of the norms: sums down the columns in two stages."""

from widgets.drawings.pictures import arrow, box, page, picture
from widgets.toolkit.panel import GREEN, ORANGE, PURPLE, SKY, Panel

_PROGRAMS = {SKY: "", ORANGE: "//", GREEN: "..", PURPLE: "\\\\"}  # colour: hatch, of each program


def partial_sums() -> Panel:
    """How a backward sums down the columns: rows to programs, a row of partial sums per program, and their sum."""
    rows, cells = 8, 10
    figure, axes = page(292)
    high, top, wide = 24, 48, 19
    left, middle, right = 46, 318, 560
    looks = list(_PROGRAMS.items())
    words = {"fontsize": 9, "va": "center"}

    def row(x, y, colour, hatch=""):
        for cell in range(cells):
            box(axes, x + cell * wide, y, wide, high - 4, colour, hatch=hatch, edgecolor="white", linewidth=0.6)

    heads = ((left, "rows of x and dy"), (middle, "partial sums of dw and db"), (right, "dw and db"))
    for x, head in heads:
        axes.text(x, 16, head, weight="bold", **words)
    for at in range(rows):
        row(left, top + at * high, *looks[at % 4])
        axes.text(left - 8, top + at * high + 10, f"{at}", ha="right", **words)
    axes.text(8, top - 12, "row", **words)
    centers = []
    for at, look in enumerate(looks):
        y = top + 24 + at * 40
        row(middle, y, *look)
        axes.text(middle, y - 8, f"program {at}: rows {at} and {at + 4}", **words | {"fontsize": 8.5})
        centers.append(y + 10)
    target = (centers[0] + centers[-1]) / 2
    row(right, target - 10, "#bbbbbb")
    for at in range(4):
        for each in (at, at + 4):
            arrow(
                axes,
                (left + cells * wide + 4, top + each * high + 10),
                (middle - 5, centers[at]),
                "#777777",
                linewidth=1,
            )
        arrow(axes, (middle + cells * wide + 4, centers[at]), (right - 5, target), "#777777", linewidth=1)
    foot = top + rows * high + 22
    for x, text in (
        (left, "stage 1: each program adds its rows\nof dy · x̂ and of dy, in fp32"),
        (middle, "stage 2: another kernel adds the rows\nof partial sums, always in this order"),
    ):
        axes.text(x, foot, text, **words)
    return picture(
        "Partial sums per program, then their sum in a fixed order",
        figure,
        "Eight rows of x and dy go to four programs, every fourth row to the same one. Each program adds its rows into "
        "one row of partial sums of dw and one of db. A second kernel adds the four rows of partial sums in a fixed "
        "order, which gives dw and db.",
    )
