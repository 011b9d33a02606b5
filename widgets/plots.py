"""Plots of figures that a lesson hands in, labelled directly: bars in columns, and lines.

Nothing is computed here. The finding is the title; the sentence says every number shown, or what it is told to say.
"""

from collections.abc import Sequence

from widgets.panel import BLACK, ORANGE, SKY, WIDTH, Panel, canvas
from widgets.pictures import curves, picture
from widgets.words import number

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
    said: str = "",
) -> Panel:
    """Bars side by side: a line for each row of the table, a column for each kind of number.

    table: {row: {column: number}}; a row may lack columns, and one without any is a heading. title: the finding.
    about: what is shown, for the sentence. form: how numbers are written, for all columns or {column: form}. strong:
    rows in another colour. marks: {column: a value that a dashed line marks}; marked: what that is. spread:
    {row: {column: (low, high)}}, drawn as whiskers. shared: all columns have one scale; else each has its own.
    said: the sentence's end in place of all numbers, where these are many.
    """
    names = list(dict.fromkeys(name for values in table.values() for name in values))
    forms = form if isinstance(form, dict) else dict.fromkeys(names, form)
    marks, spread = marks or {}, spread or {}
    foot = _FOOT + 16 * bool(marked)
    height = _HEAD + _ROW * len(table) + foot
    figure = canvas(height=height)
    left = max(len(row) * (_LETTER if values else _BOLD) for row, values in table.items()) + 14
    wide = (WIDTH - left) / len(names)
    most = {name: max(values.get(name) or 0 for values in table.values()) for name in names}
    most = {name: max(most.values()) if shared else max(most[name], marks.get(name, 0)) for name in names}
    for place, name in enumerate(names):
        axes = figure.add_axes(
            ((left + place * wide) / WIDTH, foot / height, (wide - 8) / WIDTH, _ROW * len(table) / height)
        )
        letters = max(len(forms[name].format(values[name])) for values in table.values() if name in values)
        room = 1 - min(0.6, (letters * 7.6 + 8) / (wide - 8))  # the rest is for the number behind the bar
        axes.set(xlim=(0, (most[name] or 1) / room), ylim=(len(table) - 0.5, -0.5))
        axes.axis("off")
        axes.axvline(0, color="#888888", linewidth=1)
        axes.text(0, -0.62, name, fontsize=9, weight="bold", va="bottom")
        if name in marks:
            axes.axvline(marks[name], color="#555555", linewidth=1, linestyle="--", zorder=3)
        for at, (row, values) in enumerate(table.items()):
            value = values.get(name)
            if value is None:
                continue
            colour = ORANGE if row in strong else SKY
            axes.barh(at, value, 0.66, color=colour, edgecolor="white", hatch="//" if row in strong else "")
            end = value
            if name in spread.get(row, {}):
                low, end = spread[row][name]
                axes.plot([low, end], [at, at], color=BLACK, linewidth=2.2, solid_capstyle="butt", zorder=4)
            axes.annotate(
                forms[name].format(value),
                (max(end, value), at),
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
    said = said or "; ".join(
        f"{row} " + ", ".join(f"{name} {forms[name].format(value)}" for name, value in values.items())
        for row, values in table.items()
        if values
    )
    return picture(title, figure, f"{about}: {said}.")


def lines(
    series: dict,
    title: str,
    about: str,
    across: str,
    up: str,
    ticks: dict,
    form: str = "{:.2f}",
    marks: dict | None = None,
    said: str = "",
    height: int = 300,
) -> Panel:
    """Lines over a logarithmic x, with y from 0: `curves` of series that have points of their own.

    series: {name: [(x, y), ...]}. title, about, form, said: as for `columns`. across, up: what the axes show, with
    units. ticks: {x: what stands there}. marks, height: as for `curves`.
    """
    said = said or "; ".join(
        f"{name} " + ", ".join(f"{form.format(y)} at {ticks.get(x) or number(x)}" for x, y in points)
        for name, points in series.items()
    )
    points = {name: dict(line) for name, line in series.items()}
    xs = sorted({x for line in points.values() for x in line})
    values = {name: [line.get(x) for x in xs] for name, line in points.items()}
    return curves(xs, values, title, f"{about}: {said}.", (across, ticks), (up, None), marks, height)
