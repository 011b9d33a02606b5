"""What is done to an accumulator between the K loop and the store, when it is done, and matmuls of one x in one."""

from collections.abc import Sequence

from matplotlib.lines import Line2D

from widgets.drawings.pictures import arrow, box, page, picture
from widgets.toolkit.panel import BLACK, GREEN, ORANGE, SKY, WIDTH, YELLOW, Panel, canvas

_PALE, _ISSUES = "#eeeeee", "#cfe8f7"


def accumulator_epilogue() -> Panel:
    """One program: the K loop fills the accumulator, the epilogue changes it, one store writes it."""
    figure, axes = page(238)
    for x, wide, words in ((8, 158, "HBM"), (196, 388, "one program, on one SM"), (614, 138, "HBM")):
        box(axes, x, 26, wide, 204, "white", linestyle="--", edgecolor="#777777")
        axes.text(x, 14, words, fontsize=9.5, weight="bold", va="center")
    for y, words, color in ((40, "x", SKY), (84, "weight", SKY), (140, "bias", ORANGE), (184, "residual", ORANGE)):
        box(axes, 24, y, 126, 34, color)
        axes.text(87, y + 17, words, fontsize=9.5, ha="center", va="center")
    stages = (
        (210, 52, 140, 58, "K loop: acc +=\nx @ weight.T", SKY),
        (390, 52, 176, 58, "acc, fp32,\nin registers", "white"),
    )
    for x, y, wide, high, words, color in stages:
        box(axes, x, y, wide, high, color)
        axes.text(x + wide / 2, y + high / 2, words, fontsize=9.5, ha="center", va="center")
    box(axes, 210, 152, 356, 58, ORANGE)
    words = "epilogue: act(acc + bias) + residual,\nthen one rounding to bf16"
    axes.text(388, 181, words, fontsize=9.5, ha="center", va="center")
    box(axes, 630, 152, 106, 58, GREEN)
    axes.text(683, 181, "y", fontsize=9.5, ha="center", va="center")
    for start, end in (
        ((150, 57), (210, 74)),
        ((150, 101), (210, 90)),
        ((350, 81), (390, 81)),
        ((478, 110), (478, 152)),
        ((150, 157), (210, 170)),
        ((150, 201), (210, 192)),
        ((566, 181), (630, 181)),
    ):
        arrow(axes, start, end)
    return picture(
        "The accumulator's way from the K loop to the store",
        figure,
        "The epilogue works on the accumulator where it is, in registers. The K loop reads x and weight from HBM; the "
        "epilogue reads bias and residual; the program stores y once. No intermediate goes to HBM.",
    )


def packed_projections(heads: int = 32, kv_heads: int = 8, head_dim: int = 128) -> Panel:
    """Queries, keys and values: three matmuls that each read x, and one with a packed weight whose result is sliced."""
    figure, axes = page(252)
    rows = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
    looks = {"q": (SKY, ""), "k": (ORANGE, "//"), "v": (GREEN, "..")}
    white = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    unit, tall = 190 / sum(rows.values()), 34
    columns = {"x": 62, "W": 232, "y": 532}
    for left, words in ((8, "three matmuls"), (8, "one matmul")):
        axes.text(left, 12 if words.startswith("three") else 164, words, fontsize=9.5, weight="bold", va="center")
    for at, name in enumerate(rows):
        y, (color, hatch) = 26 + at * 42, looks[name]
        box(axes, columns["x"], y, 96, tall, YELLOW)
        axes.text(columns["x"] + 48, y + tall / 2, "x", fontsize=9.5, ha="center", va="center")
        arrow(axes, (columns["x"] + 100, y + tall / 2), (columns["W"] - 4, y + tall / 2))
        for column, words in (("W", f"W{name}"), ("y", name)):
            box(axes, columns[column], y, rows[name] * unit, tall, color, hatch=hatch)
            middle = columns[column] + rows[name] * unit / 2
            axes.text(middle, y + tall / 2, words, fontsize=9.5, ha="center", va="center", bbox=white)
        arrow(axes, (columns["W"] + rows[name] * unit + 4, y + tall / 2), (columns["y"] - 4, y + tall / 2))
    y = 182
    box(axes, columns["x"], y, 96, tall, YELLOW)
    axes.text(columns["x"] + 48, y + tall / 2, "x", fontsize=9.5, ha="center", va="center")
    arrow(axes, (columns["x"] + 100, y + tall / 2), (columns["W"] - 4, y + tall / 2))
    arrow(axes, (columns["W"] + sum(rows.values()) * unit + 4, y + tall / 2), (columns["y"] - 4, y + tall / 2))
    for column, words in (("W", "W{}"), ("y", "{}")):
        x = columns[column]
        for name, count in rows.items():
            color, hatch = looks[name]
            box(axes, x, y, count * unit, tall, color, hatch=hatch)
            axes.text(
                x + count * unit / 2,
                y + tall / 2,
                words.format(name),
                fontsize=9.5,
                ha="center",
                va="center",
                bbox=white,
            )
            x += count * unit
        said = f"{sum(rows.values()):,} rows" if column == "W" else "q, k, v are views of it"
        axes.text(columns[column], y + tall + 15, said, fontsize=9, va="center")
    return picture(
        "Packed, one matmul reads x once, and its result is sliced",
        figure,
        f"Above, three matmuls read x three times, with weights of {rows['q']:,}, {rows['k']:,} and {rows['v']:,} "
        f"rows. Below, one matmul reads x once, with a weight of {sum(rows.values()):,} rows; queries, keys and values "
        "are slices of its result.",
    )


def deferred_row_scale() -> Panel:
    """RMSNorm and a matmul: x normalized and stored first, and the scales of x's rows kept for the epilogue."""
    figure, axes = page(286)
    white = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}

    def draw(y, words, launches, boxes, arrows, passes):
        axes.text(8, y - 34, words, fontsize=9.5, weight="bold", va="center")
        for number, (x, down, wide) in enumerate(launches, 1):
            box(axes, x, y + down - 18, wide, 60, "white", linestyle="--", edgecolor="#777777")
            axes.text(x + 6, y + down - 9, f"launch {number}", fontsize=8.5, color="#555555", va="center")
        for x, down, wide, label, color in boxes:
            box(axes, x, y + down, wide, 34, color)
            axes.text(x + wide / 2, y + down + 17, label, fontsize=9.5, ha="center", va="center")
        for start, end in arrows:
            arrow(axes, (start[0], y + start[1]), (end[0], y + end[1]))
        for number, (x, down) in enumerate(passes, 1):
            look = {"weight": "bold", "ha": "center", "va": "center", "bbox": white}
            axes.text(x, y + down, str(number), fontsize=9.5, **look)

    norm = ((24, 0, 60, "x", YELLOW), (142, 0, 108, "RMSNorm", ORANGE), (310, 0, 92, "x · γ / r", YELLOW))
    norm += ((462, 0, 168, "matmul with W", SKY), (690, 0, 60, "y", GREEN))
    draw(
        46,
        "norm first: three passes over x",
        ((134, 0, 124), (454, 0, 184)),
        norm,
        [((start, 17), (end, 17)) for start, end in ((84, 142), (250, 310), (402, 462), (630, 690))],
        ((109, 17), (283, 17), (429, 17)),
    )
    late = ((24, 70, 60, "x", YELLOW), (142, 0, 108, "mean square", ORANGE), (310, 0, 92, "1 / r", YELLOW))
    late += ((274, 70, 168, "matmul with γ · W", SKY), (522, 70, 108, "acc · 1 / r", ORANGE), (690, 70, 60, "y", GREEN))
    arrows = [((54, 70), (142, 17)), ((250, 17), (310, 17)), ((402, 17), (566, 70))]
    arrows += [((start, 87), (end, 87)) for start, end in ((84, 274), (442, 522), (630, 690))]
    draw(
        168,
        "scale in the epilogue: two passes over x",
        ((134, 0, 124), (266, 70, 372)),
        late,
        arrows,
        ((92, 47), (179, 87)),
    )
    axes.text(410, 174, "one number per row", fontsize=8.5, color="#555555", va="center")
    return picture(
        "The scale of a row can wait until after the matmul",
        figure,
        "Above, RMSNorm reads x and writes the normalized x, and the matmul reads it: three passes. Below, one kernel "
        "reads x and writes one number per row, and the matmul reads x as it is: two passes. Its epilogue multiplies "
        "the rows of the accumulator by their scales; γ is in the weight. Both ways take two launches. Yellow boxes "
        "are in HBM. The passes are numbered.",
    )


def epilogue_over_time(loop: int = 5, epilogue: int = 2, tiles: int = 4) -> Panel:
    """What tensor cores and warps do during epilogues: all warps on one tile, and two warpgroups with a tile each.

    Args:
        loop: units of time of a tile's K loop.
        epilogue: units of a tile's epilogue.
        tiles: of one SM.
    """
    left, lane, top = 128, 31, 60
    together, turns = tiles * (loop + epilogue), tiles * loop + epilogue
    unit = 620 / max(together, turns)
    figure, axes = page(top + 5 * lane + 80)
    look = {"facecolor": ORANGE, "edgecolor": "none", "pad": 0.5}

    def row(y, name, jobs, end, issues=()):
        axes.text(left - 10, y + 11, name, fontsize=9.5, ha="right", va="center")
        box(axes, left, y, end * unit, 22, _PALE, edgecolor="none")
        for start in issues:
            box(axes, left + start * unit, y, loop * unit, 22, _ISSUES, edgecolor="none")
        for start, length, tile, color, hatch in jobs:
            box(axes, left + start * unit, y, length * unit, 22, color, hatch=hatch)
            middle = left + (start + length / 2) * unit
            patch = look if hatch else None
            axes.text(middle, y + 11, f"tile {tile}", fontsize=8.5, ha="center", va="center", bbox=patch)

    keys = ((0, "K loop", SKY, ""), (88, "issues its matmuls", _ISSUES, ""), (246, "epilogue and store", ORANGE, "//"))
    for x, words, color, hatch in (*keys, (406, "waits", _PALE, "")):
        edge = {"edgecolor": "none"} if color in (_ISSUES, _PALE) else {}
        box(axes, left + x, 6, 13, 13, color, hatch=hatch, **edge)
        axes.text(left + x + 19, 13, words, fontsize=9.5, va="center")
    step = loop + epilogue
    y = top + 2 * lane + 44
    for at, words in ((top, "all warps work on one tile"), (y, "ping-pong: two warpgroups, a tile each")):
        axes.text(left, at - 14, words, fontsize=9.5, weight="bold", va="center")
    row(top, "tensor cores", [(n * step, loop, n, SKY, "") for n in range(tiles)], together)
    jobs = [(n * step + loop, epilogue, n, ORANGE, "//") for n in range(tiles)]
    row(top + lane, "all warps", jobs, together, issues=[n * step for n in range(tiles)])
    row(y, "tensor cores", [(n * loop, loop, n, SKY, "") for n in range(tiles)], turns)
    for group in (0, 1):
        jobs = [((n + 1) * loop, epilogue, n, ORANGE, "//") for n in range(group, tiles, 2)]
        issues = [n * loop for n in range(group, tiles, 2)]
        row(y + (group + 1) * lane, f"warpgroup {'ab'[group]}", jobs, turns, issues)
    y += 3 * lane + 8
    axes.text(left, y, "time", fontsize=9.5, va="center")
    arrow(axes, (left + 36, y), (left + 150, y))
    busy = [100 * tiles * loop / end for end in (together, turns)]
    return picture(
        "An epilogue costs time where nothing multiplies meanwhile",
        figure,
        f"Lengths are chosen, not measured: above, the tensor cores are busy {busy[0]:.0f}% of the time drawn. "
        "There, all warps run each tile's epilogue, and the tensor cores wait. "
        f"Below, two warpgroups have a tile each; while one runs its epilogue, the tensor cores work for the other: "
        f"busy {busy[1]:.0f}%.",
    )


def added_time(rows: dict, title: str, about: str, across: str, ticks: Sequence, strong: Sequence[str] = ()) -> Panel:
    """What is added to a kernel's time: a line per row, with a diamond by count and a point by the clock.

    Args:
        rows: {row: (by count, by the clock, (low, high))}, from top to bottom; low and high are drawn as a whisker.
        title: the finding.
        about: what is shown, for the caption.
        across: what the axis shows, with its unit.
        ticks: where the axis is marked; it begins and ends with them.
        strong: rows in another color.
    """
    high, head = 40, 40
    height = head + high * len(rows) + 46
    figure = canvas(height=height)
    left = 16 + 7 * max(len(row) for row in rows)
    axes = figure.add_axes((left / WIDTH, 46 / height, 1 - (left + 24) / WIDTH, high * len(rows) / height))
    axes.set(xlim=(min(ticks), max(ticks)), ylim=(len(rows) - 0.5, -0.5), yticks=[])
    axes.set_xticks(list(ticks))
    axes.tick_params(labelsize=9)
    axes.set_xlabel(across, fontsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="#E6E6E6", linewidth=0.7)
    axes.axvline(0, color="#888888", linewidth=1)
    by_count = {"marker": "D", "markerfacecolor": "white", "markersize": 7, "color": BLACK, "linestyle": ""}
    for at, (row, (count, clock, (low, end))) in enumerate(rows.items()):
        figure.text(6 / WIDTH, 1 - (head + (at + 0.5) * high) / height, row, fontsize=9.5, va="center")
        color = ORANGE if row in strong else SKY
        axes.plot([low, end], [at, at], color=BLACK, linewidth=1.6, zorder=3)
        axes.plot([clock], [at], "o", color=color, markersize=10, markeredgecolor=BLACK, zorder=4)
        axes.plot([count], [at + 0.27], **by_count, zorder=5)
        axes.annotate(
            f"{clock:.0f}", (clock, at), (0, 10), textcoords="offset points", fontsize=9, ha="center", va="center"
        )
    y, start = 1 - 16 / height, left
    for words, mark in (
        ("by count", by_count),
        ("measured (median)", {"marker": "o", "color": ORANGE, "markersize": 10, "markeredgecolor": BLACK}),
        ("p20 to p80", {"marker": "_", "color": BLACK, "markersize": 18, "markeredgewidth": 1.6}),
    ):
        figure.add_artist(Line2D([(start + 12) / WIDTH], [y], **mark))
        figure.text((start + 28) / WIDTH, y, words, fontsize=9.5, va="center")
        start += 58 + 7.4 * len(words)
    numbers = "; ".join(f"{row} by count {count:.0f}, measured {clock:.0f}" for row, (count, clock, _) in rows.items())
    return picture(title, figure, about, numbers)
