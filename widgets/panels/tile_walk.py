"""The panel of a tiled matmul's walk: which tiles of a and b each program loads, and how often a strip is requested."""

import numpy as np
import torch
from matplotlib.patches import Rectangle

from kernels.matmul.tiled import matmul_traffic
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, SKY, Example, Panel, canvas, menu, whole
from widgets.toolkit.words import number, size

EXAMPLE = Example(entry="9", text="Program 3 of 16, step 1 of 4", arguments={"tile": 128})

SIDE, DEPTH, BLOCK_K = 512, 256, 64  # elements: c is SIDE x SIDE, K is DEPTH
STEPS = DEPTH // BLOCK_K  # of a program
TILES = (64, 128, 256)
ITEMSIZE = 2  # bytes
_PALE_BLUE, _PALE_ORANGE, _PALE_GREEN = "#cfe6f5", "#f8dfae", "#c4e6da"


def tile_walk(step: int = 27, tile: int = 128) -> Panel:
    """A matmul of 512 x 512 x 256 in bf16, one step of one program at a time, programs in row order.

    Args:
        step: Steps so far, over all programs.
        tile: Side of the tile of c, one of TILES.
    """
    figure = canvas(height=372)
    axes = figure.add_axes((0.005, 0.01, 0.585, 0.98))
    gap = 0.16 * SIDE
    left, top = DEPTH + gap, DEPTH + gap  # of c
    axes.set(xlim=(-40, left + SIDE + 10), ylim=(top + SIDE + 8, -36), aspect="equal", anchor="W")
    axes.axis("off")
    for x, y, wide, tall in ((0, top, DEPTH, SIDE), (left, 0, SIDE, DEPTH), (left, top, SIDE, SIDE)):
        axes.add_patch(_outline(x, y, wide, tall))
    strips = [Boxes(axes, colour, zorder=2) for colour in (_PALE_BLUE, _PALE_ORANGE)]
    done = Boxes(axes, _PALE_GREEN, zorder=2)
    loads = [
        Boxes(axes, colour, zorder=3, edgecolor=BLACK, linewidth=1.2, hatch="//" if colour == ORANGE else "")
        for colour in (SKY, ORANGE)
    ]
    here = Boxes(axes, GREEN, zorder=3, edgecolor=BLACK, linewidth=1.2)
    (edges,) = axes.plot([], [], color="#999999", linewidth=0.6, zorder=4, animated=True)
    look = {"fontsize": 9, "animated": True, "va": "center"}
    a_counts = [axes.text(-8, 0, "", ha="right", **look) for _ in range(SIDE // min(TILES))]
    b_counts = [axes.text(0, -18, "", ha="center", **look) for _ in range(SIDE // min(TILES))]
    axes.text(0, top - 12, "A  [M, K]", fontsize=10.5, va="bottom")
    axes.text(left - 12, DEPTH / 2, "B  [K, N]", fontsize=10.5, ha="right", va="center")
    axes.text(left, top - 12, "C  [M, N]", fontsize=10.5, va="bottom")
    axes.text(-36, 44, "numbers at the edges:\nhow often that strip\nwas requested so far", fontsize=9, va="center")

    bars = figure.add_axes((0.64, 0.1, 0.34, 0.8))
    once = _read(None)
    bars.set(xlim=(0, 1.32 * _read(min(TILES)) / 1e6), ylim=(3.55, -0.45), yticks=[], xticks=[])
    bars.spines[["top", "right", "bottom"]].set_visible(False)
    names = ("this program has requested", "all programs so far", "all programs at the end", "A and B, each byte once")
    boxes = [
        bars.barh(at + 0.1, 0, 0.4, color=colour, hatch=hatch, edgecolor="white", animated=True)[0]
        for at, (colour, hatch) in enumerate(((GREEN, ""), (BLUE, ""), ("#bbbbbb", ""), (ORANGE, "//")))
    ]
    for at, name in enumerate(names):
        bars.text(0.015, at - 0.17, name, fontsize=9, va="bottom")
    texts = [bars.text(0, at + 0.1, "", fontsize=9, va="center", animated=True) for at in range(4)]
    controls = {"step": whole("step", 1, (SIDE // 128) ** 2 * STEPS, 1), "tile": menu("tile", TILES, 128)}

    def limit(_change=None):  # before the panel hears of the change: observers are called in their order
        controls["step"].max = (SIDE // controls["tile"].value) ** 2 * STEPS

    controls["tile"].observe(limit, names="value")

    def draw(step, tile):
        across = SIDE // tile
        step = min(step, across**2 * STEPS)
        program, at = divmod(step - 1, STEPS)
        row, col = divmod(program, across)
        y, x, k = top + row * tile, left + col * tile, at * BLOCK_K
        for strip, box in zip(strips, ((0, y, DEPTH, tile), (x, 0, tile, DEPTH))):
            strip.place(*box)
        for load, box in zip(loads, ((k, y, BLOCK_K, tile), (x, k, tile, BLOCK_K))):
            load.place(*box)
        before = np.arange(program)
        done.place(left + before % across * tile, top + before // across * tile, tile, tile)
        here.place(x, y, tile, tile)
        marks = [at * tile for at in range(1, across)]
        segments = [((left + m, left + m), (top, top + SIDE)) for m in marks]
        segments += [((left, left + SIDE), (top + m, top + m)) for m in marks]
        edges.set_data(*(np.concatenate([[*ends, np.nan] for ends in axis]) for axis in zip(*segments)))
        for at_row, text in enumerate(a_counts):
            count = min(max(program + 1 - at_row * across, 0), across) if at_row < across else 0
            text.set(text=f"{count}" if count else "", y=top + (at_row + 0.5) * tile)
        for at_col, text in enumerate(b_counts):
            count = row + (at_col <= col) if at_col < across else 0
            text.set(text=f"{count}" if count else "", x=left + (at_col + 0.5) * tile)
        per_step = 2 * tile * BLOCK_K * ITEMSIZE
        for box, text, nbytes in zip(boxes, texts, ((at + 1) * per_step, step * per_step, _read(tile), once)):
            box.set_width(nbytes / 1e6)
            text.set(text=size(nbytes), x=nbytes / 1e6 + 0.05)
        flops = 2 * tile * tile * BLOCK_K
        intensity = number(flops / per_step, digits=3)
        return (
            f"Program {program + 1} of {across**2}, step {at + 1} of {STEPS}: all programs so far requested "
            f"{size(step * per_step)}. It loads {tile} x {BLOCK_K} elements of A and {BLOCK_K} x {tile} of B, and "
            f"adds their matmul to the tile of C: {number(flops / 1e6, digits=2)} MFLOP for {size(per_step)}, "
            f"{intensity} FLOP/byte. At the end, all programs have requested {size(_read(tile))}; A and B have "
            f"{size(once)}. Every strip of A is requested {across} times, and every strip of B as well."
        )

    return Panel("A tiled matmul, step by step", figure, controls, draw).set(tile=tile).set(step=step)


def _outline(x, y, wide, tall):
    return Rectangle((x, y), wide, tall, facecolor="white", edgecolor=BLACK, linewidth=1)


def _read(tile: int | None) -> int:
    """Bytes of A and B that programs with square tiles request; None for each byte once."""
    sides = (tile, tile) if tile else None
    return matmul_traffic(SIDE, SIDE, DEPTH, torch.bfloat16, tile=sides).bytes_read
