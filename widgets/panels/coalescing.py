"""The coalescing panel: where a warp's 32 threads fall, the sectors that this takes, and what of them is used."""

import numpy as np
from matplotlib.colors import to_rgb

from instruments import results
from instruments.gpus import DTYPES
from instruments.sectors import LANES, SECTOR, request, touched
from widgets.toolkit.cells import Blocks
from widgets.toolkit.panel import BLUE, GREEN, ORANGE, Example, Panel, canvas, menu, whole
from widgets.toolkit.words import rate

EXAMPLE = Example(entry="16", text="bf16, stride 16, offset 0")

COLUMNS, ROWS = 8, 17  # of sectors drawn: strides up to 32 elements of 4 bytes, and an offset


def coalescing(stride: int = 2, offset: int = 0, dtype: str = "bf16") -> Panel:
    """A request, byte by byte: thread i reads element offset + i * stride of a tensor that begins with a sector.

    Args:
        stride: In elements, 0 to 32.
        offset: In elements, 0 to 31.
        dtype: One of DTYPES.
    """
    figure = canvas(height=340)
    speed = results.load("h200").copy_gbps * 1e9
    axes = figure.add_axes((0.075, 0.09, 0.585, 0.84))
    axes.set(xlim=(0, COLUMNS * SECTOR), ylim=(ROWS, 0))
    axes.set_title("memory, in sectors of 32 bytes, by address", fontsize=10, loc="left")
    axes.set_yticks(
        np.arange(0, ROWS, 2) + 0.5, [f"{row * COLUMNS * SECTOR:,}" for row in range(0, ROWS, 2)], fontsize=9
    )
    axes.set_xticks(np.arange(0, COLUMNS, 2) * SECTOR, [f"+{col * SECTOR}" for col in range(0, COLUMNS, 2)], fontsize=9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bars = figure.add_axes((0.7, 0.09, 0.265, 0.84))
    bars.set(xlim=(0, LANES * SECTOR), ylim=(2.7, -0.6), yticks=[])
    bars.set_xticks([0, 512, 1024], ["0", "512", "1,024 B"], fontsize=9)
    bars.spines[["top", "left", "right"]].set_visible(False)
    bars.set_title("bytes of one request", fontsize=10, loc="left")
    look = {"hatch": ("", "//", ".."), "edgecolor": "white", "animated": True}
    amounts = bars.barh([0.25, 1.25, 2.25], [0] * 3, 0.4, color=(BLUE, ORANGE, GREEN), **look)
    names = [bars.text(0, place, "", fontsize=9, va="center", animated=True) for place in (-0.1, 0.9, 1.9)]
    colours = np.array([[round(255 * part) for part in to_rgb(c)] for c in ("#eeeeee", ORANGE, BLUE)], dtype=np.uint8)
    memory = Blocks(axes, np.zeros((ROWS, COLUMNS * SECTOR, 3), np.uint8))
    axes.vlines(np.arange(1, COLUMNS) * SECTOR, 0, ROWS, color="white", linewidth=2, zorder=3, animated=True)
    axes.hlines(np.arange(1, ROWS), 0, COLUMNS * SECTOR, color="white", linewidth=3, zorder=3, animated=True)

    def draw(stride, offset, dtype):
        itemsize = DTYPES[dtype].itemsize
        addresses = (offset + np.arange(LANES) * stride) * itemsize
        strided, best = request(addresses, itemsize), request(np.arange(LANES) * itemsize, itemsize)
        state = np.zeros(ROWS * COLUMNS * SECTOR, dtype=int)
        for sector in touched(addresses, itemsize):
            state[sector * SECTOR : (sector + 1) * SECTOR] = 1
        for byte in range(itemsize):
            state[addresses + byte] = 2
        memory.colours = colours[state.reshape(ROWS, -1)]
        counts = strided.useful, strided.sectors * SECTOR, best.sectors * SECTOR
        for bar, text, count, what in zip(
            amounts, names, counts, ("used, blue", "read, orange too", "if threads were neighbors")
        ):
            bar.set_width(count)
            text.set_text(f"{what}: {count:,}")
        sectors = f"{strided.sectors} sector{'s' * (strided.sectors != 1)}"
        return (
            f"{dtype}, stride {stride}, offset {offset}: 32 threads use {strided.useful} of "
            f"{strided.sectors * SECTOR:,} B in {sectors} ({strided.share:.0%}). "
            f"Neighbors from a sector's start take {best.sectors}. If nothing else "
            f"used the rest, the H200's copy bandwidth of {rate(speed, 'B/s')} would deliver at most "
            f"{rate(speed * strided.share, 'B/s')}."
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
