"""The toy panel: how wide a row is."""

from widgets.panel import Example, Panel, canvas, whole

EXAMPLE = Example(typed="7", told="7 columns")


def toy(cols: int = 3) -> Panel:
    """A bar as long as a row is wide."""
    figure = canvas(height=100)
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.set(xlim=(0, 10), xticks=[], yticks=[])
    (bar,) = axes.barh(0, 0, animated=True)

    def draw(cols):
        bar.set_width(cols)
        return f"A row has {cols} columns."

    return Panel("Toy", figure, {"cols": whole("columns", 1, 10, 3)}, draw).set(cols=cols)
