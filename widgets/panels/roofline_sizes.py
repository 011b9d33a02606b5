"""Measured kernels rise to the roofline as their tensors grow from 10 KB to 1 GB."""

from instruments.gpus import GPUS
from instruments.results import Point, load, rates
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, RED, SKY, Example, Panel, canvas, whole
from widgets.toolkit.words import number, rate, size

EXAMPLE = Example(entry="7", text="Up to 10 MB")

X, Y = (0.08, 9_000), (1e7, 3e15)  # FLOP/byte, FLOP/s
SIZES = tuple(half * 10**power for power in range(4, 9) for half in (1, 3.1623)) + (1.7e9,)  # bytes
KERNELS = {"add": (SKY, "o"), "rmsnorm": (ORANGE, "^"), "matmul": (GREEN, "s")}
NAMES = {"add": "add", "rmsnorm": "RMSNorm", "matmul": "matmul"}
CLOCKS = {"cold_us": "CUDA graph", "eager_us": "eager"}


def series(kernel: str, implementation: str = "bytes-first") -> list[Point]:
    """The recorded points of one of the course's kernels, or of torch's, by size."""
    points = [p for p in load("h200").roofline if (p.kernel, p.implementation) == (kernel, implementation)]
    return sorted(points, key=lambda point: point.bytes)


def up_to(points: list[Point], step: int) -> list[Point]:
    """The points that a step shows, of some sorted by size."""
    return [point for point in points if point.bytes <= 1.3 * SIZES[step - 1]]


def share_of_roof(kernel: str, point: Point, clock: str) -> float:
    """FLOP/s of a point by one of CLOCKS, as a share of the roof over its intensity."""
    limits = rates("H200")
    peak = limits.peak if kernel == "matmul" else GPUS["H200"].vector
    return point.flops / getattr(point, clock) * 1e6 / min(peak, point.intensity * limits.bandwidth)


def roofline_sizes(step: int = 1) -> Panel:
    """Additions, RMSNorms and square matmuls on the H200's roofline.

    Args:
        step: 1 to 11, the largest tensors that are shown, from 10 KB to more than 1 GB.
    """
    limits, cores = rates("H200"), GPUS["H200"].vector
    figure = canvas(height=400)
    axes = figure.add_axes((0.135, 0.12, 0.85, 0.85))
    axes.set(xscale="log", yscale="log", xlim=X, ylim=Y)
    axes.set_xlabel("arithmetic intensity, FLOP/byte", fontsize=9.5)
    axes.set_xticks([0.1, 1, 10, 100, 1000], ["0.1", "1", "10", "100", "1,000"], fontsize=9)
    ticks = [10.0**power for power in range(8, 16)]
    axes.set_yticks(ticks, [rate(tick) for tick in ticks], fontsize=9)
    axes.minorticks_off()
    axes.grid(color="#e8e8e8", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.plot([X[0], limits.ridge], [X[0] * limits.bandwidth, limits.peak], color=BLUE, linewidth=2.4)
    axes.plot([limits.ridge, X[1]], [limits.peak] * 2, color=RED, linewidth=2.4)
    axes.plot([cores / limits.bandwidth, X[1]], [cores, cores], color="#777777", linewidth=1.4)
    axes.text(
        limits.ridge, limits.peak * 1.3, f"tensor cores, {rate(limits.peak)}", fontsize=9, ha="right", va="bottom"
    )
    axes.text(X[1], cores * 1.3, "CUDA cores (datasheet)", fontsize=9, ha="right", va="bottom", color="#555555")
    axes.text(1.6, 2.3e13, "copy bandwidth", fontsize=9, rotation=18.5, va="center", ha="center", color=BLUE)
    points = {kernel: series(kernel) for kernel in KERNELS}
    trails, heads, labels = {}, {}, {}
    for kernel, (colour, marker) in KERNELS.items():
        for clock in CLOCKS:
            fill = colour if clock == "cold_us" else "white"
            look = {"marker": marker, "color": colour, "linewidth": 1, "animated": True}
            (trails[kernel, clock],) = axes.plot([], [], markersize=4.5, markerfacecolor=fill, **look)
            look |= {"markeredgecolor": BLACK, "linestyle": "none"}
            look |= {"markersize": 9.5} if clock == "cold_us" else {"markersize": 14, "markeredgewidth": 1.5}
            fill = colour if clock == "cold_us" else "none"  # a ring, in which the full mark is seen
            (heads[kernel, clock],) = axes.plot([], [], markerfacecolor=fill, **look)
        labels[kernel] = axes.text(1, 1, "", fontsize=9.5, va="top", ha="center", animated=True)
    axes.plot([40], [3e8], "o", color="#777777", markersize=8, markeredgecolor=BLACK)
    axes.text(56, 3e8, "CUDA graph, cold L2", fontsize=9, va="center")
    axes.plot([40], [6e7], "o", markerfacecolor="none", markersize=12, markeredgewidth=1.5, markeredgecolor=BLACK)
    axes.text(56, 6e7, "eager, back to back", fontsize=9, va="center")

    def height(point, clock):
        return point.flops / getattr(point, clock) * 1e6

    def draw(step):
        said = []
        for kernel in KERNELS:
            seen = up_to(points[kernel], step)
            for clock in CLOCKS:
                xs, ys = [p.intensity for p in seen], [height(p, clock) for p in seen]
                trails[kernel, clock].set_data(xs, ys)
                trails[kernel, clock].set_markevery(slice(0, max(0, len(xs) - 1)))  # the last one is the head
                heads[kernel, clock].set_data(xs[-1:], ys[-1:])
            labels[kernel].set_text(f"{NAMES[kernel]}\n{size(seen[-1].bytes)}" if seen else "")
            if not seen:
                continue
            last = seen[-1]
            if kernel == "matmul":
                labels[kernel].set(
                    x=min(last.intensity * 1.2, 4500), y=min(height(last, "eager_us") / 1.9, cores / 1.5)
                )
            else:
                labels[kernel].set(x=last.intensity * 1.35, y=height(last, "cold_us"), ha="left")
            graph, eager = (f"{number(100 * share_of_roof(kernel, last, clock), digits=2)}%" for clock in CLOCKS)
            said.append(f"{NAMES[kernel]} of {size(last.bytes)} {graph} and {eager}")
        most = size(round(SIZES[step - 1], -4) if step < len(SIZES) else 1.6e9)
        return (
            f"Up to {most}: full marks are CUDA graph replays, rings eager calls. "
            f"Share of the roof in a CUDA graph and eager: {'; '.join(said)}."
        )

    controls = {"step": whole("size", 1, len(SIZES), 1)}
    return Panel("From 10 KB to 1 GB", figure, controls, draw).set(step=step)
