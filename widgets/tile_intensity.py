"""The tile panel: what a matmul's tile asks of L2, and what it takes of an SM's shared memory and registers."""

from instruments.gpus import DTYPES, GPUS
from instruments.occupancy import MOST_REGISTERS, REGISTERS, reserved
from kernels.matmul import matmul_traffic
from widgets.labels import Labels, line_boxes, text_boxes
from widgets.panel import BLACK, BLUE, GREEN, INK_RED, ORANGE, RED, Example, Panel, Powers, canvas, menu, whole
from widgets.words import number, size

EXAMPLE = Example(typed="256", told="256 x 128 by 64, bf16")

LEAST = 0.001  # share of a resource at which its bar begins
N = 8192  # of the product that the traffic is counted for: N x N x N


def buffers(stages: int, arch: int) -> int:
    """Pairs of tiles in shared memory: on sm_90 and sm_100 one per stage, elsewhere the one in use is in registers."""
    return stages if arch in (90, 100) else max(1, stages - 1)


def tile_shared(block_m: int, block_n: int, block_k: int, stages: int, itemsize: int, arch: int = 90) -> int:
    """Bytes of shared memory of a pipelined matmul: (BLOCK_M + BLOCK_N) * BLOCK_K elements per buffer."""
    return buffers(stages, arch) * (block_m + block_n) * block_k * itemsize


def _asked_intensity(block_m: int, block_n: int, dtype) -> float:
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
    """FLOP per byte that a tile asks of L2, beside the ridge; its shared memory and accumulators, beside the limits."""
    figure = canvas(height=310)
    left = figure.add_axes((0.085, 0.155, 0.405, 0.8))
    left.set(xscale="log", yscale="log", xlim=(13, 1260), ylim=(2.5, 1500))
    left.set_xlabel("side of a square tile with as many elements", fontsize=9.5)
    left.set_ylabel("FLOP per byte", fontsize=9.5)
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
    right.set(xscale="log", xlim=(LEAST, 300), ylim=(-0.6, 2.65), yticks=[])
    right.minorticks_off()
    right.set_xticks([0.01, 0.1, 1, 10, 100], ["1%", "10%", "all", "× 10", "× 100"], fontsize=9)
    right.spines[["top", "right", "left"]].set_visible(False)
    right.set_xlabel("share of what there is", fontsize=9.5)
    right.vlines([1] * 3, [1.74, 0.74, -0.26], [2.26, 1.26, 0.26], color=BLACK, linewidth=2, zorder=3, animated=True)
    bars = [
        right.barh(2 - i, 0, 0.4, left=LEAST, color=colour, hatch=hatch, edgecolor="white", animated=True)[0]
        for i, (colour, hatch) in enumerate(((BLUE, ""), (GREEN, "//"), (ORANGE, "..")))
    ]
    colours = dict(zip(bars, (BLUE, GREEN, ORANGE)))
    names = [right.text(LEAST, 2 - i + 0.3, "", fontsize=9, va="bottom") for i in range(3)]
    texts = [right.text(300, 2 - i + 0.3, "", fontsize=9, ha="right", va="bottom", animated=True) for i in range(3)]
    scene = []  # the dtype and GPU that the picture's ground is painted for

    def draw(block_m, block_n, block_k, stages, warps, dtype, gpu):
        device, block_m, block_n, block_k = GPUS[gpu], round(block_m), round(block_n), int(block_k)
        kind, threads = DTYPES[dtype], 32 * int(warps)
        unit = next((u for u in (("tf32",) if dtype == "fp32" else (dtype,)) if u in device.matrix), "vector")
        ridge = device.ridge(unit)
        asked = matmul_traffic(N, N, N, kind, tile=(block_m, block_n))
        intensity = _asked_intensity(block_m, block_n, kind)
        least = matmul_traffic(N, N, N, kind)
        shared = tile_shared(block_m, block_n, block_k, stages, kind.itemsize, device.arch)
        sums = block_m * block_n / threads
        limits = (device.shared_per_sm - reserved(device.arch), REGISTERS, MOST_REGISTERS)

        own_memory = device.arch == 100  # tensor memory: as many 32-bit words as there are registers, for sums only
        if scene != [dtype, gpu]:
            scene[:] = dtype, gpu
            squares.set_data(sides, [_asked_intensity(side, side, kind) for side in sides])
            ridge_line.set_data([14, 1200], [ridge, ridge])
            low = ridge < 60  # then its left end lies where the tiles' line is
            ridge_text.set(x=1200 if low else 14, y=ridge / 1.07 if low else ridge * 1.07)
            ridge_text.set(ha="right" if low else "left", va="top" if low else "bottom")
            ridge_text.set_text(f"ridge of DRAM, {gpu}: {number(ridge, digits=3)}")
            names[0].set_text("shared memory")
            names[1].set_text(f"{'tensor memory' if own_memory else 'all registers'}, sums")
            names[2].set_text("registers per thread, sums")
        side = (block_m * block_n) ** 0.5
        here.set_data([side], [intensity])
        here_text.place(
            [(number(intensity, digits=3), side, intensity)],
            [*text_boxes(ridge_text), *line_boxes(squares), *line_boxes(ridge_line)],
        )
        uses = (shared, block_m * block_n, 0 if own_memory else sums)
        for bar, text, used, limit, unit_of in zip(bars, texts, uses, limits, (" B", "", "")):
            bar.set_width(max(used / limit - LEAST, 0))
            bar.set_facecolor(RED if used > limit else colours[bar])
            text.set_text(f"{number(used)} of {limit:,}{unit_of}" if used else "none")

        said = (
            f"{block_m} x {block_n} by {block_k}, {dtype}: {number(intensity, digits=3)} FLOP per byte read, "
            f"{'at or above' if intensity >= ridge else 'below'} the {gpu}'s ridge of {number(ridge, digits=3)}. "
            f"A product of {N:,} cubed asks L2 for {size(asked.bytes)}; DRAM need move only {size(least.bytes)}. "
        )
        count = buffers(stages, device.arch)
        said += f"{count} buffer{'s' * (count != 1)} take {shared:,} B of shared memory"
        at_once = min(device.shared_per_sm // (shared + reserved(device.arch)), REGISTERS // (block_m * block_n))
        if shared > limits[0]:
            said += f", more than the {limits[0]:,} B that one program may have: it does not run."
        elif own_memory:
            fits = block_m * block_n <= REGISTERS
            said += f"; the sums lie in tensor memory{'' if fits else ', which is too small for them'}."
        elif sums > MOST_REGISTERS:
            said += f"; {number(sums)} sums per thread are more than its {MOST_REGISTERS} registers: they spill."
        else:
            said += (
                f", the sums {number(sums)} register{'s' * (sums != 1)} of each of {threads} threads: at most "
                f"{at_once} program{'s' * (at_once != 1)} at once on a multiprocessor."
            )
        return said

    return Panel(
        "What a tile asks for",
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
