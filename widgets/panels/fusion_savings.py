"""The fusion panel: what RMSNorm moves, and how long that takes, unfused, in two passes and in one."""

from math import ceil, floor, log10

from instruments.gpus import DTYPES, GPUS, MIB
from instruments.traffic import LAUNCH_SECONDS, Traffic
from kernels.norms.rmsnorm import rmsnorm_ops, rmsnorm_traffic
from widgets.toolkit.panel import BLACK, GREEN, ORANGE, SKY, Checks, Example, Panel, Powers, canvas, menu, whole
from widgets.toolkit.words import compared, size, time

EXAMPLE = Example(entry="5000", text="5,000 x 8,192")

SHORTEST = 1e-9  # seconds at which the axis of times begins at least
WORDS = 0.45  # of that axis, what the words of its last points add to it
WIDEST = 11.9  # multiples of x: RMSNorm unfused on a single narrow row, and room for a number

#: The three ways, top to bottom, and how their bars look.
PATHS = {"unfused": ORANGE, "two reads": SKY, "resident": GREEN}


def fusion_savings(
    rows: int = 8192, cols: int = 8192, dtype: str = "bf16", gpu: str = "H200", ops: tuple | None = None
) -> Panel:
    """Bytes, bandwidth-bound time and launch time of RMSNorm: unfused, two-pass and resident.

    ops: names out of `rmsnorm_ops(...)` that the unfused path runs; all of them if None.
    """
    known = tuple(rmsnorm_ops(1, 1, DTYPES["bf16"]))
    figure = canvas(height=340)
    places = {path: len(PATHS) - 1 - i for i, path in enumerate(PATHS)}
    moved = figure.add_axes((0.115, 0.09, 0.4, 0.82))
    timed = figure.add_axes((0.555, 0.09, 0.43, 0.82))
    for axes in (moved, timed):
        axes.set(ylim=(-0.5, 2.6))
        axes.spines[["top", "left", "right"]].set_visible(False)
        axes.tick_params(axis="y", left=False)
    moved.set(xlim=(0, WIDEST))
    moved.set_xticks([0, 2, 4, 6, 8], ["0", "2", "4", "6", "8 times x"], fontsize=9)
    moved.set_yticks(list(places.values()), list(places), fontsize=9.5)
    moved.set_title("bytes predicted, in multiples of x", fontsize=10, loc="left")
    timed.set(xscale="log", yticks=[])
    heading = timed.set_title("", fontsize=10, loc="left")

    def bar(axes, y, height, **look):
        return axes.barh(y, 0, height, left=axes.get_xlim()[0], animated=True, **look)[0]

    def text(axes, y, fontsize, **look):
        return axes.text(0, y, "", fontsize=fontsize, va="center", animated=True, **look)

    top, edge = places["unfused"], {"edgecolor": "white", "linewidth": 0.5}
    pieces = [bar(moved, top, 0.62, color=PATHS["unfused"], **edge) for _ in known]
    labels = [text(moved, top, 8.5, ha="center", rotation=90) for _ in known]
    slivers = text(moved, top - 0.43, 8.5)
    wholes = {
        path: bar(moved, places[path], 0.45, color=colour, **edge)
        for path, colour in PATHS.items()
        if path != "unfused"
    }
    sizes = {path: text(moved, place, 9) for path, place in places.items()}

    def point(marker, color):  # points and no bars: the axis is logarithmic
        style = {"markerfacecolor": color, "markeredgecolor": BLACK, "markersize": 9, "animated": True}
        return timed.plot([], [], marker, **style)[0]

    memory = {path: point("o", color) for path, color in PATHS.items()}
    launch = {path: point("D", "white") for path in PATHS}
    memory_text = {path: text(timed, place + 0.17, 9) for path, place in places.items()}
    launch_text = {path: text(timed, place - 0.17, 9) for path, place in places.items()}

    def scale(seconds):
        """Sets the axis of times to whole thousands around the seconds; returns the decades that it shows."""
        seconds = [max(one, SHORTEST) for one in seconds if one]
        low, high = 3 * floor(log10(min(seconds)) / 3), 3 * ceil(log10(max(seconds)) / 3)
        span = (high - low) * (1 + WORDS)
        limits = 10.0**low, 10 ** (low + span)
        if timed.get_xlim() != limits:
            ticks = [10.0**power for power in range(low, high + 1, (high - low) // 3)]
            timed.set_xlim(limits)
            timed.set_xticks(ticks, [time(tick) if tick < 1 else f"{tick:,.0f} s" for tick in ticks], fontsize=9)
            timed.minorticks_off()
        return span

    def draw(rows, cols, dtype, gpu, per_launch, ops):
        rows, cols, device = round(rows), round(cols), GPUS[gpu]
        each = rmsnorm_ops(rows, cols, DTYPES[dtype])
        unfused = [each[name] for name in ops]
        work = {
            "unfused": sum(unfused, Traffic()),
            "two reads": rmsnorm_traffic(rows, cols, DTYPES[dtype], path="two_pass"),
            "resident": rmsnorm_traffic(rows, cols, DTYPES[dtype]),
        }

        whole = rows * cols * DTYPES[dtype].itemsize  # bytes of x
        start, thin = 0, []
        for i, (piece, label) in enumerate(zip(pieces, labels)):
            width = unfused[i].bytes / whole if i < len(unfused) else 0
            piece.set(x=start, width=width)
            label.set(x=start + width / 2, text=ops[i] if width > 0.45 else "")
            thin += [ops[i]] if 0 < width <= 0.45 else []
            start += width
        slivers.set_text(f"too thin for a name: {', '.join(thin)}" if thin else "")
        for path, traffic in work.items():
            if path in wholes:
                wholes[path].set_width(traffic.bytes / whole)
            sizes[path].set(x=traffic.bytes / whole + 0.15, text=size(traffic.bytes))

        bound = {path: traffic.memory_seconds(device) for path, traffic in work.items()}
        started = {path: traffic.launch_seconds(per_launch * 1e-6) for path, traffic in work.items()}
        span = scale([*bound.values(), *started.values()])
        for path in PATHS:
            count = work[path].launches
            for points, texts, above, seconds, what in (
                (memory, memory_text, 0.17, bound, ""),
                (launch, launch_text, -0.17, started, f", {count} launch{'' if count == 1 else 'es'}"),
            ):
                end = max(seconds[path], timed.get_xlim()[0])
                points[path].set_data([end], [places[path] + above])
                texts[path].set(x=end * 10 ** (0.035 * span), text=f"{time(seconds[path])}{what}")
        heading.set_text(f"lower bounds at {size(device.bandwidth)}/s: ● bytes, ◇ launches")
        return _alt(rows, cols, dtype, device, work, bound, started)

    return Panel(
        "What fusing RMSNorm saves",
        figure,
        {
            "rows": Powers("rows", 0, 20, 8192),
            "cols": Powers("columns", 4, 17, 8192),
            "dtype": menu("dtype", DTYPES, "bf16"),
            "gpu": menu("GPU", GPUS, "H200"),
            "per_launch": whole("µs per launch", 1, 30, round(LAUNCH_SECONDS * 1e6)),
            "ops": Checks("The unfused path runs:", known),
        },
        draw,
    ).set(rows=rows, cols=cols, dtype=dtype, gpu=gpu, ops=known if ops is None else ops)


def _a(gpu: str) -> str:
    return f"an {gpu}" if gpu[0] in "AHL" else f"a {gpu}"


def _alt(rows, cols, dtype, gpu, work, bound, started) -> str:
    naive, two, one = work.values()
    alt = f"{rows:,} x {cols:,} {dtype}: "
    if not naive.launches:
        return alt + f"tick an op to compare; resident moves {size(one.bytes)}, two reads of x {size(two.bytes)}."
    saved = bound["unfused"] - bound["resident"]
    alt += (
        f"resident moves {size(one.bytes)} instead of {size(naive.bytes)}, "
        f"{compared(naive.bytes / one.bytes, digits=2)}{' as these ops alone' * (naive.bytes < one.bytes)}. "
        f"On {_a(gpu.name)}, at {size(gpu.bandwidth)}/s, it takes at least {time(bound['resident'])} "
        f"instead of {time(bound['unfused'])}; two reads of x move {size(two.bytes)} if no cache helps. "
    )
    launches = naive.launches - one.launches
    worth = started["unfused"] - started["resident"]
    if launches > 0:
        alt += "The launch saved is" if launches == 1 else f"The {launches} launches saved are"
        alt += f" worth {time(worth)}"
        alt += ", more than the bytes. " if worth > saved else ", less than the bytes. "
    l2 = f"{gpu.name}'s {gpu.l2 / MIB:.0f} MiB L2"
    if one.bytes <= gpu.l2:
        alt += (
            f"All {size(one.bytes)} fit in the {l2}: a warm loop runs from there, and a second read hardly "
            "reaches DRAM."
        )
    else:
        alt += f"The {size(one.bytes)} do not fit in the {l2}, so DRAM moves them; L2 serves a part of a second read."
    return alt
