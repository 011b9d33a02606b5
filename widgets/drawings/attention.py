"""Still drawings of attention: where its tensors lie, which program runs when, what a tile needs, its roofline."""

from matplotlib.patches import Rectangle

from kernels.attention.fast_models import places
from widgets.drawings.pictures import arrow, box, page, picture
from widgets.toolkit.panel import BLACK, GREEN, ORANGE, SKY, WIDTH, Panel, canvas

_DRAM, _CHIP = "#eeeeee", "#e3f1fa"


def forward_tiles() -> Panel:
    """What one program of attention's forward holds, and what streams past it."""
    figure, axes = page(300)
    axes.add_patch(Rectangle((6, 6), 336, 288, facecolor=_DRAM, edgecolor="none"))
    axes.add_patch(Rectangle((408, 6), 346, 288, facecolor=_CHIP, edgecolor="none"))
    axes.text(16, 22, "HBM", fontsize=9.5, weight="bold", va="center")
    axes.text(418, 22, "on chip: one program", fontsize=9.5, weight="bold", va="center")
    tiles, top, side = 7, 62, 30
    for x, name in ((22, "q"), (106, "k"), (186, "v"), (270, "out")):
        axes.text(x + 26, 48, name, fontsize=11, ha="center", va="center")
        for tile in range(tiles):
            own = tile == 4 and name in ("q", "out")
            now = tile == 2 and name in ("k", "v")
            colour = GREEN if own and name == "out" else SKY if own else ORANGE if now else "white"
            box(axes, x, top + tile * side, 52, side, colour, linewidth=1.6 if own or now else 0.8)
    arrow(axes, (166, top + 8), (166, top + tiles * side), "#8a5f00")
    axes.text(172, 284, "tile by tile, all keys and values", fontsize=9, ha="center", va="center", color="#8a5f00")
    words = {"fontsize": 9.5, "ha": "center", "va": "center"}
    small = words | {"fontsize": 8.5}
    for x, y, colour, name in (
        (424, 46, SKY, "tile of q"),
        (534, 46, ORANGE, "tile of k"),
        (652, 126, ORANGE, "tile of v"),
    ):
        box(axes, x, y, 88, 40, colour)
        axes.text(x + 44, y + 20, name, **words)
    box(axes, 450, 122, 146, 48, "white", linestyle="--")
    axes.text(523, 138, "tile of scores", **words)
    axes.text(523, 156, "on chip only", **words | {"fontsize": 9})
    arrow(axes, (468, 88), (492, 121))
    arrow(axes, (578, 88), (554, 121))
    axes.text(640, 104, "first matmul", **small)
    box(axes, 424, 226, 54, 56, "white")
    box(axes, 484, 226, 54, 56, "white")
    box(axes, 560, 226, 182, 56, GREEN)
    rows = (
        (451, "m", "running\nmax", 238),
        (511, "l", "running\nsum", 238),
        (651, "out", "rescaled, then added to", 244),
    )
    for x, name, below, y in rows:
        axes.text(x, y, name, fontsize=11, ha="center", va="center")
        axes.text(x, 265, below, fontsize=8, ha="center", va="center")
    arrow(axes, (490, 171), (482, 225))
    arrow(axes, (556, 171), (592, 225))
    arrow(axes, (710, 167), (710, 225))
    axes.text(646, 200, "second matmul", **small)
    arrow(axes, (344, 180), (406, 180), "#8a5f00")
    arrow(axes, (406, 210), (344, 210), "#00694d")
    axes.text(375, 166, "read", fontsize=9, ha="center", va="center", color="#8a5f00")
    axes.text(375, 226, "write", fontsize=9, ha="center", va="center", color="#00694d")
    return picture(
        "The scores live for one tile",
        figure,
        "HBM holds q, k, v and out, and no scores. A program reads a tile of q and keeps it; tiles of k and v stream "
        "by. From q and a tile of k, the first matmul makes a tile of scores on chip. They update the running max m; l "
        "and out are rescaled. The second matmul, with the tile of v, adds to out, and the scores are discarded. In "
        "the end the program writes its tile of out.",
    )


def grouped_heads() -> Panel:
    """Which query heads share a KV head: multi-head, grouped-query and multi-query attention beside each other."""
    figure, axes = page(216)
    heads, wide, words = 4, 50, {"fontsize": 9, "ha": "center", "va": "center"}
    kinds = (
        ("multi-head", 4, "KV cache: all"),
        ("grouped-query", 2, "KV cache: half"),
        ("multi-query", 1, "KV cache: a quarter"),
    )
    for at, (name, kv_heads, cache) in enumerate(kinds):
        left = 16 + at * 254
        middles = [left + 28 + head * 56 for head in range(heads)]
        group = heads // kv_heads
        axes.text(left + 112, 16, name, **words | {"fontsize": 10, "weight": "bold"})
        for head, x in enumerate(middles):
            box(axes, x - wide / 2, 36, wide, 32, SKY)
            axes.text(x, 52, f"q {head}", **words)
        for kv in range(kv_heads):
            mine = middles[kv * group : (kv + 1) * group]
            x = sum(mine) / group
            for from_x in mine:
                arrow(axes, (x, 132), (from_x, 70), "#777777", linewidth=1.1)
            box(axes, x - wide / 2, 134, wide, 40, ORANGE)
            axes.text(x, 154, f"k, v\n{kv}", **words)
        axes.text(left + 112, 196, f"{kv_heads} KV head{'s' * (kv_heads > 1)}; {cache}", **words)
    return picture(
        "With grouped heads, several query heads read the same keys and values",
        figure,
        "Four query heads, three ways. Multi-head attention has a KV head for each of them. In grouped-query "
        "attention, query heads 0 and 1 share KV head 0, and 2 and 3 share KV head 1, so that the KV cache is half as "
        "large. In multi-query attention all four share one.",
    )


def attention_roofline(copy_gbps: float, matmul_tflops: float, points: dict, title: str) -> Panel:
    """The roofline with kernels of attention on it, log axes both.

    Args:
        copy_gbps: copy bandwidth.
        matmul_tflops: throughput of the yardstick matmul.
        points: {name: (FLOP/byte, TFLOP/s, whether the bytes are those requested, horizontal alignment)}; names stand
            beside their points.
        title: the finding.
    """
    ridge = matmul_tflops * 1e3 / copy_gbps
    figure = canvas(height=350)
    axes = figure.add_axes((0.09, 0.14, 0.88, 0.78))
    axes.set(xscale="log", yscale="log", xlim=(16, 4096), ylim=(40, 1400))
    ticks = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_yticks((50, 100, 200, 400, 800), ("50", "100", "200", "400", "800"))
    axes.minorticks_off()
    axes.tick_params(labelsize=9)
    axes.set_xlabel("arithmetic intensity, FLOP/byte", fontsize=9)
    axes.text(0, 1.03, "TFLOP/s", fontsize=9, transform=axes.transAxes)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#E6E6E6", linewidth=0.7)
    axes.plot((16, ridge, 4096), (16 * copy_gbps / 1e3, matmul_tflops, matmul_tflops), color="#777777", linewidth=3)
    axes.axvline(ridge, color="#777777", linewidth=1.2, linestyle=":")
    look = {"textcoords": "offset points", "fontsize": 9, "color": "#444444", "va": "center"}
    axes.annotate(f"ridge point, {ridge:.0f}", (ridge, 45), (6, 0), **look)
    axes.annotate(f"torch's matmul, {matmul_tflops:.0f} TFLOP/s", (900, matmul_tflops), (0, 11), **look)
    axes.annotate(f"copy bandwidth, {copy_gbps:,.0f} GB/s", (21, 58), (0, 0), **look)
    for name, (intensity, tflops, requested, align) in points.items():
        fill = "white" if requested else ORANGE
        axes.plot([intensity], [tflops], "s" if requested else "o", color=fill, markersize=9, markeredgecolor=BLACK)
        x = {"left": 9, "right": -9, "center": 0}[align]
        axes.annotate(
            name, (intensity, tflops), (x, -21 if align == "center" else 0), ha=align, **(look | {"color": BLACK})
        )
    numbers = "; ".join(
        f"{name}: {intensity:,.0f} FLOP/byte, {tflops:.0f} TFLOP/s".replace("\n", " ")
        for name, (intensity, tflops, *_) in points.items()
    )
    return picture(title, figure, f"Roofline of the H200, with a ridge point of {ridge:.0f} FLOP/byte", numbers)


def attention_roles(runs: dict, copies: dict, title: str, about: str) -> Panel:
    """What TMA, tensor cores and SFUs do over time for each warpgroup, for several schedules on one scale.

    Args:
        runs: {name: spans of `schedule` in kernels/attention/fast_models.py}.
        copies: {name: spans of `copies`}.
        title: the finding.
        about: what is shown, for the text alternative.
    """
    everything = [span for name, spans in runs.items() for span in (*spans, *copies[name])]
    begin, end = min(span.start for span in everything), max(span.end for span in everything)
    line = 24
    band = 28 + 3 * line
    figure, axes = page(40 + band * len(runs))
    left, wide = 104, 640
    unit = wide / (end - begin)
    said = []
    for number, (name, spans) in enumerate(runs.items()):
        y = 6 + number * band
        whole = max(span.end for span in spans)
        share = sum(span.end - span.start for span in spans if span.kind != "softmax") / whole
        said.append(f"{name}: {whole:,.0f} cycles, tensor cores busy {share:.0%}")
        axes.text(6, y + 10, name, fontsize=9.5, weight="bold", va="center")
        words = f"tensor cores busy {share:.0%} of {whole:,.0f} cycles"
        axes.text(left + wide, y + 10, words, fontsize=9, ha="right", va="center", color="#555555")
        rows = {"TMA": copies[name], "tensor cores": [s for s in spans if s.kind != "softmax"]}
        rows["SFUs"] = [s for s in spans if s.kind == "softmax"]
        for row, (actor, each) in enumerate(rows.items()):
            top = y + 22 + row * line
            axes.text(left - 8, top + 10, actor, fontsize=9, ha="right", va="center")
            axes.plot([left, left + wide], [top + 20, top + 20], color="#dddddd", linewidth=0.8)
            for span in each:
                _draw_span(axes, span, left + (span.start - begin) * unit, (span.end - span.start) * unit, top)
    y = 6 + len(runs) * band
    for x, colour, words in ((left, SKY, "warpgroup 0"), (left + 112, ORANGE, "warpgroup 1")):
        box(axes, x, y + 6, 18, 14, colour, linewidth=0.6)
        axes.text(x + 24, y + 13, words, fontsize=9, va="center")
    axes.text(
        left + 232, y + 13, "k, v: copies, S: scores, O: output (hatched), by tile of keys", fontsize=9, va="center"
    )
    return picture(title, figure, about, "; ".join(said))


def tile_on_sm(needs: dict, title: str, about: str) -> Panel:
    """How long a tile of scores occupies each resource of an SM: bars of cycles on one scale, the longest hatched.

    Args:
        needs: {resource: (what it does per cycle, what the tile asks of it, cycles)}.
        title: the finding.
        about: what is shown, for the text alternative.
    """
    line, left = 62, 272
    figure, axes = page(24 + line * len(needs))
    axes.add_patch(Rectangle((6, 26), left - 24, line * len(needs) - 12, facecolor=_CHIP, edgecolor="none"))
    axes.text(14, 14, "one SM", fontsize=9.5, weight="bold", va="center")
    axes.text(left, 14, "cycles for one tile", fontsize=9.5, weight="bold", va="center")
    most = max(cycles for _, _, cycles in needs.values())
    unit = (WIDTH - left - 64) / max(most, 700)
    for at, (name, (rate, work, cycles)) in enumerate(needs.items()):
        y = 36 + line * at
        axes.text(16, y + 8, name, fontsize=9.5, weight="bold", va="center")
        axes.text(16, y + 27, rate, fontsize=8.5, va="center")
        longest = cycles == most
        box(axes, left, y, cycles * unit, 18, ORANGE if longest else SKY, hatch="//" if longest else "", linewidth=0.6)
        axes.text(left + cycles * unit + 6, y + 9, f"{cycles:,.0f}", fontsize=9.5, va="center")
        axes.text(left, y + 29, work, fontsize=8.5, va="center")
    numbers = "; ".join(f"{name} {cycles:,.0f}" for name, (_, _, cycles) in needs.items())
    return picture(title, figure, about, f"Cycles for one tile: {numbers}")


def measured_in_range(rows: dict, title: str, about: str, across: str, ends: tuple) -> Panel:
    """Points on one scale from 0, each beside the range that a model gives for it.

    Args:
        rows: {row: (measured, low, high)}, from top to bottom.
        title: the finding.
        about: what is shown, for the text alternative.
        across: what the axis shows.
        ends: what the low and the high end of a range mean.
    """
    line, head, left = 38, 36, 128
    height = head + line * len(rows) + 44
    figure, axes = page(height)
    most = 1.14 * max(max(numbers) for numbers in rows.values())
    unit = (WIDTH - left - 20) / most
    bottom = head + line * len(rows)
    for tick in range(0, int(most) + 1, 500):
        x = left + tick * unit
        axes.plot([x, x], [head, bottom], color="#e0e0e0", linewidth=0.8, zorder=0)
        axes.text(x, bottom + 12, f"{tick:,}", fontsize=9, ha="center", va="center")
    axes.text(left + most * unit / 2, bottom + 30, across, fontsize=9, ha="center", va="center")
    for at, (row, (value, low, high)) in enumerate(rows.items()):
        y = head + line * (at + 0.62)
        axes.text(6, y, row, fontsize=9.5, va="center")
        box(axes, left + low * unit, y - 8, (high - low) * unit, 16, SKY, linewidth=0.6)
        axes.plot([left + value * unit], [y], "o", color=ORANGE, markersize=9, markeredgecolor=BLACK, zorder=4)
        axes.text(left + value * unit, y - 15, f"{value:,.0f}", fontsize=9.5, weight="bold", ha="center", va="center")
    axes.plot([left + 7], [16], "o", color=ORANGE, markersize=9, markeredgecolor=BLACK)
    axes.text(left + 20, 16, "measured", fontsize=9.5, weight="bold", va="center")
    box(axes, left + 116, 9, 30, 14, SKY, linewidth=0.6)
    axes.text(left + 154, 16, f"the model, from {ends[0]} to {ends[1]}", fontsize=9.5, va="center")
    numbers = "; ".join(f"{row} {value:,.0f}, model {low:,} to {high:,}" for row, (value, low, high) in rows.items())
    return picture(title, figure, about, numbers)


def program_order(orders: dict, slots: int, title: str, about: str) -> Panel:
    """Which place runs which program when, for several orders of launch, on one scale.

    Args:
        orders: {name: [(head, length), ...]}, in the order of launch; three heads at most.
        slots: places for programs.
        title: the finding.
        about: what is shown, for the text alternative.
    """
    row, head = 10, 26
    band = head + row * slots + 10
    figure, axes = page(band * len(orders) + 26)
    left, wide = 14, 560
    runs = {name: places([length for _, length in work], slots) for name, work in orders.items()}
    last = max(end for spans in runs.values() for _, _, end in spans)
    looks, said = ((SKY, ""), (ORANGE, "//"), (GREEN, "..")), []
    for number, (name, spans) in enumerate(runs.items()):
        y = 4 + number * band
        mean = sum(length for _, length in orders[name]) / slots
        end = max(end for _, _, end in spans)
        said.append(f"{name}: the last program ends at {end}, perfect balance {mean:.4g}")
        axes.text(left, y + 10, name, fontsize=9.5, weight="bold", va="center")
        for (slot, start, stop), (which, _) in zip(spans, orders[name]):
            color, hatch = looks[which]
            place = left + start / last * wide, y + head - 4 + slot * row
            box(axes, *place, (stop - start) / last * wide, row - 1.5, color, hatch=hatch, linewidth=0.5)
        x = left + mean / last * wide
        axes.plot([x, x], [y + head - 8, y + head + row * slots - 2], color=BLACK, linewidth=1.3, linestyle="--")
        words = f"ends at {end}, {end / mean - 1:.0%} late"
        axes.text(left + wide + 16, y + head + row * slots / 2 - 4, words, fontsize=9.5, va="center")
    y, x = band * len(orders) + 12, left
    for which in range(1 + max(which for work in orders.values() for which, _ in work)):
        box(axes, x, y - 7, 18, 14, looks[which][0], hatch=looks[which][1], linewidth=0.6)
        axes.text(x + 24, y, f"head {which}", fontsize=9, va="center")
        x += 90
    axes.text(x + 10, y, "dashed: perfect balance; a line is a place on an SM", fontsize=9, va="center")
    return picture(title, figure, about, "; ".join(said))


def _draw_span(axes, span, x: float, long: float, top: float):
    """A span of a schedule as a box, with its name where there is space."""
    colour = {-1: "white", 0: SKY}.get(span.warpgroup, ORANGE)
    box(axes, x, top, long, 20, colour, hatch="//" if span.kind == "out" else "", linewidth=0.6)
    words = {"scores": "S", "out": "O", "softmax": "exp "}.get(span.kind, span.kind) + str(span.tile)
    if long > 6.5 * len(words):
        patch = {"facecolor": colour, "edgecolor": "none", "pad": 1.5}
        axes.text(x + long / 2, top + 10, words, fontsize=8.5, ha="center", va="center", bbox=patch, zorder=5)
