"""Pictures of lessons 02, 02b, 03 and 06: a mask over a row's end, that end in pieces of a thread each, strides as
views of one memory, a sum over several warps, the wait for a load by the memory it runs over, tiles in the banks of
shared memory, and a row on a thread block cluster."""

from instruments.results import Latency
from widgets.drawings.pictures import arrow, box, page, picture
from widgets.toolkit.panel import BLACK, BLUE, GREEN, INK_RED, ORANGE, RED, SKY, WIDTH, Panel, canvas
from widgets.toolkit.words import size

_GREY = "#555555"


def mask_over_a_row() -> Panel:
    """A tile of 8 over the second of four rows of 5: what is loaded, what is masked off, what `other` puts there."""
    figure, axes = page(246)
    rows, cols, tile, own, side = 4, 5, 8, 1, 34
    left = (760 - rows * cols * side) / 2
    axes.text(left, 16, "x in memory: four rows of 5 elements", fontsize=9.5, weight="bold", va="center")
    for place in range(rows * cols):
        mine = place // cols == own
        box(axes, left + place * side, 30, side, side, SKY if mine else "white", linewidth=1.5 if mine else 0.7)
        axes.text(left + (place + 0.5) * side, 47, f"{place}", fontsize=9, ha="center", va="center")
    start = left + own * cols * side
    axes.text(left, 92, "program 1: a tile of 8 offsets, row * 5 + col", fontsize=9.5, weight="bold", va="center")
    for element in range(tile):
        inside = element < cols
        x = start + element * side
        box(axes, x, 104, side, side, SKY if inside else "#e4e4e4", hatch="" if inside else "//")
        axes.text(x + side / 2, 121, f"{own * cols + element}", fontsize=9, ha="center", va="center")
        axes.text(x + side / 2, 150, "true" if inside else "false", fontsize=8.5, ha="center", va="center")
        box(axes, x, 178, side, side, SKY if inside else ORANGE)
        words = f"x{own * cols + element}" if inside else "0.0"
        axes.text(x + side / 2, 195, words, fontsize=9, ha="center", va="center")
    for y, words in ((150, "mask = col < 5"), (195, "in registers after the load")):
        axes.text(start - 10, y, words, fontsize=9, ha="right", va="center")
    axes.text(start + tile * side + 8, 195, "other=0.0", fontsize=9, va="center", color="#8a5f00")
    axes.text(start + tile * side + 8, 121, "row 2's elements:\nnot loaded", fontsize=9, va="center", color=_GREY)
    axes.text(
        start + tile * side / 2,
        230,
        "tl.sum adds all eight, so the value of other must not change a sum",
        fontsize=9,
        ha="center",
    )
    return picture(
        "A tile that is wider than its row",
        figure,
        "A tile of 8 over a row of 5: the mask keeps three offsets, which belong to the next row, from being loaded. "
        "After the load these three elements hold `other`, here 0.0, and tl.sum adds all eight.",
    )


def strides_of_views() -> Panel:
    """Three views of one memory of 24 elements: a matrix, its transpose, a slice, each with its strides."""
    figure, axes = page(300)
    side, left = 30, 20
    axes.text(left, 14, "memory: 24 elements", fontsize=9.5, weight="bold", va="center")
    for place in range(24):
        box(axes, left + place * side, 26, side, 26, SKY if place // 6 == 1 else "white")
        axes.text(left + (place + 0.5) * side, 39, f"{place}", fontsize=9, ha="center", va="center")
    views = (
        (20, "x, 4 x 6", (4, 6), 0, (6, 1), "strides (6, 1)"),
        (284, "x.T, 6 x 4", (6, 4), 0, (1, 6), "strides (1, 6)"),
        (488, "x[:, 1::2], 4 x 3", (4, 3), 1, (6, 2), "strides (6, 2), starts at 1"),
    )
    for x, name, (rows, cols), first, (down, along), words in views:
        axes.text(x, 80, name, fontsize=9.5, weight="bold", va="center")
        for row in range(rows):
            for col in range(cols):
                place = first + row * down + col * along
                box(axes, x + col * side, 94 + row * 26, side, 26, SKY if place // 6 == 1 else "white")
                axes.text(
                    x + (col + 0.5) * side, 94 + (row + 0.5) * 26, f"{place}", fontsize=9, ha="center", va="center"
                )
        axes.text(x, 94 + 26 * 6 + 16, words, fontsize=9, va="center")
    axes.text(
        left,
        290,
        "place in memory = start + row * row_stride + col * col_stride",
        fontsize=9.5,
        va="center",
        color="#00694d",
    )
    return picture(
        "Views differ only in their strides",
        figure,
        "A matrix, its transpose and a slice are three views of the same 24 elements. Their strides are (6, 1), (1, 6) "
        "and (6, 2). The number in each box is the element's place in memory; row 1 of x is colored in all of them.",
    )


def one_load() -> Panel:
    """A load on its way: from a warp through L1 and L2 to HBM and back."""
    figure, axes = page(206)
    box(axes, 8, 22, 350, 132, "#fdf0d5", edgecolor="#9a9a9a")
    axes.text(183, 12, "SM, one of 132", fontsize=10, weight="bold", ha="center", va="center")
    places = (
        (20, 120, "warp", "white"),
        (240, 100, "L1", "#e3f1fa"),
        (450, 100, "L2, of all SMs", "#e3f1fa"),
        (640, 100, "HBM", "#eeeeee"),
    )
    for x, wide, name, colour in places:
        box(axes, x, 50, wide, 92, colour, edgecolor="#9a9a9a")
        axes.text(x + wide / 2, 36, name, fontsize=10, weight="bold", ha="center", va="center")
    axes.text(80, 74, "32 threads,\none load", fontsize=9, ha="center", va="center")
    axes.text(80, 118, "waits at the first\nuse of the data", fontsize=9, ha="center", va="center")
    for start, end in ((142, 238), (342, 448), (552, 638)):
        arrow(axes, (start, 74), (end, 74), "#8a5f00")
        arrow(axes, (end, 114), (start, 114), "#00694d", linewidth=2.4)
    axes.text(190, 62, "addresses", fontsize=9, ha="center", va="center", color="#8a5f00")
    axes.text(190, 130, "sectors", fontsize=9, ha="center", va="center", color="#00694d")
    axes.text(290, 96, "miss", fontsize=9, ha="center", va="center")
    axes.text(500, 96, "miss", fontsize=9, ha="center", va="center")
    axes.text(690, 96, "tensors", fontsize=9, ha="center", va="center")
    axes.annotate("", (20, 176), (740, 176), arrowprops={"arrowstyle": "<->", "color": _GREY})
    axes.text(380, 191, "there and back: the latency of this load", fontsize=9, ha="center", va="center", color=_GREY)
    return picture(
        "One load on its way",
        figure,
        "A warp's load goes through L1, in its SM, and L2 to HBM, as addresses, and comes back as sectors. The time "
        "there and back is its latency, and the warp waits for it where it first uses the data.",
    )


def resident_programs(every: float, lives: float, places: int) -> Panel:
    """One SM over time: a program starts every so many ns, lives for so many, and takes the lowest free place."""
    end = 1.03 * places * every / 1e3  # µs: as many starts as there are places, and a little more
    figure = canvas(height=250)
    axes = figure.add_axes((0.085, 0.19, 0.9, 0.73))
    axes.set(xlim=(0, end), ylim=(0, 1.12 * places), yticks=[1, *(places * n // 4 for n in (1, 2, 3, 4))])
    axes.tick_params(labelsize=9)
    free = [0.0] * places  # when each place is free again, ns
    taken = 0
    for number in range(int(end * 1e3 / every) + 1):
        start = number * every
        place = next(at for at, until in enumerate(free) if until <= start)
        free[place], taken = start + lives, max(taken, place + 1)
        shown = min(start + lives, end * 1e3) - start
        box(axes, start / 1e3, place + 0.55, shown / 1e3, 0.9, ORANGE, linewidth=0.5)
    axes.axhline(places, color=BLACK, linewidth=1.3, linestyle="--")
    look = {"fontsize": 9.5, "va": "center"}
    axes.text(0.01 * end, places - 1.8, f"{places} programs would fit", **look)
    axes.text(end / 2, (places + taken) / 2, "slots that stay empty", ha="center", color=_GREY, **look)
    axes.text(
        0.01 * end,
        taken + 2.4,
        f"a start every {every:.0f} ns; each program lives for {lives / 1e3:.1f} µs",
        color=_GREY,
        **look,
    )
    axes.set_xlabel("time on one SM, µs", fontsize=9)
    axes.set_ylabel("slots for programs", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return picture(
        "Programs of the slow kernel on one SM",
        figure,
        f"Programs of the slow kernel on one SM, drawn with averages. One starts every {every:.0f} ns and lives for "
        f"{lives / 1e3:.1f} µs, so at most {taken} are resident at a time, of {places} that fit.",
    )


def row_ends(ends: dict, piece: int = 8) -> Panel:
    """The last elements of a row in pieces that one thread each could load at once, for several numbers of columns.

    Args:
        ends: {columns: the words behind it}.
        piece: elements per thread and load.
    """
    side, left, first = 15, 108, min(ends) // piece * piece - 2 * piece
    figure, axes = page(34 + 46 * len(ends))
    words = f"the end of a row, from column {first:,} on, if each thread loads {piece} neighbors at once"
    axes.text(10, 14, words, fontsize=9.5, weight="bold", va="center")
    for line, (cols, said) in enumerate(ends.items()):
        y = 34 + line * 46
        axes.text(10, y + 11, f"{cols:,} columns", fontsize=9, va="center")
        for col in range(first, first + 4 * piece):
            inside = col < cols
            x = left + (col - first) * side + (col - first) // piece * 6
            look = {"edgecolor": "#777777", "linewidth": 0.4, "hatch": "" if inside else "///"}
            box(axes, x, y, side, 22, SKY if inside else "#e4e4e4", **look)
        for at in range(4):
            box(axes, left + at * (piece * side + 6), y, piece * side, 22, "none", linewidth=1.4)
        axes.text(left + 4 * (piece * side + 6) + 4, y + 11, said, fontsize=9, va="center", linespacing=1.25)
    lines = "; ".join(f"{cols:,} columns: " + said.replace("\n", " ") for cols, said in ends.items())
    return picture(
        "The end of a row, in pieces of one thread",
        figure,
        f"The end of a row, if each thread loads {piece} neighboring elements at once. {lines}.",
    )


def sum_across_warps(warps: int = 4) -> Panel:
    """How the sums of several warps become one: shuffles, shared memory, a barrier, shuffles, a barrier."""
    steps, line = warps.bit_length() - 1, 38
    figure, axes = page(64 + line * warps)
    middle = {"fontsize": 9, "ha": "center", "va": "center"}
    high = line * warps
    for x, words in ((75, "each warp"), (201, "5 shuffles"), (350, "shared memory"), (655, "shared memory")):
        axes.text(x, 14, words, **middle | {"weight": "bold"})
    for at in range(warps):
        y = 30 + at * line
        box(axes, 10, y + 4, 130, line - 8, SKY)
        axes.text(75, y + line / 2, f"warp {at}: 32 sums", **middle)
        arrow(axes, (142, y + line / 2), (216, y + line / 2))
        box(axes, 218, y + 4, 44, line - 8, SKY)
        axes.text(240, y + line / 2, f"sum {at}", **middle | {"fontsize": 8.5})
        arrow(axes, (264, y + line / 2), (326, y + line / 2))
        box(axes, 328, y, 44, line, ORANGE)
        axes.text(350, y + line / 2, f"sum {at}", **middle | {"fontsize": 8.5})
        arrow(axes, (374, y + line / 2), (442, 30 + high / 2 + (at - (warps - 1) / 2) * 14), linewidth=1)
    for x in (400, 697):
        axes.plot([x, x], [30, 34 + high], color=RED, linewidth=1.6, linestyle="--", zorder=4)
        axes.text(x, 48 + high, "barrier", **middle | {"color": INK_RED})
    box(axes, 444, 30 + high / 2 - 40, 150, 80, SKY)
    words = f"threads 0 to {warps - 1}\nread one sum each;\n{steps} more shuffles"
    axes.text(519, 30 + high / 2, words, **middle | {"linespacing": 1.3})
    arrow(axes, (596, 30 + high / 2), (631, 30 + high / 2))
    box(axes, 633, 30 + high / 2 - line / 2, 44, line, ORANGE)
    axes.text(655, 30 + high / 2, "total", **middle | {"fontsize": 8.5})
    axes.text(730, 30 + high / 2, "every\nthread\nreads\nit", **middle | {"linespacing": 1.3})
    return picture(
        "A sum over several warps",
        figure,
        f"A row spread over {warps} warps. Five shuffles leave one sum per warp, and each warp writes it to shared "
        f"memory. After a barrier, threads 0 to {warps - 1} read one sum each, {steps} more shuffles add them, and the "
        "total goes to shared memory. After a second barrier, every thread reads it.",
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
        "Latency of a load by the memory that it runs over",
        figure,
        "On an H200, the cycles per load of a chain climb around "
        + " and ".join(f"{name} ({size(held)})" for name, held in levels.items()),
        ", ".join(f"{r.cycles:.0f} where it runs over {size(r.bytes)}" for r in ends),
    )


def cluster_row() -> Panel:
    """A row of softmax on a thread block cluster: which SM holds which part, and what the blocks exchange."""
    row_kib, blocks = 512, 4
    figure, axes = page(312)
    part, step = row_kib // blocks, 744 / blocks
    middle = {"fontsize": 9, "ha": "center", "va": "center"}
    bands = ((2, 58, "HBM: x, one row of {} KiB"), (256, 54, "HBM: y"))
    for top, high, words in bands:
        box(axes, 4, top, 752, high, "#eeeeee", edgecolor="none")
        axes.text(14, top + 13, words.format(row_kib), fontsize=9, weight="bold", va="center")
    axes.text(14, 76, "cluster", fontsize=9, weight="bold", va="center")
    for at in range(blocks):
        left, wide = 8 + at * step + 8, step - 16
        center = left + wide / 2
        box(axes, left, 26, wide, 28, SKY)
        axes.text(center, 40, f"part {at + 1}", **middle)
        arrow(axes, (center, 56), (center, 87), BLUE)
        box(axes, left, 88, wide, 134, "#e3f1fa")
        axes.text(left + 8, 98, f"SM {at + 1}", fontsize=9, weight="bold", va="center")
        box(axes, left + 10, 108, wide - 20, 38, SKY)
        axes.text(center, 127, f"shared memory:\npart {at + 1}, {part} KiB", **middle | {"fontsize": 8.5})
        box(axes, center - 26, 172, 52, 26, ORANGE)
        axes.text(center, 185, f"m{at + 1}, l{at + 1}", **middle)
        arrow(axes, (center, 146), (center, 171), BLACK)
        if at:
            arrow(axes, (center - 28, 185), (center - step + 28, 185), RED)
            arrow(axes, (center - step + 28, 185), (center - 28, 185), RED)
        arrow(axes, (center, 222), (center, 276), GREEN)
        box(axes, left, 278, wide, 26, GREEN)
        axes.text(center, 291, f"part {at + 1}", **middle)
    words = "distributed shared memory: every block gets m and l of all parts"
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axes.text(380, 210, words, color=INK_RED, bbox=ground, **middle)
    return picture(
        "Each SM keeps its part of the row, and the blocks exchange only m and l",
        figure,
        f"A row of {row_kib} KiB on a cluster of {blocks} blocks, one per SM. Each block reads its part from HBM once, "
        f"keeps its {part} KiB in shared memory and computes m and l of it. Distributed shared memory brings all "
        "pairs of m and l to every block, and each block writes its part of y to HBM.",
    )


def bank_layouts(layouts: dict, column: int, piece: str, banks: str, title: str, about: str) -> Panel:
    """A tile of 8 x 8 pieces in shared memory, in several layouts, and the passes that one column takes.

    Args:
        layouts: {name: the place of (row, column), counted in pieces from the tile's start}; lines of 8 places.
        column: the column that is read.
        piece: what a piece is, for the text alternative.
        banks: what stands above the eight places of a line.
        title: of the picture.
        about: what is shown, for the caption.
    """
    places = {name: {(r, c): place(r, c) for r in range(8) for c in range(8)} for name, place in layouts.items()}
    lines = 1 + max(at // 8 for each in places.values() for at in each.values())
    side, across, top = 24, WIDTH / len(layouts), 56
    figure, axes = page(top + side * lines + 40)
    said = []
    for number, (name, each) in enumerate(places.items()):
        left = number * across + 14
        axes.text(left, 14, name, fontsize=10, weight="bold", va="center")
        axes.text(left, 38, banks, fontsize=8.5, va="center", color="#555555")
        for line in range(1 + max(each.values()) // 8):
            for slot in range(8):
                box(axes, left + slot * side, top + line * side, side, side, "#eeeeee", linewidth=0.5)
        for (_, col), at in each.items():
            colour, hatch = (ORANGE, "//") if col == column else ("white", "")
            x, y = left + at % 8 * side, top + at // 8 * side
            box(axes, x, y, side, side, colour, linewidth=0.5, hatch=hatch)
            patch = {"facecolor": "white", "edgecolor": "none", "pad": 0.6} if hatch else None
            axes.text(x + side / 2, y + side / 2, col, fontsize=8.5, ha="center", va="center", bbox=patch)
        slots = [each[row, column] % 8 for row in range(8)]
        passes = max(slots.count(slot) for slot in slots)
        words = f"{passes} pass{'es' * (passes > 1)}"
        axes.text(left, top + side * lines + 20, words, fontsize=10.5, weight="bold", va="center")
        said.append(f"{name}: {words}")
    return picture(title, figure, about, f"Numbers are the columns of {piece}. {'; '.join(said)}")
