"""The toy panel: the bytes that `twice` moves, by the width of a row."""

import torch

from kernels.toy import twice_traffic
from widgets.toolkit.panel import Example, Panel, canvas, whole

EXAMPLE = Example(entry="7", text="28.7 KB")

ROWS = 1024


def toy(cols: int = 3) -> Panel:
    """The traffic of `twice` on 1,024 rows of bf16.

    Args:
        cols: the width of a row, 1 to 10.
    """
    figure = canvas(height=100)
    axes = figure.add_axes((0.1, 0.4, 0.8, 0.5))
    axes.set(xlim=(0, 50), yticks=[], xlabel="KB")
    (bar,) = axes.barh(0, 0, animated=True)

    def draw(cols):
        kilobytes = twice_traffic(ROWS * cols, torch.bfloat16).bytes / 1000
        bar.set_width(kilobytes)
        return f"{ROWS:,} x {cols} elements in bf16: twice reads and writes {kilobytes:.1f} KB."

    return Panel("Toy", figure, {"cols": whole("columns", 1, 10, 3)}, draw).set(cols=cols)
