"""Lesson 10's pictures: matmul shapes on a roofline, the waves of tiles, the parts of split-K, the sums of
one set of numbers in many orders. Figures are handed in."""

from matplotlib.patches import Rectangle

from widgets.drawings.pictures import arrow, box, page, picture
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, WIDTH, Panel, canvas

_GRAY, _INK_ORANGE = "#555555", "#8a5f00"


def shapes_on_roofline(points: dict, measured: tuple, copy_gbps: float, matmul_tflops: float, title: str) -> Panel:
    """A roofline with the arithmetic intensities of some shapes on it.

    Args:
        points: {name: (FLOP/byte, points to the right, points upward)} of hollow dots on the roof, names beside them.
        measured: (FLOP/byte, TFLOP/s, name) of a point below the roof.
        copy_gbps: slope of the roof.
        matmul_tflops: its height.
        title: the finding.
    """
    figure = canvas(height=310)
    axes = figure.add_axes((0.085, 0.15, 0.89, 0.76))
    ridge = 1e3 * matmul_tflops / copy_gbps
    axes.set(xscale="log", yscale="log", xlim=(0.5, 8192), ylim=(1, 2000))
    axes.minorticks_off()
    axes.set_xticks([1, 4, 16, 64, 256, 1024, 4096], ["1", "4", "16", "64", "256", "1,024", "4,096"], fontsize=9)
    axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"], fontsize=9)
    axes.set_xlabel("arithmetic intensity, FLOP/byte", fontsize=9)
    axes.text(0, 1.03, "TFLOP/s", fontsize=9, transform=axes.transAxes)
    axes.spines[["top", "right"]].set_visible(False)
    axes.plot([0.5, ridge, 8192], [0.5 * copy_gbps / 1e3, matmul_tflops, matmul_tflops], color=BLACK, linewidth=2)
    axes.plot([ridge, ridge], [1, matmul_tflops], ":", color=_GRAY, linewidth=1.2)
    axes.text(ridge * 1.08, 1.25, f"ridge point: {ridge:.0f} FLOP/byte", fontsize=9, color=_GRAY)
    axes.text(ridge * 0.95, matmul_tflops * 1.35, f"bf16 matmul, {matmul_tflops:.0f} TFLOP/s", fontsize=9, color=_GRAY)
    axes.text(9, 90, f"copy bandwidth, {copy_gbps:,.0f} GB/s", fontsize=9, color=_GRAY, ha="right")
    said = []
    for name, (x, *offset) in points.items():
        y = min(x * copy_gbps / 1e3, matmul_tflops)
        axes.plot([x], [y], "o", mfc="white", mec=BLUE, mew=2, markersize=9, zorder=4)
        look = {
            "textcoords": "offset points",
            "fontsize": 9,
            "va": "center",
            "ha": "left" if offset[0] > 0 else "right",
        }
        axes.annotate(name, (x, y), offset, **look)
        said.append(f"{name} {x:,.0f} FLOP/byte")
    axes.text(0.55, 1100, "hollow: the roof above each shape, not measured", fontsize=9, color=_GRAY)
    x, y, name = measured
    axes.plot([x], [y], "s", color=ORANGE, markeredgecolor=BLACK, markersize=8, zorder=5)
    words = f"{name}: {y:.1f} TFLOP/s"
    look = {"textcoords": "offset points", "fontsize": 9, "color": _INK_ORANGE, "va": "center"}
    axes.annotate(words.replace(", ", ",\n"), (x, y), (0, 22), ha="center", **look)
    about = f"Each hollow circle is the roof above a shape, not measured; the ridge point lies at {ridge:.0f} FLOP/byte"
    return picture(title, figure, about, f"{'; '.join(said)}. {words}")


def sums_by_order(often: dict, title: str, about: str) -> Panel:
    """How many orders of addition give each sum.

    Args:
        often: {distance from the exact sum in ulps: number of orders}.
        title: the finding.
        about: what is shown, for the caption.
    """
    figure = canvas(height=260)
    axes = figure.add_axes((0.08, 0.2, 0.9, 0.72))
    for distance, orders in often.items():
        axes.bar(
            distance, orders, 0.7, color=ORANGE if distance else SKY, hatch="//" if distance else "", edgecolor="white"
        )
        axes.annotate(
            f"{orders}", (distance, orders), (0, 6), textcoords="offset points", fontsize=9, ha="center", va="center"
        )
    low, high = min(often), max(often)
    axes.set(xlim=(low - 0.8, high + 0.8), ylim=(0, 1.12 * max(often.values())), yticks=[])
    axes.set_xticks(range(low, high + 1), [f"{at:+d}" if at else "0" for at in range(low, high + 1)], fontsize=9)
    axes.set_xlabel("distance from the fp64 sum, in fp32 ulps", fontsize=9)
    axes.text(0, 1.02, "orders that give this sum", fontsize=9, transform=axes.transAxes)
    axes.spines[["top", "right", "left"]].set_visible(False)
    numbers = ", ".join(f"{distance:+d}: {orders}" for distance, orders in often.items())
    return picture(title, figure, about, numbers)


def waves_and_teeth(tiles: int, sms: int, lines: dict, dot: tuple, words: tuple, title: str, about: str) -> Panel:
    """Above, the waves of one matmul, a box per SM; below, the useful share against M.

    Args:
        tiles: tiles of the matmul above, at least one.
        sms: SMs of the GPU, one tile each at a time.
        lines: {name: [(M, useful share in %)]} of at most two lines, named beside their last points.
        dot: (M, useful share in %) of the matmul above.
        words: what stands above the waves, and the name of the axis of M.
        title: the finding.
        about: the text alternative.
    """
    waves = -(-tiles // sms)
    top, row, left, right = 34, 24, 66, 132
    height = top + waves * row + 284
    figure = canvas(height=height)
    page = figure.add_axes((0, 0, 1, 1))
    page.set(xlim=(0, WIDTH), ylim=(height, 0))
    page.axis("off")
    page.text(8, 15, words[0], fontsize=9.5, weight="bold", va="center")
    wide = (WIDTH - left - right) / sms
    for wave in range(waves):
        full, y = min(sms, tiles - wave * sms), top + wave * row
        page.text(8, y + 9, f"wave {wave + 1}", fontsize=9, va="center")
        for sm in range(sms):
            look = {"facecolor": SKY} if sm < full else {"facecolor": "#eeeeee"}
            page.add_patch(Rectangle((left + sm * wide, y), wide * 0.82, 18, edgecolor="none", **look))
        at_work = f"{full} SMs work" if full == sms else f"{full} work, {sms - full} wait"
        page.text(WIDTH - right + 8, y + 9, at_work, fontsize=9, va="center")
    axes = figure.add_axes((left / WIDTH, 48 / height, 1 - (left + right + 40) / WIDTH, 196 / height))
    axes.set(ylim=(0, 105), xlim=(0, max(m for line in lines.values() for m, _ in line)))
    axes.set_yticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100"], fontsize=9)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xticks(range(0, int(axes.get_xlim()[1]) + 1, 1024))
    axes.tick_params(labelsize=9)
    axes.set_xlabel(words[1], fontsize=9)
    axes.text(0, 1.06, "useful share, %", fontsize=9, transform=axes.transAxes)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.7)
    for at, ((name, line), color) in enumerate(zip(lines.items(), (BLUE, RED))):
        axes.plot(*zip(*line), color=color, linewidth=1.5 if at == 0 else 2)
        axes.annotate(name, (1.02, 0.97 - 0.13 * at), xycoords="axes fraction", fontsize=9.5, color=color, va="center")
    axes.plot(*dot, "o", color=RED, markeredgecolor=BLACK, markersize=9, zorder=5)
    look = {"textcoords": "offset points", "fontsize": 9.5, "va": "center"}
    axes.annotate(f"{dot[0]:,} rows: {dot[1]:.0f}%", dot, (10, -14), **look)
    return picture(title, figure, about)


def split_of_k() -> Panel:
    """Where the parts of split-K lie in A and B: four parts of K, a partial sum of the whole tile each, and C."""
    figure, axes = page(250)
    colors = (SKY, ORANGE, GREEN, PURPLE)
    side, part = 44, 44  # of C and of a part of K, in CSS pixels
    words = {"ha": "center", "va": "center", "fontsize": 10}
    for at, color in enumerate(colors):
        box(axes, 40 + at * part, 150, part, side, color)
        axes.text(40 + (at + 0.5) * part, 150 + side / 2, str(at), **words)
        box(axes, 250, 24 + at * part * 0.75, side, part * 0.75, color)
        axes.text(250 + side / 2, 24 + (at + 0.5) * part * 0.75, str(at), **words)
        top = 16 + at * 52
        box(axes, 460, top, side, side, color)
        axes.text(460 + side / 2, top + side / 2, f"A{at} B{at}", **words)
        axes.text(452, top + side / 2, f"program {at}", **words | {"ha": "right"})
        arrow(axes, (460 + side + 4, top + side / 2), (640, 116), linewidth=1.2, mutation_scale=10)
    axes.text(40 + 2 * part, 214, "A: 4 parts of its columns", **words)
    axes.text(250 + side / 2, 12, "B: 4 parts of its rows", **words)
    axes.text(482, 236, "first launch: four partial sums, fp32", **words)
    box(axes, 644, 116 - side / 2, side, side)
    axes.text(644 + side / 2, 116, "C", **words)
    axes.text(644 + side / 2, 160, "second launch:\ntheir sum", **words)
    about = (
        "Each program multiplies one part of A's columns with the same part of B's rows. The products are partial "
        "sums of all of C, which a second launch adds."
    )
    return picture("Every part of K makes a product as large as C", figure, about)
