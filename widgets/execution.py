"""Lesson 02's pictures: a launch from the grid down to sectors, and the wait for a load by the memory it runs over."""

from matplotlib.patches import Rectangle

from instruments.results import Latency
from widgets.panel import BLACK, BLUE, GREEN, ORANGE, SKY, YELLOW, Panel, canvas
from widgets.pictures import picture
from widgets.words import size


def execution_model(programs: int, sms: int, rows: int, cols: int, warps: int, along: int, down: int) -> Panel:
    """From the grid to the sectors: a program on an SM, its tile's rows shared out to warps, two ways to read with one.

    along, down: sectors that 32 threads of 2 bytes touch along a row and down a column.
    """
    figure = canvas(height=330)
    axes = figure.add_axes((0.005, 0.01, 0.99, 0.98))
    axes.set(xlim=(0, 152), ylim=(66, 0))
    axes.axis("off")
    colours = (BLUE, ORANGE, GREEN, SKY)

    def box(x, y, width, height, colour="white", edge="#777777", line=0.8):
        axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor=edge, linewidth=line))

    def arrow(x):
        axes.annotate("", (x + 6, 23), (x, 23), arrowprops={"arrowstyle": "->", "color": BLACK})

    axes.text(1, 4, f"grid: {programs:,} programs", fontsize=9)
    for place in range(48):
        box(1 + place % 8 * 4, 8 + place // 8 * 4.6, 3, 3.4, "#cccccc" if place != 21 else BLACK)
    axes.text(1, 38.5, "...", fontsize=9)
    arrow(34)
    axes.text(42, 4, f"one of {sms} SMs, with its warps", fontsize=9)
    box(41, 6, 38, 31)
    for quarter in range(4):
        left, top = 42.5 + quarter % 2 * 18.2, 7.5 + quarter // 2 * 14.6
        box(left, top, 16.8, 13.4, "#ececec")
        for warp in range(7):
            box(left + 1, top + 1.1 + warp * 1.7, 14.8, 1, colours[quarter] if warp == 2 else "#cccccc", "none", 0)
    axes.text(41, 40.5, f"the black program: {warps} warps of 32 threads", fontsize=8)
    arrow(80)
    axes.text(88, 4, f"its tile, {rows} x {cols}, two rows per warp at once", fontsize=9)
    for row in range(rows):
        box(88, 6 + row * 31 / rows, 62, 31 / rows, colours[row // 2 % warps], "white", 0.7)
    for top, text, count in (
        (47, f"32 threads along a row, one bf16 each: {along} sectors of 32 bytes", along),
        (58, f"32 threads down a column, one bf16 each: {down} sectors, of each 2 bytes wanted", down),
    ):
        axes.text(1, top - 1, text, fontsize=9)
        for sector in range(32):
            whole = count < 32
            box(1 + sector * 4.7, top, 4.3, 4, "#eeeeee" if sector >= count else BLUE if whole else YELLOW, "none", 0)
            if not whole:
                box(1 + sector * 4.7, top, 4.3 / 16, 4, BLUE, "none", 0)
    return picture(
        "Grid, SM, warps, tile, sectors",
        figure,
        (
            f"A grid of {programs:,} programs; one of them on one of {sms} SMs, its {warps} warps among those of "
            f"others, one in each quarter of the SM; its tile of {rows} rows of {cols}, two of which a warp loads at "
            f"once, {2 * cols * 2 // 32} bytes per thread. 32 threads that read one bf16 each along a row touch "
            f"{along} sectors and use all of them; 32 that read down a column touch {down} and use 2 of 32 bytes of "
            "each."
        ),
    )


def waits(records: list[Latency], levels: dict) -> Panel:
    """Wait per load of a chain against the bytes it runs over. levels: name -> its bytes."""
    figure = canvas(height=270)
    axes = figure.add_axes((0.085, 0.17, 0.9, 0.79))
    axes.plot([r.bytes for r in records], [r.cycles for r in records], "o-", color=BLUE, markersize=4)
    axes.set(xscale="log", ylim=(0, 780))
    axes.minorticks_off()
    axes.set_xticks([1e4, 1e5, 1e6, 1e7, 1e8, 1e9], ["10 KB", "100 KB", "1 MB", "10 MB", "100 MB", "1 GB"])
    for name, held in levels.items():
        axes.axvline(held, color=ORANGE, linestyle="--", linewidth=1.2)
        axes.annotate(
            f"{name}\n{size(held)}", (held, 760), (-4, 0), textcoords="offset points", ha="right", va="top", fontsize=9
        )
    axes.set_xlabel("bytes that the chain runs over", fontsize=9)
    axes.set_ylabel("cycles per load", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    ends = (records[0], min(records, key=lambda r: abs(r.bytes - 4 * 2**20)), records[-1])
    return picture(
        "The wait for a load",
        figure,
        "Cycles per load of a chain on an H200: "
        + ", ".join(f"{r.cycles:.0f} where it runs over {size(r.bytes)}" for r in ends)
        + "; it climbs around "
        + " and ".join(f"{name} ({size(held)})" for name, held in levels.items())
        + ".",
    )
