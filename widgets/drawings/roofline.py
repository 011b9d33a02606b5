"""Still drawings of lesson 01: the memories of a GPU, one weight for many tokens, intensities on a line."""

from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from widgets.drawings.pictures import arrow, box, page, picture
from widgets.toolkit.panel import BLUE, GREEN, ORANGE, SKY, Panel, canvas
from widgets.toolkit.words import number

_HOST, _DRAM, _CHIP = "#f6ead2", "#eeeeee", "#e3f1fa"


def memory_hierarchy(latency: dict, copy_gbps: float, launch_us: float) -> Panel:
    """Host, device memory, L2 and one SM of the H200, with what lies between them.

    Args:
        latency: {"L1", "L2", "HBM": ns from a load to its data}.
        copy_gbps: copy bandwidth of device memory.
        launch_us: host time for a launch.
    """
    figure, axes = page(372)
    box(axes, 6, 96, 124, 96, _HOST, edgecolor="none")
    box(axes, 166, 44, 140, 200, _DRAM, edgecolor="none")
    box(axes, 414, 8, 340, 252, _CHIP, edgecolor="none")
    for x, y, text in ((68, 116, "host (CPU)"), (236, 64, "HBM"), (584, 24, "the chip")):
        axes.text(x, y, text, fontsize=10.5, weight="bold", ha="center", va="center")
    axes.text(68, 156, "runs Python,\nlaunches kernels", fontsize=9.5, ha="center", va="center")
    axes.text(236, 148, "141 GB\n\nweights,\nactivations,\nKV cache", fontsize=9.5, ha="center", va="center")
    box(axes, 426, 44, 92, 200, "white")
    axes.text(472, 144, "L2\n62.9 MB\n(60 MiB),\nshared by\nall SMs", fontsize=9.5, ha="center", va="center")
    for shift in (12, 6, 0):
        box(axes, 566 + shift, 44 - shift / 2, 170, 200, "white")
    axes.text(651, 58, "SM, 132 of them", fontsize=9.5, weight="bold", ha="center", va="center")
    for y, height, colour, text in (
        (72, 40, "#fdf3dc", "L1 and shared\nmemory, 256 KiB"),
        (118, 40, "#fdf3dc", "registers\n256 KiB"),
        (166, 32, SKY, "CUDA cores"),
        (204, 32, GREEN, "tensor cores"),
    ):
        box(axes, 580, y, 142, height, colour)
        axes.text(651, y + height / 2, text, fontsize=9, ha="center", va="center")
    axes.plot([68, 68], [96, 24], color="#8a5f00", linewidth=1.6, solid_capstyle="butt")
    arrow(axes, (68, 24), (413, 24), "#8a5f00", shrinkA=0)
    axes.text(
        236, 12, f"a launch: {launch_us:.2f} µs of the host", fontsize=9, ha="center", va="center", color="#8a5f00"
    )
    look = {"arrowstyle": "<|-|>", "linewidth": 5, "mutation_scale": 20}
    arrow(axes, (306, 144), (425, 144), BLUE, **look)
    axes.text(360, 108, f"{copy_gbps:,.0f} GB/s", fontsize=9.5, weight="bold", ha="center", va="center", color=BLUE)
    arrow(axes, (518, 144), (565, 144), BLUE, **look)
    _waits(axes, latency)
    return picture(
        "What a kernel runs on",
        figure,
        "A kernel's data start in HBM, pass through L2 and are computed on in an SM. On the H200 HBM holds 141 GB and "
        f"copies at {copy_gbps:,.0f} GB/s. L2 holds 62.9 MB (60 MiB) for all 132 SMs. An SM has 256 KiB of L1 and "
        "shared memory, 256 KiB of registers, CUDA cores and tensor cores. From a load to its data pass "
        f"{latency['L1']:.0f} ns from L1, {latency['L2']:.0f} ns from L2 and {latency['HBM']:.0f} ns from HBM. "
        f"The host launches kernels on the chip; an empty one takes {launch_us:.2f} µs of its time through Triton.",
    )


def _waits(axes, latency: dict):
    """Under the memories, an arrow per level: how long a load waits that this level answers."""
    axes.text(8, 300, "latency: how long a load\nwaits for its data", fontsize=9.5, weight="bold", va="center")
    for y, start, level in ((284, 592, "L1"), (316, 472, "L2"), (348, 236, "HBM")):
        axes.plot([start, start], [y - 8, y + 8], color="#555555", linewidth=1.6)
        arrow(axes, (start, y), (648, y), "#555555", shrinkA=0)
        axes.text(658, y, f"{level}: {latency[level]:.0f} ns", fontsize=9.5, va="center")


#: the phases of a copy's program, as drawn: (CSS pixels, color, words)
_PHASES = (
    (120, "#eeeeee", "start"),
    (320, "white", "the load is in flight"),
    (90, GREEN, "store"),
    (110, "#eeeeee", "end"),
)


def waiting() -> Panel:
    """A small copy waits for its load, while HBM idles; a larger one waits as long, with more loads in flight."""
    figure, axes = page(290)
    left, whole = 104, sum(wide for wide, *_ in _PHASES)
    for top, name, count, said in (
        (30, "a small copy", 1, "idle nearly all the time"),
        (120, "a larger copy", 5, "more bytes in the same time"),
    ):
        axes.text(8, top - 14, name, fontsize=10, weight="bold", va="center")
        axes.text(8, top + 11 * count - 1.5, f"{count} program" + "s" * (count > 1), fontsize=9.5, va="center")
        for row in range(count):
            x, y = left, top + 22 * row
            for wide, colour, text in _PHASES:
                box(axes, x, y, wide, 19, colour)
                axes.text(x + wide / 2, y + 9.5, text, fontsize=9, ha="center", va="center")
                x += wide
        y = top + 22 * count + 6
        axes.text(8, y + 9.5, "HBM", fontsize=9.5, va="center")
        box(axes, left, y, whole, 19, "#ECECEC", edgecolor="#bbbbbb")
        for x in (300, 480):
            for at in range(count):
                box(axes, left + x + 11 * at, y, 6, 19, SKY)
        axes.text(left + 10, y + 9.5, said, fontsize=9, va="center", color="#444444")
    arrow(axes, (left, 276), (left + whole, 276), "#555555")
    axes.text(8, 276, "time", fontsize=9, va="center", color="#555555")
    return picture(
        "A load takes as long alone as with others beside it",
        figure,
        "A small copy starts, waits for its load, stores and ends, and HBM is busy for a moment only. A larger copy "
        "has more programs, and their loads are in flight at the same time, so more bytes move in the same time. The "
        "lengths are not measured.",
    )


def shared_weights(outputs: int, inputs: int, counts: dict) -> Panel:
    """One weight matrix, read once, for one token and for many.

    Args:
        outputs: columns of the weight.
        inputs: rows of the weight.
        counts: {heading: (tokens that are drawn, bytes, FLOPs, FLOP/byte)}, each but the first as words.
    """
    figure, axes = page(270)
    for left, (heading, (tokens, nbytes, flops, intensity)) in zip((10, 396), counts.items()):
        axes.text(left + 176, 18, heading, fontsize=10.5, weight="bold", ha="center", va="center")
        high = 9 * tokens
        box(axes, left + 104, 48, 236, 84, ORANGE)
        axes.text(left + 222, 82, "weight, read once", fontsize=9.5, ha="center", va="center")
        axes.text(left + 222, 100, f"{inputs:,} × {outputs:,}", fontsize=9.5, ha="center", va="center")
        box(axes, left + 6, 146, 84, high, SKY)
        box(axes, left + 104, 146, 236, high, GREEN)
        for row in range(1, tokens):
            for x, wide in ((left + 6, 84), (left + 104, 236)):
                axes.plot([x, x + wide], [146 + 9 * row] * 2, color="white", linewidth=0.8)
        axes.add_patch(Rectangle((left + 6, 146), 84, high, fill=False, linewidth=0.8))
        axes.add_patch(Rectangle((left + 104, 146), 236, high, fill=False, linewidth=0.8))
        axes.text(left + 48, 150 + high, "x", fontsize=10, ha="center", va="top")
        axes.text(left + 222, 150 + high, "y = x @ weight", fontsize=10, ha="center", va="top")
        text = f"{nbytes}   {flops}   {intensity}"
        axes.text(left + 176, 256, text, fontsize=9.5, ha="center", va="center")
    axes.plot([378, 378], [10, 262], color="#bbbbbb", linewidth=1)
    said = "; ".join(f"{heading}: {', '.join(words)}" for heading, (_, *words) in counts.items())
    return picture(
        "The weight is read once, and each token uses all of it",
        figure,
        f"Both matmuls read the same weight of {inputs:,} x {outputs:,} once. {said}.",
    )


def overlap() -> Panel:
    """Tiles that are loaded while others are computed: one kernel that waits for memory, one for its tensor cores."""
    tiles, left, high = 6, 118, 30
    figure, axes = page(252)
    for top, name, load, compute in ((34, "memory-bound", 96, 34), (150, "compute-bound", 34, 96)):
        axes.text(8, top - 16, name, fontsize=10, weight="bold", va="center")
        loaded, computed = [], []
        for tile in range(tiles):
            # A tile is loaded once the one before is, and the tile two before is computed and its buffer free.
            begin = max([0, *loaded[-1:], *computed[tile - 2 : tile - 1]]) if tile > 1 else max([0, *loaded[-1:]])
            loaded.append(begin + load)
            computed.append(max([loaded[-1], *computed[-1:]]) + compute)
            for y, end, wide, color in ((top, loaded[-1], load, SKY), (top + 38, computed[-1], compute, GREEN)):
                box(axes, left + end - wide, y, wide, high, color)
                axes.text(left + end - wide / 2, y + high / 2, f"{tile}", fontsize=9, ha="center", va="center")
        for y, words in ((top, "load a tile"), (top + 38, "compute on it")):
            axes.text(8, y + high / 2, words, fontsize=9.5, va="center")
    arrow(axes, (left, 240), (752, 240), "#555555")
    axes.text(60, 240, "time", fontsize=9, ha="center", va="center", color="#555555")
    return picture(
        "Loads and arithmetic overlap, so the longer of the two remains",
        figure,
        "A kernel loads the next tile while it computes on this one. Where a load takes longer, the loads follow each "
        "other without a pause and the arithmetic waits: memory-bound. Where the arithmetic takes longer, the loads "
        "wait: compute-bound. Only the first load and the last computation stand alone. The lengths are not measured.",
    )


def intensities(values: dict, title: str, about: str) -> Panel:
    """Points on one logarithmic line of FLOP/byte, a row each.

    Args:
        values: {row: {dtype: FLOP/byte}}; at most three dtypes.
        title: the finding.
        about: what is shown, for the caption.
    """
    line, head = 25, 40
    height = head + line * len(values) + 44
    figure = canvas(height=height)
    axes = figure.add_axes((0.2, 44 / height, 0.77, line * len(values) / height))
    points = [value for row in values.values() for value in row.values()]
    axes.set(xscale="log", xlim=(min(points) / 1.7, 3 * max(points)), ylim=(len(values) - 0.5, -0.5))
    axes.minorticks_off()
    ticks = [10.0**power for power in range(-2, 6) if axes.get_xlim()[0] < 10.0**power < axes.get_xlim()[1]]
    axes.set_xticks(ticks, [number(tick) for tick in ticks], fontsize=9)
    axes.set_xlabel("arithmetic intensity, FLOP/byte (logarithmic: each tick is ten times the one before)", fontsize=9)
    axes.set_yticks(range(len(values)), values, fontsize=9.5)
    axes.tick_params(left=False)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    kinds = dict.fromkeys(kind for row in values.values() for kind in row)
    looks = dict(zip(kinds, (("o", BLUE), ("s", ORANGE), ("^", GREEN))))
    for at, row in enumerate(values.values()):
        for kind, value in row.items():
            marker, colour = looks[kind]
            axes.plot([value], [at], marker, color=colour, markeredgecolor="black", markersize=7.5, zorder=3)
    if len(looks) > 1:
        for place, (kind, (marker, colour)) in enumerate(looks.items()):
            x, y = 8 / 760 + 0.075 * place, 1 - 16 / height
            figure.add_artist(
                Line2D([x + 0.008], [y], marker=marker, color=colour, markeredgecolor="black", markersize=7.5)
            )
            figure.text(x + 0.02, y, kind, fontsize=9, va="center")
    said = "; ".join(
        f"{name} " + ", ".join(number(v, digits=3) + (f" in {k}" if len(looks) > 1 else "") for k, v in row.items())
        for name, row in values.items()
    )
    return picture(title, figure, about, said)
