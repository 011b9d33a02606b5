"""The tile panel: what a matmul's tile requests, and what it takes of an SM's shared memory and registers."""

from instruments.gpus import DTYPES, GPUS
from instruments.occupancy import MOST_REGISTERS, REGISTERS, reserved
from instruments.results import load
from kernels.matmul.shared_memory import pipeline_buffers, tile_shared
from kernels.matmul.tiled import matmul_traffic
from widgets.toolkit.labels import Labels, line_boxes, text_boxes
from widgets.toolkit.panel import BLACK, BLUE, GREEN, INK_RED, ORANGE, RED, Example, Panel, Powers, canvas, menu, whole
from widgets.toolkit.words import number, size

EXAMPLE = Example(entry="256", text="256 x 128 by 64, bf16")

FULL = 1.6  # share of a resource at which its bar ends, however large
N = 8192  # of the matmul that the traffic is counted for: N x N x N


def _ridge(gpu: str, unit: str) -> tuple[float, str]:
    """(ridge point, where it comes from): measured for bf16 and fp16 on the H200, else by the datasheet."""
    if gpu == "H200" and unit in ("bf16", "fp16"):
        h200 = load("h200")
        return h200.matmul_tflops["bf16"] * 1e3 / h200.copy_gbps, "measured"
    return GPUS[gpu].ridge(unit), "datasheet"


def _requested_intensity(block_m: int, block_n: int, dtype) -> float:
    """FLOP per byte that a program with this tile of c reads, for any K."""
    tile = matmul_traffic(block_m, block_n, 1, dtype)
    return tile.flops / tile.bytes_read


def tile_intensity(
    block_m: int = 128,
    block_n: int = 128,
    block_k: int = 64,
    stages: int = 3,
    warps: int = 8,
    dtype: str = "bf16",
    gpu: str = "H200",
) -> Panel:
    """FLOP per byte that a tile requests, beside the ridge point; its shared memory and accumulators.

    Args:
        block_m: 16 to 1,024, a power of two, as block_n.
        block_n: Columns of the tile of c.
        block_k: Step over K.
        stages: 1 to 6.
        warps: 4, 8 or 16.
        dtype: One of DTYPES.
        gpu: One of GPUS.
    """
    figure = canvas(height=310)
    left = figure.add_axes((0.092, 0.155, 0.398, 0.8))
    left.set(xscale="log", yscale="log", xlim=(13, 1260), ylim=(2.5, 1500))
    left.set_xlabel("side of a square tile with as many elements", fontsize=9.5)
    left.set_ylabel("FLOP per requested byte", fontsize=9.5)
    left.minorticks_off()
    left.set_xticks([16, 64, 256, 1024], ["16", "64", "256", "1,024"], fontsize=9)
    left.set_yticks([10, 100, 1000], ["10", "100", "1,000"], fontsize=9)
    left.spines[["top", "right"]].set_visible(False)
    sides = (16, 1024)
    (squares,) = left.plot([], [], color=BLUE, linewidth=2)  # these three change with dtype and GPU only
    (ridge_line,) = left.plot([], [], "--", color=RED, linewidth=1.5)
    (here,) = left.plot([], [], "o", color=ORANGE, markeredgecolor=BLACK, markersize=10, animated=True)
    ridge_text = left.text(14, 1, "", fontsize=9, color=INK_RED)
    here_text = Labels(left, 1)
    right = figure.add_axes((0.545, 0.155, 0.435, 0.8))
    right.set(xlim=(0, FULL), ylim=(-0.6, 2.65), yticks=[])
    right.set_xticks([0, 0.5, 1, 1.5], ["0", "50%", "100%", "150%"], fontsize=9)
    right.spines[["top", "right"]].set_visible(False)
    right.set_xlabel("share of the limit", fontsize=9.5)
    right.vlines([1] * 3, [1.74, 0.74, -0.26], [2.26, 1.26, 0.26], color=BLACK, linewidth=2, zorder=3, animated=True)
    bars = [
        right.barh(2 - i, 0, 0.4, color=colour, hatch=hatch, edgecolor="white", animated=True)[0]
        for i, (colour, hatch) in enumerate(((BLUE, ""), (GREEN, "//"), (ORANGE, "..")))
    ]
    colours = dict(zip(bars, (BLUE, GREEN, ORANGE)))
    names = [right.text(0.015, 2 - i + 0.3, "", fontsize=9, va="bottom") for i in range(3)]
    texts = [right.text(FULL, 2 - i + 0.3, "", fontsize=9, ha="right", va="bottom", animated=True) for i in range(3)]
    scene = []  # the dtype and GPU that the picture's ground is painted for

    def draw(block_m, block_n, block_k, stages, warps, dtype, gpu):
        device, block_m, block_n, block_k = GPUS[gpu], round(block_m), round(block_n), int(block_k)
        kind, threads = DTYPES[dtype], 32 * int(warps)
        unit = next((u for u in (("tf32",) if dtype == "fp32" else (dtype,)) if u in device.matrix), "vector")
        ridge, source = _ridge(gpu, unit)
        requested = matmul_traffic(N, N, N, kind, tile=(block_m, block_n))
        intensity = _requested_intensity(block_m, block_n, kind)
        least = matmul_traffic(N, N, N, kind)
        shared = tile_shared(block_m, block_n, block_k, stages, kind.itemsize, device.arch)
        sums = block_m * block_n / threads
        limits = (device.shared_per_sm - reserved(device.arch), REGISTERS, MOST_REGISTERS)

        own_memory = (
            device.arch == 100
        )  # tensor memory: as many 32-bit words as there are registers, for accumulators only
        if scene != [dtype, gpu]:
            scene[:] = dtype, gpu
            squares.set_data(sides, [_requested_intensity(side, side, kind) for side in sides])
            ridge_line.set_data([14, 1200], [ridge, ridge])
            low = ridge < 60  # then its left end lies where the tiles' line is
            ridge_text.set(x=1200 if low else 14, y=ridge / 1.07 if low else ridge * 1.07)
            ridge_text.set(ha="right" if low else "left", va="top" if low else "bottom")
            ridge_text.set_text(f"ridge point, {gpu}, {source}: {number(ridge, digits=3)}")
            names[0].set_text("shared memory")
            names[1].set_text(f"accumulators, {'tensor memory' if own_memory else 'SM registers'}")
            names[2].set_text("accumulators, thread registers")
        side = (block_m * block_n) ** 0.5
        here.set_data([side], [intensity])
        here_text.place(
            [(number(intensity, digits=3), side, intensity)],
            [*text_boxes(ridge_text), *line_boxes(squares), *line_boxes(ridge_line)],
        )
        uses = (shared, block_m * block_n, 0 if own_memory else sums)
        for bar, text, used, limit, unit_of in zip(bars, texts, uses, limits, (" B", "", "")):
            bar.set_width(min(used / limit, FULL))
            bar.set_facecolor(RED if used > limit else colours[bar])
            text.set_text(f"{number(used)} of {limit:,}{unit_of}" if used else "none")

        alt = (
            f"{block_m} x {block_n} by {block_k}, {dtype}: {number(intensity, digits=3)} FLOP per byte read, "
            f"{'at or above' if intensity >= ridge else 'below'} the {gpu}'s ridge point of {number(ridge, digits=3)}. "
            f"A matmul of {N:,} cubed requests {size(requested.bytes)}; DRAM "
            f"has to move only {size(least.bytes)}. "
        )
        count = pipeline_buffers(stages, device.arch)
        alt += f"{count} buffer{'s' * (count != 1)} take {shared:,} B of shared memory"
        at_once = min(device.shared_per_sm // (shared + reserved(device.arch)), REGISTERS // (block_m * block_n))
        if shared > limits[0]:
            alt += f", more than the {limits[0]:,} B that one program may have: it does not run."
        elif own_memory:
            fits = block_m * block_n <= REGISTERS
            alt += f"; the accumulators lie in tensor memory{'' if fits else ', which is too small for them'}."
        elif sums > MOST_REGISTERS:
            alt += f"; {number(sums)} accumulators per thread are more than its {MOST_REGISTERS} registers: they spill."
        else:
            alt += (
                f", the accumulators {number(sums)} register{'s' * (sums != 1)} of each of {threads} threads: at most "
                f"{at_once} program{'s' * (at_once != 1)} at once on an SM."
            )
        return alt

    return Panel(
        "What a tile requests",
        figure,
        {
            "block_m": Powers("BLOCK_M", 4, 10, 128, alone=True),
            "block_n": Powers("BLOCK_N", 4, 10, 128, alone=True),
            "block_k": menu("BLOCK_K", (16, 32, 64, 128, 256), 64),
            "stages": whole("stages", 1, 6, 3),
            "warps": menu("warps", (4, 8, 16), 8),
            "dtype": menu("dtype", DTYPES, "bf16"),
            "gpu": menu("GPU", GPUS, "H200"),
        },
        draw,
    ).set(block_m=block_m, block_n=block_n, block_k=block_k, stages=stages, warps=warps, dtype=dtype, gpu=gpu)
