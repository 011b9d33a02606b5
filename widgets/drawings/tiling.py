"""Lesson 03's pictures: the ladder of its steps, what a naive matmul reads, tiles of several shapes, a software
pipeline, waves, a tile in wgmma instructions, tiles on the roofline, and what the time and the peak consist of. Figures
are handed in."""

from collections.abc import Sequence

from widgets.drawings.pictures import arrow, box, page, picture
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, RED, SKY, Panel, canvas
from widgets.toolkit.words import number

_GREY, _PALE = "#555555", "#eeeeee"


def naive_reads() -> Panel:
    """One element of c, its row of a and its column of b, and the sectors that the column touches."""
    figure, axes = page(272)
    cell, left, top = 15, 176, 112
    for x, y, wide, tall, name, at in (
        (20, top, 8 * cell, 9 * cell, "A", (80, top + 9 * cell + 14)),
        (left, 16, 9 * cell, 5 * cell, "B", (left - 12, 16 + 2.5 * cell)),
        (left, top, 9 * cell, 9 * cell, "C", (left + 4.5 * cell, top + 9 * cell + 14)),
    ):
        box(axes, x, y, wide, tall)
        axes.text(*at, name, fontsize=11, ha="center", va="center")
    box(axes, 20, top + 4 * cell, 8 * cell, cell, SKY)
    box(axes, left + 5 * cell, 16, cell, 5 * cell, ORANGE, hatch="//")
    box(axes, left + 5 * cell, top + 4 * cell, cell, cell, GREEN)
    for at, words in (((80, top + 3 * cell), "one row"), ((left + 2.5 * cell, 54), "one column")):
        axes.text(*at, words, fontsize=9, ha="center", va="center", color=_GREY)
    axes.text(left + 5.5 * cell, top + 3 * cell, "one element", fontsize=9, ha="center", va="center", color=_GREY)
    x = 380
    axes.text(x, 24, "16 elements of A's row lie in one sector of 32 bytes:", fontsize=9.5, va="center")
    for at in range(16):
        box(axes, x + at * 22, 38, 22, 18, SKY, linewidth=0.6)
    axes.text(x, 92, "16 elements of B's column lie in 16 sectors:", fontsize=9.5, va="center")
    for row in range(8):
        for at in range(16):
            own = at == 5
            box(axes, x + at * 22, 106 + row * 15, 22, 11, ORANGE if own else _PALE, linewidth=0.5, hatch="//" * own)
    axes.text(x + 176, 236, "… and 8 more rows", fontsize=9, ha="center", va="center", color=_GREY)
    return picture(
        "One element of C needs a row of A and a column of B",
        figure,
        "One element of C needs a row of A and a column of B. 16 neighbors in the row lie in one sector of 32 bytes. "
        "16 neighbors in the column lie in 16 sectors, each of which also holds 15 elements of other columns.",
    )


def tile_shapes(shapes: list, itemsize: int = 2) -> Panel:
    """Tiles with the same number of results, each with one column of k of its strips of a and b, on one scale."""
    unit, x = 0.52, 34.0
    tallest = max(rows for rows, _ in shapes) * unit
    figure, axes = page(round(tallest) + 108)
    said = []
    for rows, cols in shapes:
        wide, tall, top = cols * unit, rows * unit, 30
        box(axes, x, top, 12, tall, SKY)
        box(axes, x + 18, top - 18, wide, 12, ORANGE, hatch="//")
        box(axes, x + 18, top, wide, tall, GREEN, alpha=0.55)
        loads, intensity = rows + cols, 2 * rows * cols / (itemsize * (rows + cols))
        words = f"{rows} x {cols}", f"loads {rows} + {cols} = {loads}", f"{intensity:.1f} FLOP/byte"
        for line, text in enumerate(words):
            y = 30 + tallest + 18 + 20 * line
            axes.text(x, y, text, fontsize=9.5, va="center", weight="bold" if line == 0 else "normal")
        said.append(f"{rows} x {cols} loads {loads} elements and has {intensity:.1f} FLOP/byte")
        x += max(wide, 130) + 66
    key = ((SKY, "", "of A"), (ORANGE, "//", "of B"))
    for at, (colour, hatch, text) in enumerate(key):
        y = 30 + tallest + 38 + 20 * at
        box(axes, 690, y - 6, 18, 12, colour, hatch=hatch)
        axes.text(714, y, text, fontsize=9, va="center")
    results = shapes[0][0] * shapes[0][1]
    return picture(
        f"Three tiles with {results:,} results each",
        figure,
        f"What each tile loads for one column of A and one row of B, of {itemsize} bytes per element. "
        f"{'; '.join(said)}.",
    )


def pipeline(steps: int = 6, load: float = 1.6, dot: float = 1.0) -> Panel:
    """A loop over K without and with software pipelining: when tiles are loaded and when they are multiplied.

    Args:
        steps: of the loop.
        load: how long a load takes, in units of `dot`; a drawing, not a measurement.
        dot: how long a step's tl.dot takes.
    """
    figure, axes = page(236)
    left, unit, tall = 78, 41, 22

    def lane(y, starts, length, colour, names):
        for at, start in enumerate(starts):
            box(axes, left + start * unit, y, length * unit, tall, colour)
            axes.text(
                left + (start + length / 2) * unit, y + tall / 2, names.format(at), fontsize=9, ha="center", va="center"
            )

    alone = [at * (load + dot) for at in range(steps)]
    axes.text(8, 18, "num_stages=1: each step waits for its own load", fontsize=9.5, weight="bold", va="center")
    lane(34, alone, load, SKY, "load {}")
    lane(62, [start + load for start in alone], dot, ORANGE, "dot {}")
    ends = [load + at * dot for at in range(steps)]
    axes.text(8, 122, "num_stages=3: two loads run ahead", fontsize=9.5, weight="bold", va="center")
    for place in range(2):  # two loads in flight, on two lines
        starts = [max(0.0, (at - 2) * dot + load) if at > 1 else 0.0 for at in range(steps) if at % 2 == place]
        for at, start in zip(range(place, steps, 2), starts):
            lane(138 + 26 * place, [start], load, SKY, f"load {at}")
    lane(192, ends, dot, ORANGE, "dot {}")
    for y, name in ((45, "loads"), (73, "dots"), (162, "loads"), (203, "dots")):
        axes.text(left - 8, y, name, fontsize=9, ha="right", va="center", color=_GREY)
    arrow(axes, (left, 226), (left + 600, 226), _GREY, linewidth=1)
    axes.text(left + 606, 226, "time", fontsize=9, va="center", color=_GREY)
    return picture(
        "Loads that run ahead of the dots",
        figure,
        "Loads that run ahead of the dots. Above, with one stage, every tl.dot waits for the load of its own tiles. "
        f"Below, with three stages, two loads are in flight while a dot runs, and {steps} steps take "
        f"{load + steps * dot:.1f} units instead of {steps * (load + dot):.1f}. Lengths are chosen for the drawing.",
    )


def wave_rows(tiles: int, slots: int, title: str, shown: int = 2) -> Panel:
    """Which wave each program of a launch runs in, one box per program, a row per wave."""
    waves = -(-tiles // slots)
    first = max(0, waves - shown)
    figure, axes = page(46 + 40 * (waves - first))
    left, wide = 74, 664 / slots
    for at, wave in enumerate(range(first, waves)):
        y = 12 + 40 * at
        busy = min(slots, tiles - wave * slots)
        axes.text(left - 8, y + 13, f"wave {wave + 1}", fontsize=9.5, ha="right", va="center")
        box(axes, left, y, 664, 26, _PALE, linewidth=0.6)
        for slot in range(busy):
            colour = BLUE if busy == slots else ORANGE
            box(axes, left + slot * wide, y, wide, 26, colour, edgecolor="white", linewidth=0.5)
        if busy < slots:
            words = f"busy: {busy} of {slots} SMs, idle: {slots - busy}"
            axes.text(left + max(busy * wide + 10, 10), y + 13, words, fontsize=9.5, va="center")
    axes.text(left + 332, 12 + 40 * (waves - first) + 12, f"{slots} SMs", fontsize=9, ha="center", color=_GREY)
    last = tiles - (waves - 1) * slots
    return picture(
        title,
        figure,
        f"{tiles} programs on {slots} SMs, one program per SM, run in {waves} waves. The last wave has "
        f"{last} program{'s' * (last != 1)}, so {slots - last} SMs are idle.",
    )


def tile_in_wgmma(block_m: int, block_n: int, block_k: int, rows: int, deep: int) -> Panel:
    """A tile of c and one step's tiles of a and b, cut into the wgmma instructions of two warpgroups."""
    figure, axes = page(300)
    unit = 1.15
    left, top = 232, 110
    wide, tall, depth = block_n * unit, block_m * unit, block_k * unit
    groups = block_m // rows
    colours = (SKY, ORANGE)
    for group in range(groups):
        y = top + group * rows * unit
        box(axes, left, y, wide, rows * unit, colours[group % 2], linewidth=1.4, alpha=0.75)
        words = f"warpgroup {group + 1}: {rows} x {block_n} accumulators"
        axes.text(left + wide / 2, y + rows * unit / 2, words, fontsize=9, ha="center", va="center")
        for at in range(block_k // deep):
            box(axes, left - depth - 16 + at * deep * unit, y, deep * unit, rows * unit, "white", linewidth=0.8)
    for at in range(block_k // deep):
        box(axes, left, top - depth - 14 + at * deep * unit, wide, deep * unit, "white", linewidth=0.8)
    box(axes, left - depth - 16, top, deep * unit, rows * unit, GREEN, hatch="//", linewidth=1.4)
    box(axes, left, top - depth - 14, wide, deep * unit, GREEN, hatch="//", linewidth=1.4)
    axes.text(left - depth - 22, top + tall / 2, "tile of A,\nshared memory", fontsize=9, ha="right", va="center")
    axes.text(left + wide + 8, top - depth / 2 - 14, "tile of B,\nshared memory", fontsize=9, va="center")
    axes.text(left + wide + 8, top + tall / 2, "tile of C,\nregisters", fontsize=9, va="center")
    sides = (
        (left - depth / 2 - 16, top - 10, block_k, 0),
        (left - 10, top - depth / 2 - 14, block_k, 90),
        (left + wide / 2, top - depth - 24, block_n, 0),
        (left - depth - 24, top + 9, block_m, 90),
    )
    for at_x, at_y, side, turn in sides:
        axes.text(at_x, at_y, side, fontsize=9, ha="center", va="center", color=_GREY, rotation=turn)
    x = 16
    box(axes, x, 30, 22, 14, GREEN, hatch="//")
    axes.text(x + 28, 37, f"operands of one wgmma\nm{rows}n{block_n}k{deep}", fontsize=9, va="center")
    count = groups * block_k // deep
    axes.text(
        left + wide / 2,
        top + tall + 18,
        f"{count} instructions per step: {groups} warpgroups, {block_k // deep} slices of K",
        fontsize=9,
        ha="center",
        va="center",
    )
    return picture(
        "One step of a tile in wgmma instructions",
        figure,
        f"One step of a {block_m} x {block_n} tile, BLOCK_K {block_k}. Each of {groups} warpgroups owns {rows} rows of "
        f"accumulators and issues {block_k // deep} instructions m{rows}n{block_n}k{deep}, each for a slice of "
        f"{deep} columns of A and {deep} rows of B.",
    )


def tiles_on_roofline(points: dict, bandwidth: float, peak: float, title: str, about: str, cuda_cores: float) -> Panel:
    """Measured throughput of tiles against the intensity of what their programs request.

    Args:
        points: {name: (FLOP per requested byte, FLOP/s, 0 or 1, offset of the name)}; 1 is on tensor cores.
        bandwidth: bytes/s of the sloped line.
        peak: FLOP/s of the level line, by cuBLAS.
        title: the finding.
        about: what is shown, for the text alternative.
        cuda_cores: FLOP/s of the dashed level line, the peak of the CUDA cores by datasheet.
    """
    figure = canvas(height=330)
    axes = figure.add_axes((0.075, 0.14, 0.91, 0.79))
    ridge = peak / bandwidth
    axes.loglog([0.1, ridge, 1000], [0.1 * bandwidth / 1e12, peak / 1e12, peak / 1e12], color=BLACK, linewidth=2)
    axes.set(xlim=(0.25, 700), ylim=(0.2, 1500))
    axes.set_xticks([0.5, 1, 10, 100], ["0.5", "1", "10", "100"])
    axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("FLOP per requested byte", fontsize=9)
    axes.text(0, 1.02, "TFLOP/s", fontsize=9, transform=axes.transAxes)
    axes.fill_between([0.25, ridge], [0.25 * bandwidth / 1e12, peak / 1e12], 1500, color="#f6ecd6", linewidth=0)
    words = "above the line: bytes arrive\nfaster than HBM delivers them"
    axes.text(0.29, 560, words, fontsize=9.5, color="#7a5200", va="center")
    look = {"fontsize": 9, "ha": "center", "va": "center", "rotation": 18.5}  # along the line
    axes.text(2.75, 1.85 * bandwidth / 1e12, f"copy bandwidth, {bandwidth / 1e12:.2f} TB/s", **look)
    words = f"cuBLAS,\n{peak / 1e12:.0f} TFLOP/s"
    axes.text(690, peak / 1e12 * 0.8, words, fontsize=9, ha="right", va="top")
    axes.plot([cuda_cores / bandwidth, 1000], [cuda_cores / 1e12] * 2, "--", color=BLACK, linewidth=1.3)
    words = f"CUDA cores,\n{cuda_cores / 1e12:.1f} TFLOP/s"
    axes.text(690, cuda_cores / 1e12 * 0.85, words, fontsize=9, ha="right", va="top")
    axes.plot([ridge, ridge], [0.2, peak / 1e12], ":", color=_GREY, linewidth=1.2)
    axes.text(ridge * 1.06, 0.26, f"ridge point, {ridge:.0f}", fontsize=9, color=_GREY)
    for name, (intensity, speed, place, offset) in points.items():
        look = {"marker": ("o", "s")[place], "color": (BLUE, RED)[place], "markersize": 8, "markeredgecolor": BLACK}
        axes.plot([intensity], [speed / 1e12], linestyle="none", **look)
        side = "right" if offset[0] < 0 else "left"
        axes.annotate(
            name, (intensity, speed / 1e12), offset, textcoords="offset points", fontsize=9, ha=side, va="center"
        )
    numbers = "; ".join(
        f"{name} {number(speed / 1e12, digits=3)} TFLOP/s at {number(intensity, digits=3)} FLOP/byte"
        for name, (intensity, speed, *_) in points.items()
    )
    limit = f"The CUDA cores' peak is {number(cuda_cores / 1e12, digits=3)} TFLOP/s"
    return picture(title, figure, about, f"{numbers}. {limit}")


def waves_measured(series: dict, slots: dict, called: dict, title: str, about: str) -> Panel:
    """Time against the number of programs, a panel per tile.

    Args:
        series: {name: [(programs, microseconds), ...]}.
        slots: {name: programs per wave}, drawn as dashed lines; the axes count in the smallest.
        called: {name: {programs: (alignment, points to the right, points upward)}} of labels, "programs:" above "µs".
        title: the finding.
        about: what is shown, for the text alternative.
    """
    figure = canvas(height=300)
    most = max(us for points in series.values() for _, us in points)
    least = min(slots.values())
    for place, (name, points) in enumerate(series.items()):
        axes = figure.add_axes((0.08 + 0.485 * place, 0.16, 0.425, 0.7))
        xs, ys = zip(*points)
        axes.plot(xs, ys, "o-", color=(BLUE, RED)[place], markersize=3.5, linewidth=1)
        axes.set(xlim=(0, max(xs) * 1.02), ylim=(0, 1.12 * most))
        for mark in range(slots[name], max(xs) + 1, slots[name]):
            axes.axvline(mark, color=_GREY, linestyle="--", linewidth=1)
        for count, (align, *offset) in called[name].items():
            us = dict(points)[count]
            look = {"textcoords": "offset points", "fontsize": 9, "ha": align, "va": "center", "zorder": 4}
            look["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
            between = " " if count == least else "\n"  # a line is too wide between two waves, but for the first
            axes.annotate(f"{count}:{between}{us:.0f} µs", (count, us), offset, **look)
        ticks = range(least, max(xs) + 1, least)
        axes.set_xticks(list(ticks), [f"{tick:,}" for tick in ticks])
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("programs launched", fontsize=9)
        axes.set_title(name, fontsize=9.5, loc="left")
        if not place:
            axes.set_ylabel("µs", fontsize=9)
        axes.tick_params(labelsize=9)
    return picture(title, figure, about)


def _rows_on_a_log_axis(names: list, across: tuple, limits: tuple, words: str) -> tuple:
    """(figure, axes) with a named row for each step, above a logarithmic axis from 1 to 1,000. across: left edge and
    width of the axes, as shares of the figure; limits: of the axis; words: what it shows."""
    row, top, foot = 24, 10, 46
    height = top + row * len(names) + foot
    figure = canvas(height=height)
    axes = figure.add_axes((across[0], foot / height, across[1], row * len(names) / height))
    axes.set(xscale="log", xlim=limits, ylim=(len(names) - 0.5, -0.5), yticks=[])
    axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.minorticks_off()
    axes.set_xlabel(words, fontsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    for at, name in enumerate(names):
        figure.text(0.008, 1 - (top + (at + 0.5) * row) / height, name, fontsize=9, va="center")
    return figure, axes


def ladder(steps: dict, parts: dict, title: str, about: str) -> Panel:
    """Times on a logarithmic axis, joined to a staircase, on bands that name what the steps are about.

    Args:
        steps: {name: milliseconds}, from top to bottom.
        parts: {words: how many steps it names}, from top to bottom.
        title: the subject.
        about: what is shown, for the text alternative.
    """
    figure, axes = _rows_on_a_log_axis(list(steps), (0.275, 0.69), (1, 6000), "ms per call, logarithmic")
    first = 0
    for at, (words, count) in enumerate(parts.items()):
        axes.axhspan(first - 0.5, first + count - 0.5, color=("#eef4f9", "#fbf3e2")[at % 2], linewidth=0)
        place = (5600, first + count / 2 - 0.5, "right") if first else (1.15, count / 2 - 0.5, "left")
        axes.text(*place[:2], words, fontsize=9.5, ha=place[2], va="center", color=_GREY)
        first += count
    axes.plot(list(steps.values()), range(len(steps)), color=_GREY, linewidth=1, drawstyle="steps-post")
    for at, ms in enumerate(steps.values()):
        axes.plot([ms], [at], "o", color=BLUE, markersize=7, markeredgecolor=BLACK)
        words = f"{ms:,.0f}" if ms >= 1000 else f"{ms:.3g}" if ms >= 10 else f"{ms:.2f}"
        look = {"textcoords": "offset points", "fontsize": 9, "va": "center"}
        axes.annotate(words, (ms, at), (9, 0), **look)
    numbers = "; ".join(f"{name} {number(ms, digits=3)}" for name, ms in steps.items())
    return picture(title, figure, about, numbers)


def gains(steps: dict, strong: Sequence[str], title: str, about: str) -> Panel:
    """Factors end to end on a logarithmic axis: each begins where the one above ends, so their lengths add up.

    Args:
        steps: {name: times as fast as the row above}, from top to bottom.
        strong: rows in another color.
        title: the subject.
        about: what is shown, for the text alternative.
    """
    words = "times as fast as the first kernel, logarithmic"
    figure, axes = _rows_on_a_log_axis(list(steps), (0.215, 0.72), (0.93, 2400), words)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.7)
    reached = 1.0
    for at, (name, gain) in enumerate(steps.items()):
        color = ORANGE if name in strong else BLUE
        axes.plot([reached, reached * gain], [at, at], color=color, linewidth=9, solid_capstyle="butt", zorder=3)
        reached *= gain
        if at + 1 < len(steps):
            axes.plot([reached] * 2, [at, at + 1], color=_GREY, linewidth=1)
        look = {"textcoords": "offset points", "fontsize": 9, "va": "center"}
        axes.annotate(f"{gain:.2f}", (reached, at), (6, 0), **look)
    numbers = "; ".join(f"{name} {gain:.2f}" for name, gain in steps.items())
    return picture(title, figure, about, f"{numbers}. All together {reached:,.0f}")


def bytes_in_launches(launches: dict, title: str, about: str) -> Panel:
    """Bars of launches, and in each the time that its DRAM bytes take at copy bandwidth.

    Args:
        launches: {name: (milliseconds of the launch, milliseconds of its DRAM bytes)}.
        title: the subject.
        about: what is shown, for the text alternative.
    """
    row, top = 44, 34
    figure, axes = page(top + row * len(launches) + 6)
    left = 215
    unit = 470 / max(launch for launch, _ in launches.values())
    for at, (name, (launch, dram)) in enumerate(launches.items()):
        y = top + at * row
        axes.text(8, y + 15, name, fontsize=9.5, va="center")
        box(axes, left, y, launch * unit, 30, SKY)
        box(axes, left, y + 8, dram * unit, 14, ORANGE, hatch="//")
        axes.text(left + launch * unit + 6, y + 15, f"{launch:.2f} ms", fontsize=9.5, va="center")
        if dram * unit > 70:
            look = {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.2}, "va": "center", "ha": "center"}
            axes.text(left + dram * unit / 2, y + 15, f"{dram:.2f} ms", fontsize=9, **look)
    for x, colour, hatch, words in (
        (left, SKY, "", "launch"),
        (left + 90, ORANGE, "//", "its DRAM bytes at copy bandwidth"),
    ):
        box(axes, x, 8, 20, 13, colour, hatch=hatch)
        axes.text(x + 26, 14.5, words, fontsize=9.5, va="center")
    numbers = "; ".join(
        f"{name}: launch {launch:.2f} ms, DRAM bytes {dram:.2f} ms" for name, (launch, dram) in launches.items()
    )
    return picture(title, figure, about, numbers)


def peak_split(runs: dict, peak: float, title: str, about: str) -> Panel:
    """Where a datasheet's peak goes: what is reached, what cycles lose, and what a lower clock loses.

    Args:
        runs: {name: (TFLOP/s reached, peak TFLOP/s at the sampled clock, that clock in MHz)}.
        peak: TFLOP/s of the datasheet.
        title: the finding.
        about: what is shown, for the text alternative.
    """
    row, top, left = 48, 34, 150
    figure, axes = page(top + row * len(runs) + 22)
    unit = 560 / peak
    said = []
    for at, (name, (reached, at_clock, mhz)) in enumerate(runs.items()):
        y, pieces = top + at * row, (reached, at_clock - reached, peak - at_clock)
        axes.text(8, y + 9, name, fontsize=9.5, va="center")
        axes.text(8, y + 25, f"at {mhz:,.0f} MHz", fontsize=9, va="center", color=_GREY)
        x = left
        for size, colour, hatch in zip(pieces, (SKY, _PALE, ORANGE), ("", "", "//")):
            box(axes, x, y, size * unit, 32, colour, hatch=hatch)
            look = {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.0}} if hatch and size > 100 else {}
            inside = size * unit > 30
            place = x + size * unit / 2 if inside else x + size * unit + 14
            axes.text(place, y + 16, f"{size:,.0f}", fontsize=9.5, ha="center", va="center", **look)
            x += size * unit
        said.append(
            f"{name}: {pieces[0]:.0f} reached, {pieces[1]:.0f} lost at the sampled clock, "
            f"{pieces[2]:.0f} lost to the lower clock"
        )
    for x, colour, hatch, words in (
        (left, SKY, "", "reached"),
        (left + 100, _PALE, "", "lost at the sampled clock"),
        (left + 320, ORANGE, "//", "lost to the lower clock"),
    ):
        box(axes, x, 8, 20, 13, colour, hatch=hatch)
        axes.text(x + 26, 14.5, words, fontsize=9.5, va="center")
    end = left + peak * unit
    axes.plot([end, end], [26, top + row * len(runs)], "--", color=BLACK, linewidth=1)
    axes.text(end, top + row * len(runs) + 10, f"datasheet: {peak:,.0f} TFLOP/s", fontsize=9, ha="right", va="center")
    return picture(title, figure, about, "; ".join(said))
