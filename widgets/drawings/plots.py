"""Plots of figures that a lesson hands in, labelled directly: bars in columns, lines, and points.

Nothing is computed here. The finding is the title; the text alternative says every number, or a summary in their place.
"""

from collections.abc import Sequence
from math import inf

from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from widgets.drawings.pictures import curves, picture
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, SKY, WIDTH, YELLOW, Panel, canvas
from widgets.toolkit.words import number

_ROW, _HEAD, _FOOT = 23, 30, 8  # CSS pixels
_LETTER, _BOLD = 6.9, 7.9  # how wide a letter of a row's name is, and of a heading


def columns(
    table: dict,
    title: str,
    about: str,
    form: str | dict = "{:.2f}",
    strong: Sequence[str] = (),
    marks: dict | None = None,
    spread: dict | None = None,
    marked: str = "",
    shared: bool = False,
    numbers: str = "",
    cut: float = inf,
    upto: float = 0,
) -> Panel:
    """Bars side by side: a line for each row of the table, a column for each kind of number.

    table: {row: {column: number}}; a row may lack columns, and one without any is a heading. title: the finding.
    about: what is shown, for the caption. form: how numbers are written, for all columns or {column: form}. strong:
    rows in another colour. marks: {column: a value that a dashed line marks, or {row: value}}; marked: what that is.
    spread: {row: {column: (low, high)}}, drawn as whiskers, below 0, too. shared: all columns have one scale; else each
    has its own. numbers: what the text alternative says in place of all numbers, where these are many. cut: longer bars
    are broken off at this value, above every other one, so that the others can be compared. upto: where each scale ends
    at least.
    """
    names = list(dict.fromkeys(name for values in table.values() for name in values))
    forms = form if isinstance(form, dict) else dict.fromkeys(names, form)
    marks, spread = marks or {}, spread or {}
    foot = _FOOT + 16 * bool(marked)
    height = _HEAD + _ROW * len(table) + foot
    figure = canvas(height=height)
    left = max(_letters(row) * (_LETTER if values else _BOLD) for row, values in table.items()) + 14
    wide = (WIDTH - left) / len(names)
    most = {name: max(values.get(name) or 0 for values in table.values()) for name in names}
    of_rows = {name: mark for name, mark in marks.items() if isinstance(mark, dict)}
    tops = marks | {name: max(mark.values()) for name, mark in of_rows.items()}
    most = {name: max(min(top, cut), upto) for name, top in most.items()}
    most = {name: max(most.values()) if shared else max(most[name], tops.get(name, 0)) for name in names}
    lowest = min([0, *(low for whiskers in spread.values() for low, _ in whiskers.values())])
    written = {
        name: max(len(forms[name].format(values[name])) for values in table.values() if name in values)
        for name in names
    }
    for place, name in enumerate(names):
        axes = figure.add_axes(
            ((left + place * wide) / WIDTH, foot / height, (wide - 8) / WIDTH, _ROW * len(table) / height)
        )
        letters = max(written.values()) if shared else written[name]
        room = 1 - min(0.6, (letters * 7.6 + 8) / (wide - 8))  # the rest is for the number behind the bar
        axes.set(xlim=(lowest, (most[name] or 1) / room), ylim=(len(table) - 0.5, -0.5))
        axes.axis("off")
        axes.axvline(0, color="#888888", linewidth=1)
        axes.text(0, -0.62, name, fontsize=9, weight="bold", va="bottom")
        for at, row in enumerate(table):
            if row in of_rows.get(name, {}):
                place = [of_rows[name][row]] * 2
                axes.plot(place, [at - 0.45, at + 0.45], color=BLACK, linewidth=1.6, ls=(0, (3, 1)))
        if name in marks and name not in of_rows:
            axes.axvline(marks[name], color="#555555", linewidth=1, linestyle="--", zorder=3)
        for at, (row, values) in enumerate(table.items()):
            value = values.get(name)
            if value is None:
                continue
            colour = ORANGE if row in strong else SKY
            bar = end = min(value, cut)
            axes.barh(at, bar, 0.66, color=colour, edgecolor="white", hatch="//" if row in strong else "")
            if bar < value:  # a slanted gap
                gap = [0.93 * bar, 0.95 * bar]
                axes.plot(gap, [at + 0.4, at - 0.4], color="white", linewidth=5, zorder=3)
            if name in spread.get(row, {}):
                low, end = spread[row][name]
                axes.plot([low, end], [at, at], color=BLACK, linewidth=2.2, solid_capstyle="butt", zorder=4)
            end = max(end, bar)
            mark = of_rows.get(name, {}).get(row, end)
            number = (len(forms[name].format(value)) * 7.6 + 12) / (wide - 8) * axes.get_xlim()[1]
            end = mark if end < mark < end + number else end  # behind a mark only where the number would cover it
            axes.annotate(
                forms[name].format(value),
                (end, at),
                (4, 0),
                textcoords="offset points",
                fontsize=9,
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
                zorder=5,
            )
    for at, (row, values) in enumerate(table.items()):
        y = 1 - (_HEAD + (at + 0.5) * _ROW) / height
        figure.text(6 / WIDTH, y, row, fontsize=9, va="center", weight="normal" if values else "bold")
    if marked:
        figure.text(
            1 - 8 / WIDTH, 10 / height, f"dashed: {marked}", fontsize=9, color="#555555", ha="right", va="center"
        )
    numbers = numbers or "; ".join(
        f"{row} " + ", ".join(f"{name} {forms[name].format(value)}" for name, value in values.items())
        for row, values in table.items()
        if values
    )
    return picture(title, figure, about, numbers)


def stacks(
    rows: dict,
    title: str,
    about: str,
    form: str = "{:,.0f}",
    mark: tuple | None = None,
    most: float = 0,
    inside: bool = True,
    looks: dict | None = None,
) -> Panel:
    """Bars of parts, end to end on one scale, each with the sum at its end; wide parts have numbers too.

    Args:
        rows: {row: {part: number}}, six parts at most, in one order.
        title: the finding.
        about: what is shown, for the caption.
        form: how numbers are written.
        mark: (number, words) of a dashed line.
        most: where the scale ends at least, so that pictures beside each other share one.
        inside: whether parts have numbers, or only the sums.
        looks: {part: (color, hatch)} for every part. None: six of its own.
    """
    parts = list(dict.fromkeys(part for values in rows.values() for part in values))
    looks = looks or dict(
        zip(parts, ((ORANGE, "//"), (YELLOW, ".."), (SKY, ""), (GREEN, "\\\\"), (BLUE, ""), ("#cccccc", "")))
    )
    left = max(_letters(row) for row in rows) * _LETTER + 14
    lines, across = [], WIDTH  # of the key: as many names a line as fit
    for part in parts:
        long = _letters(part) * _LETTER + 38
        if across + long > WIDTH:
            lines, across = [*lines, []], left
        lines[-1].append((part, across))
        across += long
    head, foot = 12 + 22 * bool(mark), 10 + 22 * len(lines)
    height = head + 28 * len(rows) + foot
    figure = canvas(height=height)
    wide = WIDTH - left - 8
    axes = figure.add_axes((left / WIDTH, foot / height, wide / WIDTH, 28 * len(rows) / height))
    largest = max(most, *(sum(values.values()) for values in rows.values()))
    limit = largest / (1 - (len(form.format(largest)) * 7.6 + 8) / wide)
    axes.set(xlim=(0, limit), ylim=(len(rows) - 0.5, -0.5))
    axes.axis("off")
    for at, (row, values) in enumerate(rows.items()):
        figure.text(6 / WIDTH, 1 - (head + (at + 0.5) * 28) / height, row, fontsize=9, va="center")
        start = 0.0
        for part, value in values.items():
            color, hatch = looks[part]
            axes.barh(at, value, 0.68, left=start, color=color, edgecolor="white", hatch=hatch, linewidth=0.6)
            words = form.format(value)
            if inside and value < sum(values.values()) and value / limit * wide > 9 * len(words) + 8:
                patch = {"facecolor": "white", "edgecolor": "none", "pad": 1}
                half = (3.8 * len(words) + 4) / wide * limit  # of the number, which stands left of a mark that it hides
                middle = start + value / 2
                middle = mark[0] - half if mark and abs(mark[0] - middle) < half < mark[0] - start - half else middle
                axes.text(middle, at, words, fontsize=8.5, ha="center", va="center", bbox=patch, zorder=4)
            start += value
        look = {"textcoords": "offset points", "fontsize": 9.5, "va": "center", "weight": "bold", "zorder": 5}
        axes.annotate(form.format(start), (start, at), (4, 0), **look)
    if mark:
        axes.axvline(mark[0], color=BLACK, linewidth=1.3, linestyle=(0, (3, 1)), zorder=3)
        x = left + mark[0] / limit * wide
        figure.text(x / WIDTH, 1 - 14 / height, mark[1], fontsize=9, va="center", ha="center", color="#555555")
    for at, line in enumerate(lines):
        y = foot - 20 - 22 * at
        for part, x in line:
            color, hatch = looks[part]
            box = {"facecolor": color, "hatch": hatch, "edgecolor": "white", "linewidth": 0.6}
            figure.add_artist(Rectangle((x / WIDTH, (y - 7) / height), 18 / WIDTH, 14 / height, **box))
            figure.text((x + 24) / WIDTH, y / height, part, fontsize=9, va="center")
    said = []
    for row, values in rows.items():
        shown = ", ".join(f"{part} {form.format(value)}" for part, value in values.items() if value)
        said.append(f"{row} {form.format(sum(values.values()))}" + f" ({shown})" * (", " in shown))
    numbers = "; ".join(said)
    return picture(title, figure, about, numbers)


def _letters(words: str) -> float:
    """How many letters of middling width a name takes."""
    return len(words) + 0.5 * sum(words.count(wide) for wide in "mwMW")


def lines(
    series: dict,
    title: str,
    about: str,
    across: str,
    up: str,
    ticks: dict,
    form: str = "{:.2f}",
    marks: dict | None = None,
    numbers: str = "",
    height: int = 300,
) -> Panel:
    """Lines over a logarithmic x, with y from 0: `curves` of series that have points of their own.

    series: {name: [(x, y), ...]}. title, about, form, numbers: as for `columns`. across, up: what the axes show, with
    units. ticks: {x: what stands there}. marks, height: as for `curves`.
    """
    numbers = numbers or "; ".join(
        f"{name} " + ", ".join(f"{form.format(y)} at {ticks.get(x) or number(x)}" for x, y in points)
        for name, points in series.items()
    )
    points = {name: dict(line) for name, line in series.items()}
    xs = sorted({x for line in points.values() for x in line})
    values = {name: [line.get(x) for x in xs] for name, line in points.items()}
    return curves(xs, values, title, about, (across, ticks), (up, None), marks, height, numbers=numbers)


def dots(
    rows: dict,
    title: str,
    about: str,
    across: str,
    ticks: dict,
    form: str = "{:.2f}",
    strong: Sequence[str] = (),
    gray: Sequence[str] = (),
) -> Panel:
    """A point per row on a logarithmic axis, with its number.

    Args:
        rows: {name: number above 0}, from top to bottom.
        title: the finding.
        about: what is shown, for the caption.
        across: what the axis shows, with its unit.
        ticks: {number: what stands there}; the least and the largest are the ends of the axis.
        form: how numbers are written.
        strong: rows in another color.
        gray: rows that stand beside the comparison.
    """
    height = 12 + _ROW * len(rows) + 40
    figure = canvas(height=height)
    left = max(len(row) for row in rows) * _LETTER + 16
    axes = figure.add_axes((left / WIDTH, 40 / height, 1 - (left + 70) / WIDTH, _ROW * len(rows) / height))
    axes.set(xscale="log", xlim=(min(ticks), max(ticks)), ylim=(len(rows) - 0.5, -0.5), yticks=[])
    axes.set_xticks(list(ticks), ticks.values())
    axes.minorticks_off()
    axes.tick_params(labelsize=9)
    axes.set_xlabel(across, fontsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.7)
    for at, (row, value) in enumerate(rows.items()):
        figure.text(6 / WIDTH, 1 - (12 + (at + 0.5) * _ROW) / height, row, fontsize=9, va="center")
        color, marker = (ORANGE, "s") if row in strong else ("#999999", "D") if row in gray else (BLUE, "o")
        axes.plot([value], [at], marker, color=color, markersize=7, markeredgecolor=BLACK, clip_on=False)
        look = {"textcoords": "offset points", "fontsize": 9, "va": "center"}
        axes.annotate(form.format(value), (value, at), (9, 0), **look)
    numbers = "; ".join(f"{row} {form.format(value)}" for row, value in rows.items())
    return picture(title, figure, about, numbers)


def pairs(rows: dict, title: str, about: str, across: str, base: tuple, ticks: Sequence, form: str = "{:.1f}") -> Panel:
    """Points side by side on one scale from 0: a line for each row, a marker for each series, each with its number.

    Args:
        rows: {row: {series: number}}, two series at most.
        title: the finding.
        about: what is shown, for the caption.
        across: what the axis shows.
        base: (number, words) of a dashed line that the points are compared with.
        ticks: where the axis is marked.
        form: how numbers are written.
    """
    series = list(dict.fromkeys(name for values in rows.values() for name in values))
    high, head = 36, 52
    height = head + high * len(rows) + 44
    figure = canvas(height=height)
    left = max(len(row) for row in rows) * _LETTER + 20
    axes = figure.add_axes((left / WIDTH, 44 / height, 1 - (left + 22) / WIDTH, high * len(rows) / height))
    axes.set(xlim=(0, max(ticks)), ylim=(len(rows) - 0.5, -0.5), yticks=[])
    axes.set_xticks(list(ticks))
    axes.tick_params(labelsize=9)
    axes.set_xlabel(across, fontsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="#E6E6E6", linewidth=0.7)
    axes.axvline(base[0], color="#555555", linewidth=1.2, linestyle="--")
    axes.annotate(base[1], (base[0], -0.5), (0, 12), textcoords="offset points", fontsize=9, color="#555555", ha="left")
    looks = dict(zip(series, ((BLUE, "o"), (ORANGE, "s"))))
    for at, (row, values) in enumerate(rows.items()):
        figure.text(6 / WIDTH, 1 - (head + (at + 0.5) * high) / height, row, fontsize=9.5, va="center")
        axes.plot([min(base[0], *values.values()), max(values.values())], [at, at], color="#BBBBBB", linewidth=2)
        for name, value in values.items():
            color, marker = looks[name]
            axes.plot([value], [at], marker, color=color, markersize=9, markeredgecolor=BLACK, zorder=4)
            last = value == max(values.values())
            look = {"textcoords": "offset points", "fontsize": 9, "va": "center", "ha": "left" if last else "center"}
            axes.annotate(form.format(value), (value, at), (8, 0) if last else (0, 11), **look)
    key = WIDTH
    for name in reversed(series):
        key -= len(name) * _BOLD + 34
        y = 1 - 13 / height
        color, marker = looks[name]
        figure.text((key + 14) / WIDTH, y, name, fontsize=9.5, weight="bold", va="center")
        mark = {"marker": marker, "color": color, "markersize": 9, "markeredgecolor": BLACK, "linestyle": ""}
        figure.add_artist(Line2D([key / WIDTH], [y], **mark))
    numbers = "; ".join(
        f"{row} " + ", ".join(f"{name} {form.format(value)}" for name, value in values.items())
        for row, values in rows.items()
    )
    return picture(title, figure, about, numbers)
