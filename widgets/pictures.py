"""Still pictures of the lessons: figures are handed in, nothing is computed here, and each says in words what it
shows."""

from matplotlib.patches import FancyArrowPatch, Rectangle

from instruments.results import Case
from widgets.panel import BLUE, GREEN, ORANGE, RED, SKY, Panel, canvas
from widgets.words import size, time


def picture(title: str, figure, sentence: str) -> Panel:
    """A picture without controls, with the sentence that reads it."""
    return Panel(title, figure, {}, lambda: sentence)


def bytes_and_launches(cases: list[Case], copy_rate: float, launch_seconds: float) -> Panel:
    """Time against bytes of recorded cases, as called and on the GPU alone, beside the copy roof and an empty
    launch."""
    figure = canvas(height=330)
    axes = figure.add_axes((0.09, 0.14, 0.89, 0.83))
    span = [1e4, 6e9]
    axes.loglog(span, [nbytes / copy_rate * 1e6 for nbytes in span], color=BLUE, linewidth=2)
    axes.axhline(launch_seconds * 1e6, color=ORANGE, linewidth=2, linestyle="--")
    for figure_of, marker, colour, label in (
        (Case.called_us, "o", RED, "called from Python"),
        (Case.us, "x", "black", "GPU alone"),
    ):
        axes.plot(
            [case.bytes for case in cases],
            [figure_of(case, "bytes-first") for case in cases],
            marker,
            color=colour,
            markersize=7,
            fillstyle="none",
            linestyle="none",
            label=label,
        )
    axes.annotate("bytes / copy roof", (1e9, 1e9 / copy_rate * 1e6), (-12, 2), textcoords="offset points", ha="right")
    axes.annotate("an empty launch", (3e9, launch_seconds * 1e6), (0, 5), textcoords="offset points", ha="right")
    axes.set(xlim=span, ylim=(1, 2000), xlabel="bytes of minimum traffic", ylabel="time per call, µs")
    axes.set_xticks([1e4, 1e5, 1e6, 1e7, 1e8, 1e9], ["10 KB", "100 KB", "1 MB", "10 MB", "100 MB", "1 GB"])
    axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")

    def above(case):  # how many times the line's time
        return case.us("bytes-first") * 1e-6 * copy_rate / case.bytes

    smallest = min(cases, key=lambda case: case.bytes)
    called, alone = (figure_of(smallest, "bytes-first") * 1e-6 for figure_of in (Case.called_us, Case.us))
    large = [case for case in cases if case.bytes > launch_seconds * copy_rate]
    highest = max(large, key=above)
    shape = " x ".join(f"{length:,}" for length in highest.shape)
    return picture(
        "Two limits: bytes and launches",
        figure,
        (
            "Time against bytes on an H200, both scales logarithmic. The line of bytes over copy roof meets an empty "
            f"launch at {size(launch_seconds * copy_rate)}. Of the {len(large)} cases recorded beyond, from "
            f"{size(min(case.bytes for case in large))} on, {sum(above(case) < 1.1 for case in large)} lie within a "
            f"tenth of the line; furthest above it, {above(highest):.1f} times, is {highest.kernel} of {shape}, whose "
            f"rows are too wide to be read once. The smallest, {size(smallest.bytes)}, takes {time(called)} as called "
            f"and {time(alone)} on the GPU."
        ),
    )


def tile_and_strips() -> Panel:
    """A matrix product in outline: a tile of C, the strip of A and the strip of B that it needs, and one step over
    K."""
    figure = canvas(width=520, height=330)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-3.3, 18.3), ylim=(14.0, -1.1), aspect="equal")
    axes.axis("off")
    rows, cols, steps, tile = 8, 10, 4, (4, 6)  # in tiles; which tile of C

    def box(x, y, width, height, colour="white", hatch="", line=1.0):
        axes.add_patch(
            Rectangle((x, y), width, height, facecolor=colour, edgecolor="black", hatch=hatch, linewidth=line)
        )

    left, top = steps + 2.4, steps + 1
    box(0, top, steps, rows)
    box(left, 0, cols, steps)
    box(left, top, cols, rows)
    box(0, top + tile[0], steps, 1, SKY)
    box(left + tile[1], 0, 1, steps, ORANGE)
    for step in range(1, steps):
        axes.plot([step, step], [top + tile[0], top + tile[0] + 1], color="black", linewidth=0.6)
        axes.plot([left + tile[1], left + tile[1] + 1], [step, step], color="black", linewidth=0.6)
    box(1, top + tile[0], 1, 1, SKY, "//", 1.8)
    box(left + tile[1], 1, 1, 1, ORANGE, "//", 1.8)
    box(left + tile[1], top + tile[0], 1, 1, GREEN, line=1.8)
    for x, y, text, size_, across in (
        (steps / 2, top + 1.2, "A  [M, K]", 11, "center"),
        (left + 2, 1.2, "B  [K, N]", 11, "center"),
        (left + 2, top + 1.2, "C  [M, N]", 11, "center"),
        (-0.2, top + tile[0] + 0.5, "BLOCK_M", 8.5, "right"),
        (left + tile[1] + 0.5, -0.35, "BLOCK_N", 8.5, "center"),
        (1.5, top + tile[0] + 1.5, "BLOCK_K", 8.5, "center"),
        (left + tile[1] + 1.2, top + tile[0] + 0.5, "tile", 9.5, "left"),
        (steps + 0.15, top + tile[0] + 0.5, "strip", 9.5, "left"),
        (left + tile[1] + 1.2, 2.5, "strip", 9.5, "left"),
    ):
        axes.text(x, y, text, fontsize=size_, ha=across, va="center")
    return picture(
        "A tile and its two strips",
        figure,
        (
            "A program owns a tile of C, BLOCK_M x BLOCK_N. It needs a strip of A, BLOCK_M rows and all of K, and a "
            "strip of B, all of K and BLOCK_N columns, and goes through both in steps of BLOCK_K (one step is hatched)."
        ),
    )


def way_to_registers(table: dict, title: str, about: str) -> Panel:
    """What passed between DRAM, L2, L1 and the registers while a kernel read, a line of arrows per kernel.

    table: {kernel: (trips from DRAM to L2, from L2 to L1, from L1 to registers, what stands behind them)}. title: the
    finding. about: what is shown, for the sentence.
    """
    places = ("DRAM", "L2", "L1", "registers")
    line, head = 46, 34  # CSS pixels
    height = head + line * len(table) + 6
    figure = canvas(height=height)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 760), ylim=(height, 0))
    axes.axis("off")
    left, wide = max(len(kernel) for kernel in table) * 7 + 14, 72
    gap = (760 - left - 4 * wide - 84) / 3
    starts = [left + at * (wide + gap) for at in range(len(places))]
    for start, place in zip(starts, places):
        axes.add_patch(Rectangle((start, 6), wide, height - 12, facecolor="#e3f1fa", edgecolor="#9db8c9"))
        axes.text(start + wide / 2, 20, place, fontsize=9.5, weight="bold", ha="center", va="center")
    for at, (kernel, (*moved, behind)) in enumerate(table.items()):
        y = head + (at + 0.62) * line
        axes.text(8, y, kernel, fontsize=9.5, va="center")
        axes.text(starts[-1] + wide + 8, y, behind, fontsize=9.5, va="center")
        for start, trips in zip(starts, moved):
            ends = ((start + wide + 2, y), (start + wide + gap - 2, y))
            arrow = FancyArrowPatch(
                *ends, arrowstyle="simple", mutation_scale=3 + 9 * trips, facecolor=BLUE, edgecolor="none"
            )
            axes.add_patch(arrow)
            axes.text(start + wide + gap / 2, y - 17, f"{trips:.2f}", fontsize=9, ha="center", va="center")
    said = "; ".join(
        f"{kernel} {dram:.2f} trips from DRAM to L2, {l2:.2f} from L2 to L1, {l1:.2f} from L1 to registers, {behind}"
        for kernel, (dram, l2, l1, behind) in table.items()
    )
    return picture(title, figure, f"{about}: {said}.")
