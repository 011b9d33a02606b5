"""The tile panel: what a matmul's tile asks of L2, and what it takes of an SM's shared memory and registers."""

from instruments.gpus import DTYPES, GPUS
from instruments.occupancy import MOST_REGISTERS, REGISTERS, reserved
from kernels.matmul import matmul_traffic
from widgets.panel import BLACK, BLUE, GREEN, ORANGE, RED, Example, Panel, Powers, canvas, menu, whole
from widgets.words import number, size

EXAMPLE = Example(typed="192", told="192 x 128 by 64, bf16")

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
    figure = canvas(height=300)
    left = figure.add_axes((0.085, 0.155, 0.435, 0.8))
    left.set(xscale="log", yscale="log", xlim=(14, 1200), ylim=(4, 1500))
    left.set_xlabel("side of a square tile with as many elements", fontsize=9)
    left.set_ylabel("FLOP per byte", fontsize=9)
    left.minorticks_off()
    left.set_xticks([16, 32, 64, 128, 256, 512, 1024], ["16", "32", "64", "128", "256", "512", "1,024"], fontsize=8)
    left.set_yticks([10, 100, 1000], ["10", "100", "1,000"], fontsize=8)
    left.spines[["top", "right"]].set_visible(False)
    sides = (16, 1024)
    (squares,) = left.plot([], [], color=BLUE, linewidth=2)  # these three change with dtype and GPU only
    (ridge_line,) = left.plot([], [], "--", color=RED, linewidth=1.5)
    (here,) = left.plot([], [], "o", color=ORANGE, markeredgecolor=BLACK, markersize=10, animated=True)
    ridge_text = left.text(15, 1, "", fontsize=8.5, va="bottom", color=RED)
    here_text = left.text(1, 1, "", fontsize=9, ha="left", va="top", animated=True)
    right = figure.add_axes((0.56, 0.155, 0.43, 0.8))
    right.set(xlim=(0, 1.85), ylim=(-0.6, 2.6), xticks=[0, 0.5, 1], yticks=[])
    right.set_xticklabels(["0", "half", "all there is"], fontsize=8)
    right.spines[["top", "right", "left"]].set_visible(False)
    right.axvline(1, color=BLACK, linewidth=1)
    bars = [
        right.barh(2 - i, 0, 0.4, color=colour, hatch=hatch, edgecolor="white", animated=True)[0]
        for i, (colour, hatch) in enumerate(((BLUE, ""), (GREEN, "//"), (ORANGE, "..")))
    ]
    colours = dict(zip(bars, (BLUE, GREEN, ORANGE)))
    names = [right.text(0.01, 2 - i + 0.24, "", fontsize=8.5, va="bottom") for i in range(3)]
    most = [right.text(1.37, 2 - i + 0.24, "", fontsize=8.5, va="bottom") for i in range(3)]
    texts = [right.text(1.35, 2 - i + 0.24, "", fontsize=8.5, ha="right", va="bottom", animated=True) for i in range(3)]
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
            ridge_text.set_y(ridge * 1.05)
            ridge_text.set_text(f"ridge of DRAM, {gpu}, {unit}: {number(ridge, digits=3)}")
            names[0].set_text("shared memory")
            names[1].set_text(f"{'tensor memory' if own_memory else 'all registers'}, sums")
            names[2].set_text("registers per thread, sums")
            for text, limit in zip(most, (f"{limits[0]:,} B", f"{REGISTERS:,}", f"{MOST_REGISTERS}")):
                text.set_text(f"of {limit}")
        side = (block_m * block_n) ** 0.5
        here.set_data([side], [intensity])
        here_text.set_position((side * 1.12, intensity / 1.1) if side < 300 else (side / 4, intensity / 1.6))
        here_text.set_text(number(intensity, digits=3))
        uses = (shared, block_m * block_n, 0 if own_memory else sums)
        for bar, text, used, limit in zip(bars, texts, uses, limits):
            bar.set_width(min(used / limit, 1.85))
            bar.set_facecolor(RED if used > limit else colours[bar])
            text.set_text(f"{used:,.0f}")

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
                f", the sums {number(sums)} registers of each of {threads} threads: at most {at_once} "
                f"program{'s' * (at_once != 1)} at once on a multiprocessor."
            )
        return said

    return Panel(
        "What a tile asks for",
        figure,
        {
            "block_m": Powers("BLOCK_M", 4, 10, 128),
            "block_n": Powers("BLOCK_N", 4, 10, 128),
            "block_k": menu("BLOCK_K", (16, 32, 64, 128, 256), 64),
            "stages": whole("stages", 1, 6, 3),
            "warps": menu("warps", (4, 8, 16), 8),
            "dtype": menu("dtype", DTYPES, "bf16"),
            "gpu": menu("GPU", GPUS, "H200"),
        },
        draw,
    ).set(block_m=block_m, block_n=block_n, block_k=block_k, stages=stages, warps=warps, dtype=dtype, gpu=gpu)
