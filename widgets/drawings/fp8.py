"""Still drawings of FP8 matmuls: which bits of a product an accumulator keeps, where and when it is promoted, how
operands and scales lie in memory, what block scales take on Hopper and on Blackwell, and where lower precision moves a
matmul on a roofline."""

from widgets.drawings.pictures import arrow, box, page, picture
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, SKY, YELLOW, Panel, canvas

_PALE, _SHADE = "#eeeeee", "#555555"


def kept_bits(sums: dict, top: int = 13, product: tuple = (1, -6), title: str = "") -> Panel:
    """Which bits of a product a sum near 2**top still holds. sums: {name: significant bits}; product: its highest and
    lowest power of two; title: the finding, for other sums than the least."""
    lowest = min(product[1], *(top + 1 - bits for bits in sums.values()))
    left, side, line, head = 214, 21, 34, 62
    figure, axes = page(head + line * (len(sums) + 1) + 4)

    def x(power):
        return left + (top - power) * side

    for power in range(top, lowest - 1, -1):
        if power % 2:
            axes.text(x(power) + side / 2, head - 14, f"$2^{{{power}}}$", fontsize=8.5, ha="center", va="center")
    axes.text(left - 12, head + side / 2, "a product between 1 and 4", fontsize=9.5, ha="right", va="center")
    for power in range(product[0], product[1] - 1, -1):
        box(axes, x(power), head, side, side, ORANGE)
    common = {}
    for row, (name, bits) in enumerate(sums.items(), 1):
        y = head + row * line
        axes.text(left - 12, y + side / 2, f"{name}, {bits} bits", fontsize=9.5, ha="right", va="center")
        for power in range(top, top - bits, -1):
            box(axes, x(power), y, side, side, ORANGE if product[0] >= power >= product[1] else SKY)
        common[name] = sum(product[0] >= power >= product[1] for power in range(top, top - bits, -1))
    axes.text(
        left, 20, f"a sum that has reached {2**top:,}: the boxes are the bits that it holds", fontsize=9.5, va="center"
    )
    of = product[0] - product[1] + 1
    return picture(
        title or f"Near {2**top:,} a sum of {min(sums.values())} bits holds nothing of a product near 1",
        figure,
        f"A product between 1 and 4 has {of} bits. A sum near {2**top:,} holds "
        + ", ".join(f"{count} of them in {name}" for name, count in common.items())
        + ".",
    )


def promotion(every: int = 128, step: int = 32, blocks: int = 3, scales: bool = False) -> Panel:
    """Along K: short sums in the tensor core, each added to a sum in registers; scales: times its block's scales."""
    said = "times the block's\nscales, then added" if scales else "added"
    figure, axes = page(214)
    wide, gap, left, steps = 34, 26, 132, every // step
    axes.text(14, 54, "tensor core", fontsize=10, weight="bold", va="center")
    axes.text(14, 168, "registers, fp32", fontsize=10, weight="bold", va="center")
    axes.text(left, 20, f"K, {step} columns per instruction", fontsize=9.5, va="center")
    arrow(axes, (left + 226, 20), (left + 420, 20))
    for block in range(blocks):
        x = left + block * (steps * wide + gap)
        for part in range(steps):
            box(axes, x + part * wide, 38, wide, 32, SKY)
            axes.text(x + (part + 0.5) * wide, 54, "+" if part else "0 +", fontsize=10, ha="center", va="center")
        end = x + steps * wide
        arrow(axes, (end - wide / 2, 71), (end - wide / 2, 150))
        axes.text(end - wide / 2 - 8, 110, said, fontsize=9, ha="right", va="center")
        box(axes, end - wide, 151, wide, 34, ORANGE)
        axes.text(end - wide / 2, 168, "+", fontsize=11, ha="center", va="center")
        if block:
            arrow(axes, (end - steps * wide - gap, 168), (end - wide, 168))
    arrow(axes, (end, 168), (end + 40, 168))
    axes.text(end + 44, 168, "y", fontsize=10, va="center")
    return picture(
        f"With block scales, each short sum of {every} columns is scaled before it is added"
        if scales
        else f"A sum of {every} columns in the tensor core, the long sum in fp32",
        figure,
        f"Along K, {steps} instructions of {step} columns add up in the tensor core, from zero. Every {every} columns "
        f"the short sum is {'multiplied by the scales of its blocks and ' * scales}added to a sum in fp32 registers.",
    )


def promotion_over_time(matmul: int = 2, promote: int = 1, steps: int = 4) -> Panel:
    """What tensor cores and warps do while sums are promoted: all warps together, and two warpgroups in turns.

    Args:
        matmul: units of time of 128 columns for one warpgroup's half of a tile.
        promote: units in which one warpgroup promotes its half.
        steps: of 128 columns.
    """
    left, unit, lane, top = 128, 33, 31, 34
    together, turns = steps * 2 * (matmul + promote), steps * 2 * matmul + promote
    figure, axes = page(top + 5 * lane + 58)

    def row(y, name, jobs, end):
        axes.text(left - 10, y + 11, name, fontsize=9.5, ha="right", va="center")
        box(axes, left, y, end * unit * scale, 22, _PALE, edgecolor="none")
        for start, length, words, color, hatch in jobs:
            box(axes, left + start * unit * scale, y, length * unit * scale, 22, color, hatch=hatch)
            look = {"facecolor": color, "edgecolor": "none", "pad": 0.5} if hatch else None
            middle = left + (start + length / 2) * unit * scale
            axes.text(middle, y + 11, words, fontsize=9, ha="center", va="center", bbox=look)

    scale = 620 / (max(together, turns) * unit)
    for x, words, color, hatch in ((left, "matmul of 128 columns", SKY, ""), (left + 190, "promotion", ORANGE, "//")):
        box(axes, x, 6, 13, 13, color, hatch=hatch)
        axes.text(x + 19, 13, words, fontsize=9.5, va="center")
    box(axes, left + 310, 6, 13, 13, _PALE, edgecolor="none")
    axes.text(left + 329, 13, "idle or waiting", fontsize=9.5, va="center")
    step, half = 2 * (matmul + promote), 2 * matmul
    row(top, "tensor cores", [(n * step, half, str(n), SKY, "") for n in range(steps)], together)
    row(
        top + lane,
        "all 8 warps",
        [(n * step + half, 2 * promote, str(n), ORANGE, "//") for n in range(steps)],
        together,
    )
    y = top + 2 * lane + 22
    jobs = [(n * half + g * matmul, matmul, f"{n}{'ab'[g]}", SKY, "") for n in range(steps) for g in (0, 1)]
    row(y, "tensor cores", jobs, turns)
    for g in (0, 1):
        jobs = [(n * half + (g + 1) * matmul, promote, f"{n}{'ab'[g]}", ORANGE, "//") for n in range(steps)]
        row(y + (g + 1) * lane, f"warpgroup {'ab'[g]}", jobs, turns)
    y += 3 * lane + 8
    axes.text(left, y, "time", fontsize=9.5, va="center")
    arrow(axes, (left + 36, y), (left + 150, y))
    busy = [100 * steps * half / end for end in (together, turns)]
    return picture(
        "Two warpgroups can take turns, so that the tensor cores need not wait for a promotion",
        figure,
        "Above, all warps wait for a matmul of 128 columns, then promote, while the tensor cores idle: busy "
        f"{busy[0]:.0f}% of the time drawn. Below, two warpgroups have half of the tile each; while one promotes, the "
        f"tensor cores multiply for the other: busy {busy[1]:.0f}%. The lengths are chosen, not measured.",
    )


def k_major(k: int = 4, n: int = 4) -> Panel:
    """A weight in memory, stored [N, K] and [K, N]: where the neighbors along K of one row of the weight lie."""
    figure, axes = page(136)
    left, wide, line = 150, 37, 56
    for at, (name, order) in enumerate(
        (
            ("stored [N, K]", [(row, column) for row in range(n) for column in range(k)]),
            ("stored [K, N]", [(row, column) for column in range(k) for row in range(n)]),
        )
    ):
        y = 34 + at * line
        axes.text(left - 12, y + 14, name, fontsize=9.5, ha="right", va="center")
        for place, (row, column) in enumerate(order):
            box(axes, left + place * wide, y, wide, 28, ORANGE if row == 0 else "white")
            words = f"{row},{column}"
            axes.text(left + (place + 0.5) * wide, y + 14, words, fontsize=9, ha="center", va="center")
    axes.text(left, 15, "bytes in memory; orange: row 0 of the weight, at n, k", fontsize=9.5, va="center")
    return picture(
        "Stored [N, K], neighbors along K are neighbors in memory",
        figure,
        f"A weight of {n} x {k} in memory. Stored [N, K], the {k} elements of row 0 lie side by side. Stored [K, N], "
        f"each lies {n} bytes after the one before it.",
    )


def scale_layout() -> Panel:
    """128 rows of four scales in a matrix, and as 512 bytes in the order that Blackwell's instructions want."""
    figure, axes = page(300)
    colours = SKY, ORANGE, GREEN, YELLOW
    looks = "", "//", "..", "xx"
    x, top, band, byte = 118, 52, 54, 15
    axes.text(x + 2 * byte, 20, "the matrix of scales", fontsize=9.5, weight="bold", ha="center", va="center")
    axes.text(x + 2 * byte, 38, "128 rows, 4 groups", fontsize=9, ha="center", va="center")
    for at, (colour, hatch) in enumerate(zip(colours, looks)):
        y = top + at * band
        box(axes, x, y, 4 * byte, band, colour, hatch=hatch)
        axes.text(x - 8, y + band / 2, f"rows {32 * at} to {32 * at + 31}", fontsize=9, ha="right", va="center")
    arrow(axes, (x + 4 * byte + 26, top + 2 * band), (x + 4 * byte + 116, top + 2 * band))
    right, line = 330, 22
    axes.text(right + 8 * 22, 20, "the 512 bytes in memory", fontsize=9.5, weight="bold", ha="center", va="center")
    axes.text(right + 8 * 22, 38, "32 lines of 16 bytes", fontsize=9, ha="center", va="center")
    for row in range(5):
        y = top + row * (line + 8) if row < 3 else top + 3 * (line + 8) + 26 + (row - 3) * (line + 8)
        number = (0, 1, 2, 30, 31)[row]
        for at, (colour, hatch) in enumerate(zip(colours, looks)):
            box(axes, right + at * 88, y, 88, line, colour, hatch=hatch)
            axes.text(
                right + at * 88 + 44,
                y + line / 2,
                f"row {32 * at + number}",
                fontsize=9,
                ha="center",
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )
    axes.text(right + 8 * 22, top + 3 * (line + 8) + 10, "...", fontsize=11, ha="center", va="center")
    axes.text(
        right + 8 * 22,
        284,
        "row r, group g:  byte 16 (r mod 32) + 4 (r div 32) + g",
        fontsize=9.5,
        ha="center",
        va="center",
    )
    return picture(
        "Four bands of 32 rows lie side by side",
        figure,
        "The scales of 128 rows and 4 groups of K are 512 bytes. In the matrix they lie row by row. The instruction "
        "wants 32 lines of 16 bytes: line 0 holds the four scales of row 0, then those of rows 32, 64 and 96; line 1 "
        "those of rows 1, 33, 65 and 97, and so on.",
    )


def block_scaled_instructions() -> Panel:
    """Codes and scales on their way to a tensor core instruction, on Hopper and on Blackwell."""
    figure, axes = page(214)
    ways = {
        "Hopper": (("decode,\ntimes scale", ORANGE), ("tiles of bf16", "white"), ("wgmma, bf16", SKY)),
        "Blackwell, sm_100": (("tcgen05.mma with block_scale", SKY),),
    }
    for at, (name, stages) in enumerate(ways.items()):
        y = 16 + at * 104
        axes.text(8, y, name, fontsize=9.5, weight="bold", va="center")
        for part, (words, color) in enumerate((("codes of x, weight", YELLOW), ("their scales", GREEN))):
            box(axes, 8, y + 14 + part * 34, 150, 28, color)
            axes.text(83, y + 28 + part * 34, words, fontsize=9.5, ha="center", va="center")
        x, wide = 206, 150 if len(stages) > 1 else 510
        for stage, (words, color) in enumerate(stages):
            box(axes, x, y + 14, wide, 62, color)
            axes.text(x + wide / 2, y + 45, words, fontsize=9.5, ha="center", va="center")
            if stage:
                arrow(axes, (x - 30, y + 45), (x, y + 45))
            x += wide + 30
        for part in (0, 1):
            arrow(axes, (158, y + 28 + part * 34), (206, y + 36 + part * 18))
        arrow(axes, (716, y + 45), (748, y + 45))
    return picture(
        "Block scales are work for other units on Hopper, and operands on Blackwell",
        figure,
        "On Hopper, other units decode the codes of both tiles and multiply them by their scales, and the tensor cores "
        "multiply tiles of bf16. On Blackwell, codes and scales are operands of one instruction.",
    )


def two_precisions(copy_gbps: float, tflops: dict, moves: dict, title: str) -> Panel:
    """A roofline with two roofs, and matmuls that move from one to the other.

    Args:
        copy_gbps: slope of both.
        tflops: {name: height of a roof}, the lower one first.
        moves: {name: ((FLOP/byte, TFLOP/s) before, the same after)}, recorded.
        title: the finding.
    """
    figure = canvas(height=320)
    axes = figure.add_axes((0.085, 0.145, 0.89, 0.77))
    axes.set(xscale="log", yscale="log", xlim=(0.5, 16384), ylim=(1.5, 3000))
    axes.minorticks_off()
    axes.set_xticks([1, 4, 16, 64, 256, 1024, 4096], ["1", "4", "16", "64", "256", "1,024", "4,096"], fontsize=9)
    axes.set_yticks([2, 10, 100, 1000], ["2", "10", "100", "1,000"], fontsize=9)
    axes.set_xlabel("arithmetic intensity, FLOP/byte", fontsize=9)
    axes.text(0, 1.03, "TFLOP/s", fontsize=9, transform=axes.transAxes)
    axes.spines[["top", "right"]].set_visible(False)
    ridges = []
    for (name, height), style in zip(tflops.items(), ("-", "--")):
        ridge = 1e3 * height / copy_gbps
        ridges.append(f"{ridge:.0f} {name}")
        axes.plot([0.5, ridge, 16384], [0.5 * copy_gbps / 1e3, height, height], style, color="#777777", linewidth=2)
        axes.plot([ridge, ridge], [1.5, height], ":", color="#777777", linewidth=1.2)
        axes.text(ridge * (0.93 if style == "-" else 1.08), 1.9, f"{ridge:.0f}", fontsize=9, color=_SHADE, va="center")
        axes.texts[-1].set_ha("right" if style == "-" else "left")
        axes.text(0.6, height * 1.12, f"{name}, {height:,.0f} TFLOP/s", fontsize=9, color=_SHADE)
        axes.plot([0.5, ridge], [height, height], style, color="#cccccc", linewidth=0.9, zorder=1)
    axes.text(13, 110, f"copy bandwidth, {copy_gbps:,.0f} GB/s", fontsize=9, color=_SHADE, ha="right")
    said = []
    for name, points in moves.items():
        look = {"arrowstyle": "-|>", "color": BLACK, "linewidth": 1.3, "shrinkA": 6, "shrinkB": 6}
        axes.annotate("", points[1], points[0], arrowprops=look)
        for (x, y), color, marker in zip(points, (BLUE, ORANGE), "os"):
            axes.plot([x], [y], marker, color=color, markeredgecolor=BLACK, markersize=8, zorder=4)
        x, y = points[0]
        axes.annotate(
            name, (x, y), (10, -16), textcoords="offset points", fontsize=9, ha="left" if x < 100 else "right"
        )
        said.append(f"{name}: " + " to ".join(f"{x:,.0f} FLOP/byte and {y:,.0f} TFLOP/s" for x, y in points))
    return picture(title, figure, f"Roofline of the H200; ridge points at {', '.join(ridges)}", "; ".join(said))
