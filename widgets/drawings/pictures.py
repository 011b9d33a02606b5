"""Still pictures of the lessons: figures are handed in, nothing is computed here, and each says in words what it
shows."""

import numpy as np
from matplotlib.patches import FancyArrowPatch, Rectangle

from widgets.toolkit.panel import BLACK, BLUE, GREEN, LINE, ORANGE, PURPLE, RED, SKY, WIDTH, Panel, canvas, sentence

_LINES = ((BLUE, "s"), (RED, "o"), (GREEN, "^"), (PURPLE, "D"), (BLACK, "v"), (ORANGE, "P"))
_GREY = "#555555"


def picture(title: str, figure, about: str, numbers: str = "") -> Panel:
    """A picture without controls, with its caption and its text alternative.

    Args:
        title: stands above it.
        figure: the picture.
        about: what is shown. Its first sentence is the caption, all of it begins the text alternative.
        numbers: the rest of the text alternative; `about` and `numbers` then have no full stop at their ends.

    Raises:
        ValueError: the caption is empty, or longer than the two lines that are shown.
    """
    alt = f"{about}. {numbers}." if numbers else about
    caption = sentence(alt)
    if not 0 < len(caption) <= LINE:
        raise ValueError(f"about: got a first sentence of {len(caption)} characters, expected 1 to {LINE}: {caption!r}")
    return Panel(title, figure, {}, lambda: alt)


def page(height: int) -> tuple:
    """(figure, axes) of a drawing, in CSS pixels from the top left."""
    figure = canvas(height=height)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.axis("off")
    return figure, axes


def box(axes, x, y, width, height, colour="white", **look):
    """A box with an edge, on a page; look: as of any patch."""
    look = {"facecolor": colour, "edgecolor": BLACK, "linewidth": 0.8, **look}
    axes.add_patch(Rectangle((x, y), width, height, **look))


def arrow(axes, start: tuple, end: tuple, colour=BLACK, **look):
    """An arrow between two points of a page; look: as of any arrow."""
    look = {"arrowstyle": "-|>", "mutation_scale": 13, "color": colour, "linewidth": 1.6, **look}
    axes.add_patch(FancyArrowPatch(start, end, **look))


def curves(
    xs: list,
    lines: dict,
    title: str,
    about: str,
    x: tuple,
    y: tuple,
    marks: dict | None = None,
    height: int = 320,
    beside: dict | None = None,
    bounds: tuple = (),
    uprights: dict | None = None,
    linear: bool = False,
    numbers: str = "",
) -> Panel:
    """Lines, each with its name and marker to the right of its end, x logarithmic unless it is said to be linear.

    lines: name -> a value for each of `xs`, None where there is none; at most six. x, y: what the axis shows, and its
    ticks as {value: words}; those of y are all shown, and logarithmic, or None for an axis from 0; those of x are shown
    where the lines are. marks: {name: y} of dashed lines across. beside: {name: (x, points to the right, points
    upward)} of lines and marks whose names stand in the picture, at one of their points. bounds: names of lines that
    are limits, drawn wide and without markers. uprights: {name: x} of dotted lines upward, named at their feet. about,
    numbers: as for `picture`.
    """
    marks, beside = marks or {}, beside or {}
    figure = canvas(height=height)
    aside = set(beside) < {*lines, *marks}  # names to the right of the picture
    axes = figure.add_axes((0.1, 48 / height, 0.65 if aside else 0.86, 1 - 83 / height))
    if y[1] is None:
        most = max([value for line in lines.values() for value in line if value is not None] + list(marks.values()))
        axes.set(ylim=(0, 1.1 * most))
        axes.yaxis.set_major_formatter("{x:,.10g}")
    else:
        axes.set(yscale="log", ylim=(min(y[1]), max(y[1])))
        axes.set_yticks(list(y[1]), y[1].values())
    axes.set(xscale="linear" if linear else "log", xlim=(min(xs), max(*xs, 1.1 * min(xs))))
    axes.minorticks_off()
    ticks = {at: words for at, words in x[1].items() if min(xs) <= at <= max(xs)}
    axes.set_xticks(list(ticks), ticks.values())
    axes.tick_params(labelsize=9)
    axes.set_xlabel(x[0], fontsize=9)
    axes.text(0, 1.05, y[0], fontsize=9, transform=axes.transAxes)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.7)
    ends = []  # (how far up a line ends, its name, how its end looks)

    def up(at: tuple) -> float:
        return axes.transAxes.inverted().transform(axes.transData.transform(at))[1]

    def call(name, points, look):
        if name not in beside:
            ends.append((up(points[-1]), name, look))
            return
        at, *offset = beside[name]
        where = {
            "textcoords": "offset points",
            "fontsize": 9.5,
            "va": "center",
            "ha": "left" if offset[0] else "center",
        }
        axes.annotate(name, (at, dict(points)[at]), offset, color=look["color"], **where)

    for name, value in marks.items():
        axes.axhline(value, color=_GREY, linewidth=1.2, linestyle="--")
        call(name, [(at, value) for at in xs], {"color": _GREY, "linewidth": 1.2, "linestyle": "--"})
    for name, at in (uprights or {}).items():
        axes.axvline(at, color=_GREY, linewidth=1.2, linestyle=":")
        where = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": 9.5}
        axes.annotate(name, (at, 0.03), (6, 0), color=_GREY, **where)
    looks = iter(_LINES)
    for name, values in lines.items():
        known = [(at, value) for at, value in zip(xs, values) if value is not None]
        if name in bounds:
            axes.plot(*zip(*known), color="#c8c8c8", linewidth=7, solid_capstyle="round", clip_on=False, zorder=1)
            color = _GREY if name in beside else "#c8c8c8"
            call(name, known, {"color": color, "linewidth": 7, "solid_capstyle": "butt"})
            continue
        colour, marker = next(looks)
        look = {"marker": marker, "color": colour, "markersize": 5}
        axes.plot(*zip(*known), **look, clip_on=False)
        call(name, known, look)
    lowest = -1.0  # where the next name may lie
    for end, name, look in sorted(ends, key=lambda each: each[0]):
        lowest = max(end, lowest)
        across = [1.035] if "marker" in look else [1.018, 1.046] if name in bounds else [1.012, 1.042]
        axes.plot(across, [lowest] * len(across), **look, clip_on=False, transform=axes.transAxes)
        axes.text(1.055, lowest, name, fontsize=9.5, va="center", transform=axes.transAxes)
        lowest += 18 / (height - 83)
    return picture(title, figure, about, numbers)


def counts(frequencies: dict, mark: tuple, title: str, about: str, x: str, y: str, width: float = 0.7) -> Panel:
    """Bars of how often each value occurs, {value: how often}, and a line at another value, mark: (value, words).

    width: of a bar, as a share of the step between values.
    """
    figure = canvas(height=300)
    axes = figure.add_axes((0.08, 0.17, 0.9, 0.8))
    step = min((b - a for a, b in zip(sorted(frequencies), sorted(frequencies)[1:])), default=1)
    axes.bar(list(frequencies), list(frequencies.values()), width * step, color=RED, hatch="//", edgecolor="white")
    most = max(frequencies.values())
    for value, often in frequencies.items():
        axes.text(value, often, f" {often} ", ha="center", va="bottom", fontsize=9)
    axes.axvline(mark[0], color=BLUE, linewidth=2.5)
    axes.text(mark[0] + step / 8, 1.25 * most, mark[1], fontsize=10, va="center")
    axes.set_ylim(0, 1.35 * most)
    axes.set_xticks(sorted(frequencies))
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return picture(title, figure, about)


def neighbours(marks: dict, title: str, about: str) -> Panel:
    """The fp32 numbers around some exact values, as ticks on a line. marks: name -> exact value; all lie close by."""
    figure = canvas(height=170)
    axes = figure.add_axes((0.03, 0.05, 0.94, 0.9))
    spacing = float(np.spacing(np.float32(min(marks.values()))))
    middle = float(np.float32(min(marks.values())))
    ticks = [middle + step * spacing for step in (-2, -1, 0, 1, 2)]
    axes.set(xlim=(ticks[0] - spacing / 2, ticks[-1] + spacing / 2), ylim=(-1.3, 1.7))
    axes.axis("off")
    axes.axhline(0, color=BLACK, linewidth=1)
    for tick in ticks:
        axes.plot([tick, tick], [-0.25, 0.25], color=BLACK, linewidth=1.5)
        axes.text(tick, -0.4, f"{tick:,.0f}", ha="center", va="top", fontsize=9)
    axes.annotate("", (ticks[0], 0.45), (ticks[1], 0.45), arrowprops={"arrowstyle": "<->", "color": "#555555"})
    axes.text((ticks[0] + ticks[1]) / 2, 0.55, f"{spacing:g} apart", ha="center", va="bottom", fontsize=9)
    for (name, value), colour, height, side in zip(marks.items(), (BLUE, RED), (1.0, 0.6), ("right", "left")):
        axes.plot([value, value], [0, height], color=colour, linewidth=2)
        axes.plot([value], [0], "o", color=colour, markersize=6)
        place = value + (-0.1 if side == "right" else 0.1)
        axes.text(place, height, name, ha=side, va="bottom", fontsize=9.5)
    return picture(title, figure, about)


def passes(ways: dict, title: str, about: str) -> Panel:
    """How often a tensor goes by, one box each time. ways: name -> what each pass is for; one that writes says so by
    beginning with 'write'."""
    figure = canvas(height=60 + 62 * len(ways))
    axes = figure.add_axes((0.2, 0.14, 0.76, 0.84))
    most = max(map(len, ways.values()))
    axes.set(xlim=(0, most), ylim=(len(ways) - 0.4, -0.6))
    for row, steps in enumerate(ways.values()):
        for at, step in enumerate(steps):
            wrote = step.startswith("write")
            axes.barh(
                row, 0.97, 0.62, at, color=GREEN if wrote else SKY, hatch="//" if wrote else "", edgecolor="white"
            )
            axes.text(
                at + 0.485,
                row,
                step,
                ha="center",
                va="center",
                fontsize=9,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2},
            )
    axes.set_yticks(range(len(ways)), ways, fontsize=9.5)
    axes.set_xticks(range(most + 1), [f"{n} |x|" for n in range(most + 1)], fontsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    return picture(title, figure, about)


def merges(ways: dict, blocks: list, end: str, title: str, about: str) -> Panel:
    """Orders in which the same blocks are merged two by two, side by side, the first merge at the bottom.

    ways: name -> a nested pair of places in `blocks`, such as ((0, 1), 2). blocks: what stands in each. end: what comes
    out of every way.
    """
    figure = canvas(height=250)
    axes = figure.add_axes((0.005, 0.01, 0.99, 0.98))
    step = len(blocks) + 0.8
    highest = max(map(_depth, ways.values()))
    axes.set(xlim=(-0.7, len(ways) * step - 0.9), ylim=(-0.55, highest + 1.25))
    axes.axis("off")

    def draw(way, left: float) -> tuple:
        """Where the result of a way lies, its merges drawn below it."""
        if isinstance(way, int):
            axes.add_patch(Rectangle((left + way - 0.44, -0.42), 0.88, 0.6, facecolor=SKY, edgecolor=BLACK))
            axes.text(left + way, -0.12, blocks[way], fontsize=9, ha="center", va="center")
            return left + way, 0.18
        ends = [draw(part, left) for part in way]
        x, y = sum(x for x, _ in ends) / len(ends), _depth(way)
        for below in ends:
            axes.plot([below[0], x], [below[1], y], color="#666666", linewidth=1.5, zorder=1)
        axes.plot([x], [y], "o", color=ORANGE, markeredgecolor=BLACK, markersize=11, zorder=2)
        return x, y

    for at, (name, way) in enumerate(ways.items()):
        x, y = draw(way, at * step)
        axes.text(x, y + 0.28, end, fontsize=9, ha="center", va="bottom")
        axes.text(at * step + (len(blocks) - 1) / 2, highest + 0.95, name, fontsize=9.5, weight="bold", ha="center")
    return picture(title, figure, about)


def _depth(way) -> int:
    return 0 if isinstance(way, int) else 1 + max(map(_depth, way))


def way_to_registers(table: dict, title: str, about: str) -> Panel:
    """What passed between DRAM, L2, L1 and the registers while a kernel read, a line of arrows per kernel.

    table: {kernel: (multiples of x from DRAM to L2, from L2 to L1, from L1 to registers, what stands behind
    them)}. title: the finding. about: what is shown, for the text alternative.
    """
    places = ("DRAM", "L2", "L1", "registers")
    line, head = 46, 34  # CSS pixels
    height = head + line * len(table) + 6
    figure = canvas(height=height)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 760), ylim=(height, 0))
    axes.axis("off")
    left, wide = max(len(kernel) for kernel in table) * 7 + 14, 72
    gap = (760 - left - 4 * wide - 84) / 3
    starts = [left + at * (wide + gap) for at in range(len(places))]
    for start, place in zip(starts, places):
        axes.add_patch(Rectangle((start, 6), wide, height - 12, facecolor="#e3f1fa", edgecolor="#9db8c9"))
        axes.text(start + wide / 2, 20, place, fontsize=9.5, weight="bold", ha="center", va="center")
    for at, (kernel, (*moved, behind)) in enumerate(table.items()):
        y = head + (at + 0.62) * line
        axes.text(8, y, kernel, fontsize=9.5, va="center")
        axes.text(starts[-1] + wide + 8, y, behind, fontsize=9.5, va="center")
        for start, multiple in zip(starts, moved):
            ends = ((start + wide + 2, y), (start + wide + gap - 2, y))
            arrow = FancyArrowPatch(
                *ends, arrowstyle="simple", mutation_scale=3 + 9 * multiple, facecolor=BLUE, edgecolor="none"
            )
            axes.add_patch(arrow)
            axes.text(start + wide + gap / 2, y - 17, f"{multiple:.2f}", fontsize=9, ha="center", va="center")
    numbers = "; ".join(
        f"{kernel} {dram:.2f} |x| from DRAM to L2, {l2:.2f} from L2 to L1, {l1:.2f} from L1 to registers, {behind}"
        for kernel, (dram, l2, l1, behind) in table.items()
    )
    return picture(title, figure, about, numbers)
