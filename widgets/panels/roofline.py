"""The roofline panel: which roof is over an operation, on which GPU, in which dtype; yours among them."""

import ipywidgets

from instruments.gpus import DTYPES, GPUS
from instruments.ops import op_traffic
from instruments.results import Figures, as_measured, gpus_on_record, load
from instruments.traffic import Traffic
from kernels.norms.rmsnorm import rmsnorm_traffic
from widgets.toolkit.labels import Labels, line_boxes, text_boxes
from widgets.toolkit.panel import (
    BLACK,
    BLUE,
    GREEN,
    INK_RED,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    YELLOW,
    Example,
    Panel,
    Powers,
    canvas,
    menu,
)
from widgets.toolkit.words import number, rate, size, time

EXAMPLE = Example(entry="5000", text="n = 5,000,", arguments={"look_at": "GEMM"})

YOURS = "your own"

#: name: (traffic at size n, whether tensor cores can do it, marker, colour)
PRESETS = {
    "vector add": (lambda n, dtype: op_traffic("elementwise", n=n * n, dtype=dtype), False, "o", SKY),
    "dot product": (lambda n, dtype: op_traffic("dot", n=n * n, dtype=dtype), False, "s", BLUE),
    "outer product": (lambda n, dtype: op_traffic("outer", m=n, n=n, dtype=dtype), False, "P", PURPLE),
    "GEMV": (lambda n, dtype: op_traffic("gemv", m=n, n=n, dtype=dtype), False, "^", GREEN),
    "RMSNorm": (lambda n, dtype: rmsnorm_traffic(n, n, dtype), False, "v", YELLOW),
    "GEMM, 16 rows": (lambda n, dtype: op_traffic("gemm", m=16, n=n, k=n, dtype=dtype), True, "D", ORANGE),
    "GEMM": (lambda n, dtype: op_traffic("gemm", m=n, n=n, k=n, dtype=dtype), True, "h", RED),
}

STAR = 14  # pixels from the middle of your own marker to its edge
X, Y = (0.005, 3e4), (3e9, 2e16)  # FLOP/B, FLOP/s


def _matrix_unit(gpu, dtype: str) -> str:
    """The unit that multiplies matrices of this dtype on this GPU; 'vector' where no tensor core takes it."""
    unit = "tf32" if dtype == "fp32" else dtype
    return unit if unit in gpu.matrix else "vector"


def _figures(gpu: str) -> Figures | None:
    """The figures measured on this GPU; None where none are recorded."""
    return load(gpu) if gpu.lower() in gpus_on_record() else None


def _group(points: dict) -> list:
    """Names whose points lie too near each other for a label each, joined: [(names, intensity, reached)]."""
    groups = []
    for name, (intensity, reached) in sorted(points.items(), key=lambda item: item[1]):
        if groups and intensity < 1.5 * groups[-1][1] and reached < 1.5 * groups[-1][2]:
            groups[-1][0].append(name)
        else:
            groups.append(([name], intensity, reached))
    return groups


def roofline(gpu: str = "H200", dtype: str = "bf16", n: int = 4096, look_at: str = "RMSNorm") -> Panel:
    """The roofline of a GPU with textbook operations of size n, your own FLOPs and bytes, and what was measured.

    Args:
        gpu: One of GPUS.
        dtype: One of DTYPES.
        n: 64 to 16,384.
        look_at: One of PRESETS, or YOURS: what the caption reads.
    """
    figure = canvas(height=410)
    axes = figure.add_axes((0.125, 0.125, 0.865, 0.775))
    axes.set(xscale="log", yscale="log", xlim=X, ylim=Y)
    axes.set_xlabel("arithmetic intensity, FLOP/byte", fontsize=9.5)
    axes.minorticks_off()
    axes.set_xticks([0.1, 1, 10, 100, 1000, 1e4], ["0.1", "1", "10", "100", "1,000", "10,000"], fontsize=9)
    ticks = [1e10, 1e11, 1e12, 1e13, 1e14, 1e15]
    axes.set_yticks(ticks, [rate(tick) for tick in ticks], fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    roofs = {}
    # These change with the GPU, not with the sizes. A matrix ridge's words lie above a vector ridge's, as those may
    # be near each other.
    for kind, width, lift in (("matrix", 2.2, 3.4), ("vector", 1.4, 1.25)):
        roofs[kind] = (
            axes.plot([], [], color=BLACK, linewidth=width)[0],
            axes.text(X[1], 1, "", fontsize=9, ha="right", va="bottom" if kind == "matrix" else "top"),
            axes.plot([], [], ":", color="#777777", linewidth=1)[0],
            axes.text(1, Y[0] * lift, "", fontsize=9, ha="left", va="bottom", color="#444444"),
        )
    (sheet,) = axes.plot([], [], "--", color="#777777", linewidth=1)
    (dots,) = axes.plot([], [], "x", color=RED, markersize=7, markeredgewidth=1.6)
    lone = axes.text(1, 1, "", fontsize=9, ha="right", va="bottom", color=INK_RED)
    note = figure.text(0.99, 0.99, "", fontsize=9, ha="right", va="top", color=INK_RED)
    markers = {
        name: axes.plot([], [], marker, color=colour, markeredgecolor=BLACK, markersize=8, animated=True)[0]
        for name, (_, _, marker, colour) in PRESETS.items()
    }
    look = {"markeredgecolor": BLACK, "animated": True, "clip_on": False}  # your own may lie at the picture's edge
    (yours,) = axes.plot([], [], "*", color="white", markersize=14, **look)
    (ring,) = axes.plot([], [], "o", markerfacecolor="none", markersize=17, **look)
    labels = Labels(axes, len(PRESETS) + 1)
    fixed = []  # the boxes of what labels may not lie on: the roofs' words, and what was measured
    roofs_of = ()  # GPU, dtype and whether measured, of the roofs drawn last
    large = []  # the shares of their roof that measured kernels reach, in percent

    def draw_roofs(device, dtype, matrix, figures, measured, source):
        for kind, which in (("matrix", matrix), ("vector", "vector")):
            line, text, drop, label = roofs[kind]
            peak, ridge = device.peak(which), device.ridge(which)
            line.set_data([X[0], ridge, X[1]], [X[0] * device.bandwidth, peak, peak])
            text.set_y(peak / 1.9 if kind == "vector" else peak * 1.9)
            text.set_text(f"{rate(peak)}, " + (f"{which} tensor cores" if which != "vector" else "fp32 CUDA cores"))
            drop.set_data([ridge, ridge], [Y[0], peak])
            label.set_x(ridge * 1.1)
            label.set_text(f"ridge point {number(ridge, digits=3)}" + (f", {source}" if which != "vector" else ""))
            for artist in roofs[kind]:
                artist.set_visible(kind == "vector" or which != "vector")

        paper = GPUS[device.name]
        top, meet = paper.peak(matrix), paper.ridge(matrix)
        sheet.set_data(([X[0], meet, X[1]], [X[0] * paper.bandwidth, top, top]) if figures else ([], []))
        ridge = device.ridge("vector")
        timed = [
            (
                Traffic({"all": case.bytes}, {}, case.flops),
                case.us("bytes-first") * 1e-6,
                matrix if case.flops > case.bytes * ridge else "vector",  # below it, DRAM is the roof of either
            )
            for case in (figures.cases if figures else ())
            if case.dtype == dtype
            and case.flops
            and "bytes-first" in case.impl
            and "scaled_matmul" not in case.kernel  # FP8
        ]
        dots.set_data([work.intensity for work, *_ in timed], [work.flops / seconds for work, seconds, _ in timed])
        shares = [(work, work.roofline_seconds(device, unit) / seconds) for work, seconds, unit in timed]
        low = [work.intensity for work, share in shares if share < 0.01]
        lone.set_text("too small to fill the GPU" if low else "")
        if low:
            lowest = min((work.flops / seconds for work, seconds, _ in timed if work.intensity == max(low)))
            lone.set_position((max(low), 1.7 * lowest))
        note.set_text(
            ""
            if not measured
            else f"no measurements are recorded for the {device.name}"
            if not figures
            else f"× the course's kernels, measured; dashed: the datasheet's roofs\n{figures.provenance}"
        )
        crosses = axes.transData.transform(dots.get_xydata())
        fixed[:] = text_boxes(*(artist for roof in roofs.values() for artist in roof[1::2]), lone)
        fixed.extend((x - 4, y - 4, x + 4, y + 4) for x, y in crosses)
        for line, *_ in roofs.values():
            fixed.extend(line_boxes(line) if line.get_visible() else ())
        return [100 * share for work, share in shares if work.bytes > device.l2]

    def draw(gpu, dtype, n, look_at, flops, nbytes, unit, measured):
        nonlocal roofs_of, large
        figures, n = _figures(gpu) if measured else None, round(n)
        device = as_measured(gpu) if figures else GPUS[gpu]
        matrix = _matrix_unit(device, dtype)
        source = "measured" if figures and matrix in figures.matmul_tflops else "datasheet"
        work = {name: traffic(n, DTYPES[dtype]) for name, (traffic, _, _, _) in PRESETS.items()}
        units = {name: matrix if on_matrix else "vector" for name, (_, on_matrix, _, _) in PRESETS.items()}
        work[YOURS] = Traffic({YOURS: nbytes}, flops=flops)
        units[YOURS] = matrix if unit == "matrix" else "vector"

        if roofs_of != (gpu, dtype, measured):
            roofs_of = gpu, dtype, measured
            large = draw_roofs(device, dtype, matrix, figures, measured, source)
        points = {
            name: (each.intensity, each.flops / each.roofline_seconds(device, units[name]))
            for name, each in work.items()
        }
        intensity, reached = points[YOURS]
        points[YOURS] = min(max(intensity, X[0]), X[1]), min(max(reached, Y[0]), Y[1])
        beyond = points[YOURS] != (intensity, reached)
        for name, marker in (*markers.items(), (YOURS, yours)):
            marker.set_data([points[name][0]], [points[name][1]])
        ring.set_data([points[look_at][0]], [points[look_at][1]])
        groups = _group({name: point for name, point in points.items() if name != YOURS})
        groups.append(([YOURS + ", beyond the edge" if beyond else YOURS], *points[YOURS]))
        groups.sort(key=lambda group: look_at not in group[0])
        x, y = axes.transData.transform(points[YOURS])
        star = x - STAR, y - STAR, x + STAR, y + STAR
        labels.place([(", ".join(names), *place) for names, *place in groups], [*fixed, star])

        alt = _alt(look_at, work[look_at], device, units[look_at], matrix, n, dtype, source)
        if large:
            span = " to ".join(dict.fromkeys(number(share, digits=2) for share in (min(large), max(large))))
            alt += f" Measured there: kernels that move more than L2 holds reach {span}% of their roof."
        return alt

    return Panel(
        "Roofline",
        figure,
        {
            "gpu": menu("GPU", GPUS, "H200"),
            "dtype": menu("dtype", DTYPES, "bf16"),
            "n": Powers("size n", 6, 14, 4096),
            "look_at": menu("look at", [*PRESETS, YOURS], "RMSNorm"),
            "flops": Powers("your FLOPs", 3, 15, 4e9, base=10, step=0.1),
            "nbytes": Powers("your bytes", 3, 12, 1e8, base=10, step=0.1),
            "unit": menu("yours on", ("vector", "matrix"), "vector"),
            "measured": ipywidgets.Checkbox(
                value=True,
                description="show what was measured",
                indent=False,
                layout={"width": "220px", "margin": "2px 2px 2px 106px"},
            ),
        },
        draw,
    ).set(gpu=gpu, dtype=dtype, n=n, look_at=look_at)


def _alt(name: str, work: Traffic, gpu, unit: str, matrix: str, n: int, dtype: str, source: str) -> str:
    ridge, on_matrix = gpu.ridge(unit), unit != "vector"
    units = f"{unit} tensor cores" if on_matrix else "fp32 CUDA cores"
    seconds = work.roofline_seconds(gpu, unit)
    bound = work.intensity >= ridge
    what = "Your own work" if name == YOURS else f"{name}, n = {n:,}, {dtype}"
    alt = (
        f"{what}: {number(work.intensity, digits=3)} FLOP/B, {'compute' if bound else 'memory'}-bound on the "
        f"{gpu.name}, at least {time(seconds)}. That is {rate(work.flops, 'FLOP')} over {size(work.bytes)}, "
        f"{'right' if bound else 'left'} of the ridge point of {number(ridge, digits=3)} for its {units}"
        + (f" ({source})" if on_matrix else "")
    )
    if not bound:
        alt += f", at most {number(100 * work.compute_seconds(gpu, unit) / seconds, digits=2)}% of their throughput"
    alt += "."
    if not on_matrix and matrix != "vector" and name != YOURS:
        alt += (
            f" The tensor cores' ridge point, {number(gpu.ridge(matrix), digits=3)}, does not apply: this code does "
            "not run on them."
        )
    if matrix == "vector":
        alt += f" The {gpu.name} has no tensor core instruction for {dtype}: its CUDA cores do the matmuls."
    return alt
