"""The chain panel: ops put one behind the other, run op by op, as a compiler joins them, and fused as far as can be."""

import numpy as np

from instruments.gpus import DTYPES, GPUS
from instruments.ops import op_traffic
from instruments.traffic import LAUNCH_SECONDS, Traffic
from kernels.pointwise import add_traffic, pointwise_chain_traffic
from kernels.rmsnorm import rmsnorm_traffic
from widgets.panel import BLUE, GREEN, ORANGE, SKY, Checks, Example, Panel, Powers, canvas, menu, whole
from widgets.words import compared, number, size, time

EXAMPLE = Example(typed="5000", told="5,000 x 4,096")

MATMUL = "matmul"

#: name: what the op moves alone, for rows x cols elements. The product's weight is cols x cols; RMSNorm is torch's own,
#: one kernel, not the six ops it may be written as.
OPS = {
    "scale": lambda rows, cols, dtype: pointwise_chain_traffic(rows * cols, dtype, 1),
    "RMSNorm": lambda rows, cols, dtype: rmsnorm_traffic(rows, cols, dtype),
    MATMUL: lambda rows, cols, dtype: op_traffic("gemm", m=rows, n=cols, k=cols, dtype=dtype),
    "GELU": lambda rows, cols, dtype: pointwise_chain_traffic(rows * cols, dtype, 1),
    "* up": lambda rows, cols, dtype: add_traffic(rows * cols, dtype),
    "clamp": lambda rows, cols, dtype: pointwise_chain_traffic(rows * cols, dtype, 1),
    "+ residual": lambda rows, cols, dtype: add_traffic(rows * cols, dtype),
}

#: The three ways, top to bottom, and how they look: colour, marker, its size, and the width of the line. Each lies over
#: the one before and is narrower, so that equal ones all show.
PATHS = {"op by op": (ORANGE, "o", 13, 6), "compiler": (SKY, "s", 9, 3.5), "fused": (GREEN, "^", 6, 1.4)}
FEWEST, MOST = 0, 20  # powers of two of rows


def kernels_of(ops: tuple, path: str) -> list:
    """The ops of each kernel, in order.

    'op by op': one each. 'compiler': neighbours joined, but a matrix product is a library call of its own. 'fused':
    what follows the product joins it too, in its epilogue; what stands before it cannot, as each row is read by many
    programs.
    """
    groups = []
    for op in ops:
        joins = bool(groups) and path != "op by op" and op != MATMUL
        if joins and path == "compiler":
            joins = groups[-1] != [MATMUL]
        if joins and MATMUL in groups[-1] and op == "RMSNorm":
            joins = False  # needs whole rows, and a program of the product owns a part of one
        if joins:
            groups[-1].append(op)
        else:
            groups.append([op])
    return groups


def kernel_traffic(group: list, rows: int, cols: int, dtype) -> Traffic:
    """What one kernel moves: its ops' traffic, less the write and the read of each intermediate that it keeps."""
    work = sum((OPS[op](rows, cols, dtype) for op in group), Traffic())
    kept = (len(group) - 1) * rows * cols * dtype.itemsize
    return Traffic({"all": work.bytes_read - kept}, {"all": work.bytes_written - kept}, work.flops, 1)


def chain_traffic(ops: tuple, path: str, rows: int, cols: int, dtype) -> Traffic:
    """What the whole chain moves on one path."""
    return sum((kernel_traffic(group, rows, cols, dtype) for group in kernels_of(ops, path)), Traffic())


def gpu_seconds(ops: tuple, path: str, rows: int, cols: int, dtype: str, gpu) -> float:
    """The roofline times of a path's kernels, one after the other, without launches."""
    unit = dtype if dtype in gpu.matrix else "tf32" if "tf32" in gpu.matrix and dtype == "fp32" else "vector"
    return sum(
        kernel_traffic(group, rows, cols, DTYPES[dtype]).roofline_seconds(gpu, unit if MATMUL in group else "vector")
        for group in kernels_of(ops, path)
    )


def break_even_rows(ops: tuple, path: str, cols: int, dtype: str, gpu, per_launch: float) -> int | None:
    """The fewest rows at which the GPU works at least as long as the host launches; None beyond the slider's end."""
    launches = len(kernels_of(ops, path)) * per_launch

    def busy(rows):
        return gpu_seconds(ops, path, rows, cols, dtype, gpu) >= launches

    low, high = 0, 2**MOST
    if not busy(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if busy(middle) else (middle, high)
    return high


def fusion_chain(
    ops: tuple = ("scale", "GELU", "* up", "clamp", "+ residual"),
    rows: int = 8192,
    cols: int = 4096,
    dtype: str = "bf16",
    gpu: str = "H200",
) -> Panel:
    """Bytes, launches and time of a chain of ops on three paths, and the size at which launches stop mattering.

    ops: names out of OPS; they run in the order of that list.
    """
    figure = canvas(height=330)
    chain = figure.text(0.01, 0.96, "", fontsize=10, weight="bold", va="center", animated=True)
    moved = figure.add_axes((0.095, 0.14, 0.345, 0.69))
    moved.set(xlim=(0, 1.62), ylim=(-0.6, 2.6))
    moved.set_xticks([0, 0.5, 1], ["0", "50%", "100%"], fontsize=9)
    moved.set_yticks(range(3), reversed(PATHS), fontsize=9.5)
    moved.tick_params(axis="y", left=False)
    moved.spines[["top", "left", "right"]].set_visible(False)
    moved.set_title("minimum traffic, as a share of op by op", fontsize=10, loc="left")
    timed = figure.add_axes((0.53, 0.14, 0.44, 0.69))
    timed.set(xscale="log", yscale="log", xlim=(0.6, 1.7 * 2**MOST), ylim=(4e-7, 1e3))
    timed.minorticks_off()
    timed.set_xticks([1, 32, 1024, 32768, 2**20], ["1", "32", "1,024", "32,768", "1,048,576"], fontsize=9)
    timed.set_yticks([1e-6, 1e-3, 1, 1e3], ["1 µs", "1 ms", "1 s", "1,000 s"], fontsize=9)
    timed.set_xlabel("rows", fontsize=9.5)
    timed.set_title("the longer of GPU time and launches", fontsize=10, loc="left")
    timed.spines[["top", "right"]].set_visible(False)
    bars, texts, curves, points = {}, {}, {}, {}
    for place, (path, (colour, marker, side, broad)) in zip((2, 1, 0), PATHS.items()):
        bars[path] = moved.barh(place, 0, 0.6, color=colour, edgecolor="white", animated=True)[0]
        texts[path] = moved.text(0, place, "", fontsize=9, va="center", animated=True)
        curves[path] = timed.plot([], [], color=colour, linewidth=broad, animated=True)[0]
        points[path] = timed.plot(
            [], [], marker, color=colour, markersize=side, markeredgecolor="black", animated=True, clip_on=False
        )[0]
    even = timed.plot([], [], ":", color=BLUE, linewidth=1.4, animated=True)[0]
    note = timed.text(1, 150, "", fontsize=9, color=BLUE, va="center", animated=True)
    across = np.unique(np.geomspace(1, 2**MOST, 22).astype(int)).tolist()

    def draw(rows, cols, dtype, gpu, per_launch, ops):
        rows, cols, device, per_launch = round(rows), round(cols), GPUS[gpu], per_launch * 1e-6
        work = {path: chain_traffic(ops, path, rows, cols, DTYPES[dtype]) for path in PATHS}

        def seconds(path, rows):
            return max(gpu_seconds(ops, path, rows, cols, dtype, device), work[path].launches * per_launch)

        most = max(traffic.bytes for traffic in work.values()) or 1
        for path, traffic in work.items():
            bars[path].set_width(traffic.bytes / most)
            texts[path].set_x(traffic.bytes / most + 0.03)
            texts[path].set_text(f"{size(traffic.bytes)}, {traffic.launches} launch{'es' * (traffic.launches != 1)}")
            curves[path].set_data(across if ops else [], [seconds(path, r) for r in across] if ops else [])
            points[path].set_data([rows] if ops else [], [seconds(path, rows)] if ops else [])
        turn = break_even_rows(ops, "op by op", cols, dtype, device, per_launch) if ops else None
        even.set_data(([turn, turn], [4e-7, 1e3]) if turn else ([], []))
        note.set(
            x=(turn or 1) * (1.25 if (turn or 1) < 3000 else 0.8),
            ha="left" if (turn or 1) < 3000 else "right",
            text="op by op, launches\nstop mattering" if turn else "",
        )
        chain.set_text(" \N{RIGHTWARDS ARROW} ".join(ops) or "no op yet")
        return _sentence(rows, cols, dtype, device, ops, work, {path: seconds(path, rows) for path in PATHS}, turn)

    return Panel(
        "A chain of ops, fused and not",
        figure,
        {
            "rows": Powers("rows", FEWEST, MOST, 8192),
            "cols": Powers("columns", 4, 15, 4096),
            "dtype": menu("dtype", DTYPES, "bf16"),
            "gpu": menu("GPU", GPUS, "H200"),
            "per_launch": whole("µs per launch", 1, 30, round(LAUNCH_SECONDS * 1e6)),
            "ops": Checks("The chain, in this order (RMSNorm is one kernel on every path):", OPS, value=("scale",)),
        },
        draw,
    ).set(rows=rows, cols=cols, dtype=dtype, gpu=gpu, ops=ops)


def _sentence(rows, cols, dtype, gpu, ops, work, seconds, turn) -> str:
    said = f"{', '.join(ops)}: " if ops else ""
    said += f"{rows:,} x {cols:,} {dtype} on {'an' if gpu.name[0] in 'AHL' else 'a'} {gpu.name}: "
    if not ops:
        return said + "tick an op to begin a chain."
    for path, traffic in work.items():
        said += (
            f"{path} {size(traffic.bytes)}, {traffic.launches} launch{'es' * (traffic.launches != 1)}, "
            f"{time(seconds[path])}; "
        )
    ratio = work["op by op"].bytes / work["fused"].bytes
    faster = number(seconds["op by op"] / seconds["fused"], digits=3)
    said = said[:-2] + ". "
    if work["op by op"].launches == work["fused"].launches:
        said += "Nothing here shares a kernel. "
    else:
        said += (
            f"Fused moves {compared(ratio)} {'as' if compared(ratio) == 'as much' else 'than'} op by op and is "
            f"{'' if faster == '1' else f'{faster} times '}as fast. "
        )
    if turn is None:
        said += "Op by op, launches take longer than the GPU's work at any number of rows."
    else:
        said += f"Op by op, launches stop mattering from {turn:,} row{'s' * (turn != 1)} on"
        said += "." if rows >= turn else ": here they decide."
    return said
