"""Peers side by side: bars in groups on one scale, each with its number."""

from matplotlib.patches import Rectangle

from widgets.drawings.pictures import picture
from widgets.toolkit.panel import BLUE, GREEN, ORANGE, SKY, WIDTH, Panel, canvas

_LOOKS = ((SKY, ""), (ORANGE, "//"), (GREEN, ".."), (BLUE, ""))
_LETTER = 7.2  # how wide a letter of the key is, in CSS pixels


def grouped(
    groups: dict, title: str, about: str, up: str, form: str = "{:,.0f}", marks: dict | None = None, height: int = 290
) -> Panel:
    """Bars of all series side by side in every group, on one scale from 0.

    Args:
        groups: {group: {series: number}}; a line break in a group's name breaks its label. Four series at most.
        title: the finding.
        about: what is shown, for the caption.
        up: what the scale shows, with its unit.
        form: how numbers are written.
        marks: {words: number} of dashed lines across all groups.
        height: CSS pixels.
    """
    series = list(dict.fromkeys(name for values in groups.values() for name in values))
    marks = marks or {}
    lines = max(name.count("\n") for name in groups)
    foot = 26 + 17 * lines
    figure = canvas(height=height)
    axes = figure.add_axes((0.075, foot / height, 0.915, 1 - (foot + 54) / height))
    highest = max([value for values in groups.values() for value in values.values()] + list(marks.values()))
    axes.set(xlim=(-0.55, len(groups) - 0.45), ylim=(0, 1.12 * highest))
    axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.tick_params(labelsize=9, bottom=False)
    axes.set_xticks(range(len(groups)), list(groups), fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.7)
    axes.set_axisbelow(True)
    wide = 0.84 / len(series)
    for at, values in enumerate(groups.values()):
        for place, name in enumerate(series):
            if name not in values:
                continue
            color, hatch = _LOOKS[place]
            x = at + (place - (len(series) - 1) / 2) * wide
            axes.bar(x, values[name], 0.92 * wide, color=color, hatch=hatch, edgecolor="white")
            look = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 9, "zorder": 5}
            look["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # over a dashed line
            axes.annotate(form.format(values[name]), (x, values[name]), (0, 2), **look)
    for value in marks.values():
        axes.axhline(value, color="#555555", linewidth=1.2, linestyle="--")
    if marks:
        look = {"fontsize": 9, "color": "#555555", "ha": "right", "va": "center"}
        figure.text(1 - 8 / WIDTH, 1 - 36 / height, f"dashed: {', '.join(marks)}", **look)
    figure.text(6 / WIDTH, 1 - 36 / height, up, fontsize=9, va="center")
    x, y = 6.0, 1 - 13 / height
    for place, name in enumerate(series):
        color, hatch = _LOOKS[place]
        box = Rectangle((x / WIDTH, y - 5.5 / height), 11 / WIDTH, 11 / height, facecolor=color, hatch=hatch)
        box.set(edgecolor="white", transform=figure.transFigure)
        figure.add_artist(box)
        figure.text((x + 17) / WIDTH, y, name, fontsize=9.5, va="center")
        x += 17 + len(name) * _LETTER + 18
    numbers = "; ".join(
        " ".join(group.split()) + ": " + ", ".join(f"{name} {form.format(value)}" for name, value in values.items())
        for group, values in groups.items()
    )
    return picture(title, figure, about, numbers)
