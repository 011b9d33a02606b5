"""The Welford panel: a row streamed tile by tile, a mean and squared deviations per accumulator, merged at the end."""

import numpy as np
from matplotlib.collections import LineCollection

from kernels.norms.models import LANES, MEAN, ROW, welford_lanes
from widgets.toolkit.panel import BLACK, BLUE, ORANGE, RED, SKY, Example, Panel, canvas, whole
from widgets.toolkit.words import number

EXAMPLE = Example(entry="3", text="Tile 3 of 4")

TILES = -(-len(ROW) // LANES)
LAST = TILES + 2  # after the tiles: the row's mean, then the merge


def welford_steps(step: int = 2) -> Panel:
    """A row of 14 elements around 10,000 goes through a tile of 4 accumulators.

    Args:
        step: Tiles read so far; then the row's mean, then the merge.
    """
    figure = canvas(height=340)
    lanes = figure.add_axes((0.09, 0.13, 0.55, 0.8))
    lanes.set(xlim=(-0.5, LANES - 0.35), ylim=(MEAN - 2.9, MEAN + 2.9), xticks=range(LANES))
    lanes.set_xticklabels([f"acc. {lane}" for lane in range(LANES)], fontsize=9.5)
    lanes.set_yticks([MEAN - 2, MEAN, MEAN + 2], [f"{MEAN + d:,}" for d in (-2, 0, 2)], fontsize=9)
    lanes.spines[["top", "right"]].set_visible(False)
    lanes.tick_params(bottom=False)
    bars = figure.add_axes((0.76, 0.13, 0.22, 0.8))
    whole_row = float(((ROW - ROW.mean()) ** 2).sum())
    bars.set(xlim=(-0.75, 0.75), ylim=(0, whole_row * 1.32), xticks=[])
    bars.set_ylabel("sum of squared deviations", fontsize=9)
    bars.spines[["top", "right"]].set_visible(False)
    bars.axhline(whole_row, color=BLACK, linewidth=1, linestyle="--")
    bars.text(0.75, whole_row * 1.02, f"the row's: {whole_row:.1f}", fontsize=9, ha="right", va="bottom")

    places = [at % LANES + (at // LANES - 1.5) * 0.14 for at in range(len(ROW))]
    ahead = lanes.plot([], [], "o", markerfacecolor="white", color="#999999", markersize=6, animated=True)[0]
    read = lanes.plot([], [], "o", color=BLUE, markersize=7, animated=True)[0]
    fresh = lanes.plot([], [], "o", color=RED, markersize=9, animated=True)[0]
    stems = lanes.add_collection(LineCollection([], colors="#777777", linewidths=1, linestyles=":", animated=True))
    means = lanes.add_collection(LineCollection([], colors=BLUE, linewidths=2.5, animated=True))
    gaps = lanes.add_collection(LineCollection([], colors=ORANGE, linewidths=4, animated=True))
    line = lanes.plot([], [], color=BLACK, linewidth=1.5, linestyle="--", animated=True)[0]
    line_name = lanes.text(LANES - 0.38, 0, "", fontsize=9, va="center", animated=True)
    within = bars.bar(0, 0, 0.9, color=SKY, edgecolor="white", animated=True)[0]
    between = bars.bar(0, 0, 0.9, color=ORANGE, edgecolor="white", hatch="//", animated=True)[0]
    inside = {"ha": "center", "va": "center", "fontsize": 9, "animated": True}
    within_name, between_name = (
        bars.text(0, 0, "", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5}, **inside) for _ in range(2)
    )

    def draw(step):
        tiles = min(step, TILES)
        mean, deviations, count = welford_lanes(ROW, tiles)
        end = min(tiles * LANES, len(ROW))
        new = range((tiles - 1) * LANES, end) if 0 < step <= TILES else ()
        old = [at for at in range(end) if at not in new]
        read.set_data([places[at] for at in old], ROW[old])
        fresh.set_data([places[at] for at in new], ROW[list(new)])
        ahead.set_data(places[end:], ROW[end:])
        stems.set_segments([[(places[at], ROW[at]), (places[at], mean[at % LANES])] for at in range(end)])
        known = np.flatnonzero(count)
        means.set_segments([[(lane - 0.3, mean[lane]), (lane + 0.3, mean[lane])] for lane in known])
        row_mean = float((mean * count).sum() / len(ROW))
        merged, has_mean = step == LAST, step > TILES
        line.set_data([-0.5, LANES - 0.4] if has_mean else [], [row_mean] * 2 if has_mean else [])
        line_name.set_text("row's\nmean" if has_mean else "")
        line_name.set_y(row_mean)
        gaps.set_segments([[(lane, mean[lane]), (lane, row_mean)] for lane in known] if merged else [])
        own, apart = float(deviations.sum()), float((count * (mean - row_mean) ** 2).sum()) if merged else 0.0
        for bar, text, name, size, bottom in (
            (within, within_name, "within", own, 0.0),
            (between, between_name, "between", apart, own),
        ):
            bar.set_height(size)
            bar.set_y(bottom)
            text.set_text(f"{name}\n{size:.1f}" if size > 0.12 * whole_row else "")
            text.set_y(bottom + size / 2)
        if not step:
            return f"Nothing is read yet: {len(ROW)} elements around {MEAN:,}, {LANES} accumulators, {TILES} tiles."
        elements = ", ".join(f"{x:,.1f}" for x in ROW[:end:LANES])
        if step <= TILES:
            some = "one element" if end <= LANES else f"{int(count[0])} elements ({elements})"
            return (
                f"Tile {step} of {TILES}: each accumulator takes an element (large dot) and moves its mean (line). "
                f"It adds to its squared deviations. Accumulator 0 has read {some}: mean {mean[0]:,.2f}, squared "
                f"deviations {number(deviations[0], digits=3)}. All accumulators together: {own:.1f}."
            )
        if not merged:
            return (
                f"The accumulators' means, weighted by {', '.join(f'{n:.0f}' for n in count)} elements, give the row's "
                f"mean, {row_mean:,.2f}. Within the accumulators the squared deviations add up to {own:.1f}, but "
                f"the row's are {whole_row:.1f}: each accumulator measured from its own mean."
            )
        return (
            f"The merge: per element, an accumulator adds the squared distance of its mean to the row's mean (orange). "
            f"Together they add {apart:.1f}. {own:.1f} + {apart:.1f} = {own + apart:.1f}, which is the row's "
            f"sum of squared deviations; over {len(ROW)} elements the variance is {whole_row / len(ROW):.2f}."
        )

    return Panel("Welford's update, then Chan's merge", figure, {"step": whole("step", 0, LAST, 2)}, draw).set(
        step=step
    )
