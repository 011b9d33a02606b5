"""Host and GPU over time: kernels that are shorter than a launch leave the GPU idle."""

from instruments.results import load
from widgets.drawings.pictures import box
from widgets.toolkit.panel import ORANGE, SKY, Example, Panel, canvas, menu, whole
from widgets.toolkit.words import number

EXAMPLE = Example(entry="9", text="9 µs")

COUNT = 6  # launches that are drawn
LONGEST = 12  # microseconds of a kernel, by the slider
SPAN = 86.0  # microseconds across
GRAPH_GAP = 0.8  # microseconds from one empty kernel of a graph to the next, as recorded


def launch_lanes(kernel: int = 3, how: str = "eager") -> Panel:
    """Six launches of one kernel on the H200's host.

    Args:
        kernel: Microseconds that the kernel takes on the GPU, 1 to 12.
        how: eager, or CUDA graph.
    """
    launch = load("h200").launch_us.triton_empty
    figure = canvas(height=190)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 760), ylim=(190, 0))
    axes.axis("off")
    left, scale = 64, 680 / SPAN
    for y, name in ((36, "host"), (96, "GPU")):
        axes.text(8, y + 18, name, fontsize=10, weight="bold", va="center")
        box(axes, left, y, 684, 36, "#ececec", edgecolor="none")
    for at in range(0, int(SPAN) + 1, 10):
        axes.plot([left + at * scale] * 2, [138, 143], color="#777777", linewidth=0.8)
        axes.text(left + at * scale, 154, f"{at}", fontsize=8.5, ha="center", va="center", color="#444444")
    axes.text(left + 340, 176, "time, µs", fontsize=9, ha="center", va="center", color="#444444")
    bars = {}
    for lane, colour in (("host", ORANGE), ("GPU", SKY)):
        for at in range(COUNT):
            (patch,) = axes.barh(36 + 18 if lane == "host" else 96 + 18, 1, 32, 0, color=colour, edgecolor="black")
            patch.set_animated(True)
            bars[lane, at] = patch
    words = {"fontsize": 8.5, "ha": "center", "va": "center", "animated": True}
    axes.text(left + launch / 2 * scale, 54, f"launch\n{number(launch, digits=3)} µs", **words)
    length, gap = axes.text(0, 84, "", **{**words, "ha": "left"}), axes.text(0, 114, "idle", color="#444444", **words)

    def draw(kernel, how):
        graph = how == "CUDA graph"
        host_end = gpu_end = 0.0
        starts = []
        for at in range(COUNT):
            cost = launch if not graph or at == 0 else 0.0
            bars["host", at].set_x(left + host_end * scale)
            bars["host", at].set_width(cost * scale)
            host_end += cost
            start = max(host_end, gpu_end + (GRAPH_GAP if at else 0))
            starts.append(start)
            bars["GPU", at].set_x(left + start * scale)
            bars["GPU", at].set_width(kernel * scale)
            gpu_end = start + kernel
        per = starts[-1] - starts[-2]  # the queue runs by then
        idle = 1 - kernel / per
        length.set(x=left + starts[0] * scale, text=f"kernel, {kernel} µs")
        gap.set(x=left + (starts[1] + starts[0] + kernel) / 2 * scale, visible=per - kernel > 3.5)
        if graph:
            text = f"CUDA graph, {kernel} µs on the GPU: one call on the host starts all {COUNT} kernels"
        elif kernel + GRAPH_GAP < launch:
            text = f"Eager, {kernel} µs on the GPU: launch-bound, the GPU waits for the host"
        else:
            text = f"Eager, {kernel} µs on the GPU: the host runs ahead, and launches are hidden"
        return (
            f"{text}, idle {idle:.0%} of the time. A launch takes the host {number(launch, digits=3)} µs, as recorded "
            "for an empty Triton kernel. Once the queue runs, "
            f"{number(per, digits=3)} µs pass from one kernel's start to the next."
        )

    controls = {"kernel": whole("kernel, µs", 1, LONGEST, 3), "how": menu("launched", ("eager", "CUDA graph"), "eager")}
    return Panel("Host and GPU over time", figure, controls, draw).set(kernel=kernel, how=how)
