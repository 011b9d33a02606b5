"""The coalescing panel: where a warp's 32 lanes fall, the sectors that this takes, and what of them is used."""

import numpy as np
from matplotlib.colors import to_rgb

from instruments.gpus import DTYPES, GPUS
from instruments.sectors import LANES, SECTOR, request, touched
from widgets.panel import BLUE, YELLOW, Example, Panel, canvas, menu, whole
from widgets.words import rate

EXAMPLE = Example(typed="16", told="bf16, stride 16, offset 0")

COLUMNS, ROWS = 16, 9  # of sectors drawn: strides up to 32 elements of 4 bytes, and an offset


def coalescing(stride: int = 2, offset: int = 0, dtype: str = "bf16") -> Panel:
    """A request, byte by byte: lane i reads element offset + i * stride of a tensor that begins at a sector's start."""
    figure = canvas(height=250)
    axes = figure.add_axes((0.01, 0.14, 0.98, 0.84))
    axes.set(xlim=(0, COLUMNS * SECTOR), ylim=(ROWS, 0), xticks=[], yticks=[])
    colours = np.array([[round(255 * part) for part in to_rgb(c)] for c in ("#eeeeee", YELLOW, BLUE)], dtype=np.uint8)
    picture = axes.imshow(
        np.zeros((ROWS, COLUMNS * SECTOR, 3), np.uint8),
        aspect="auto",
        interpolation="nearest",
        extent=(0, COLUMNS * SECTOR, ROWS, 0),
        animated=True,
    )
    axes.vlines(np.arange(1, COLUMNS) * SECTOR, 0, ROWS, color="white", linewidth=2, zorder=3, animated=True)
    axes.hlines(np.arange(1, ROWS), 0, COLUMNS * SECTOR, color="white", linewidth=3, zorder=3, animated=True)
    for x, colour, text in (
        (0.01, BLUE, "bytes that a lane wants"),
        (0.3, YELLOW, "bytes that come along"),
        (0.57, "#eeeeee", "sectors left alone; each box is one of 32 bytes"),
    ):
        figure.text(x, 0.045, "\u25a0", color=colour, fontsize=13, va="center")
        figure.text(x + 0.025, 0.045, text, fontsize=9, va="center")

    def draw(stride, offset, dtype):
        itemsize = DTYPES[dtype].itemsize
        lanes = (offset + np.arange(LANES) * stride) * itemsize
        asked, best = request(lanes, itemsize), request(np.arange(LANES) * itemsize, itemsize)
        state = np.zeros(ROWS * COLUMNS * SECTOR, dtype=int)
        for sector in touched(lanes, itemsize):
            state[sector * SECTOR : (sector + 1) * SECTOR] = 1
        for byte in range(itemsize):
            state[lanes + byte] = 2
        picture.set_data(colours[state.reshape(ROWS, -1)])
        gpu = GPUS["H200"]
        return (
            f"{dtype}, stride {stride}, offset {offset}: 32 lanes want {asked.useful} different bytes and touch "
            f"{asked.sectors} sector{'s' * (asked.sectors != 1)}, {asked.sectors * SECTOR:,} B, so {asked.share:.0%} "
            f"of the sectors' bytes are useful. Neighbours from a sector's start take {best.sectors}. If nothing else "
            f"used the rest, the {gpu.name}'s {rate(gpu.bandwidth, 'B/s')} would deliver "
            f"{rate(gpu.bandwidth * asked.share, 'B/s')}."
        )

    return Panel(
        "Coalescing",
        figure,
        {
            "stride": whole("stride", 0, 32, 1),
            "offset": whole("offset", 0, 31, 0),
            "dtype": menu("dtype", DTYPES, "bf16"),
        },
        draw,
    ).set(stride=stride, offset=offset, dtype=dtype)
