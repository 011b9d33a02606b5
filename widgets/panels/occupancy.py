"""The occupancy panel: how many warps an SM holds, which resource says so, and how each would change it."""

from instruments.gpus import GPUS
from instruments.occupancy import MOST_REGISTERS, reserved
from instruments.occupancy import occupancy as of
from widgets.toolkit.panel import BLACK, BLUE, GREEN, ORANGE, Example, Panel, canvas, menu, whole

EXAMPLE = Example(entry="168", text="168 registers, 0 KiB, 4 warps")

WARPS = (1, 2, 4, 8, 16, 32)


def occupancy(registers: int = 64, shared: int = 0, warps: int = 4, gpu: str = "H200") -> Panel:
    """Resident warps per SM by registers, shared memory and warps of a program: three curves through the same point.

    Args:
        registers: Per thread.
        shared: KiB per program.
        warps: Per program, one of WARPS.
        gpu: One of GPUS.
    """
    figure = canvas(height=285)
    names = ("registers per thread", "KiB of shared memory per program", "warps per program")
    curves = {}
    for place, (name, colour, marker, ticks) in enumerate(
        zip(names, (BLUE, GREEN, ORANGE), "os^", ((32, 64, 128, 192, 255), (0, 50, 100, 150, 200), WARPS))
    ):
        axes = figure.add_axes((0.065 + 0.32 * place, 0.175, 0.285, 0.77))
        axes.set(ylim=(-2.5, 70), xlabel=name)
        axes.xaxis.label.set_size(9.5)
        if place == 2:
            axes.set(xscale="log", xlim=(0.8, 40))
            axes.minorticks_off()
        else:
            axes.set_xlim(((8, 263), (-8, 235))[place])
        axes.set_xticks(ticks, [str(tick) for tick in ticks], fontsize=9)
        axes.set_yticks([0, 16, 32, 48, 64], ["0", "16", "32", "48", "64"] if place == 0 else [""] * 5, fontsize=9)
        axes.grid(axis="y", color="#dddddd", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        if place == 0:
            axes.set_ylabel("resident warps per SM", fontsize=9.5)
        # Every whole number of registers and KiB, but of warps only these six: points, and nothing between them.
        look = {"marker": marker, "linestyle": "none"} if place == 2 else {"linewidth": 2, "drawstyle": "steps-mid"}
        (line,) = axes.plot([], [], color=colour, animated=True, **look)
        (here,) = axes.plot(
            [], [], marker, color=colour, markeredgecolor=BLACK, markersize=11, animated=True, clip_on=False
        )
        curves[name] = line, here
    nothing = axes.text(0, 5, "", fontsize=9, ha="right", va="bottom", animated=True)

    def draw(registers, shared, warps, gpu):
        device = GPUS[gpu]
        limits = of(registers, shared * 1024, warps, device)
        most = device.shared_per_sm - reserved(device.arch)
        sweeps = {
            names[0]: (range(16, MOST_REGISTERS + 1), registers, lambda r: of(r, shared * 1024, warps, device)),
            names[1]: (range(most // 1024 + 2), shared, lambda s: of(registers, s * 1024, warps, device)),
            names[2]: (WARPS, warps, lambda w: of(registers, shared * 1024, w, device)),
        }
        for name, (along, at, held) in sweeps.items():
            line, here = curves[name]
            line.set_data(list(along), [held(x).warps for x in along])
            here.set_data([at], [limits.warps])
        none = [count for count in WARPS if not of(registers, shared * 1024, count, device).programs]
        nothing.set(text="0: does not fit" * bool(none), x=1.15 * max(none, default=1))
        alt = f"{registers} registers, {shared} KiB, {warps} warp{'s' * (warps != 1)} per program on the {gpu}: "
        if not limits.programs:
            return alt + f"no program fits. The launch fails for lack of {limits.limiter}."
        why = "full" if limits.warps == limits.most else f"limited by {limits.limiter}"
        alt += (
            f"{limits.warps} of {limits.most} warps ({limits.share:.0%}), {why}. "
            f"{limits.programs} program{'s' * (limits.programs != 1)} per SM. Each resource alone would allow "
            + ", ".join(f"{name} {count}" for name, count in limits.limits.items())
            + "."
        )
        if limits.limiter == "registers" and limits.warps < limits.most:
            more = ((r, of(r, shared * 1024, warps, device).warps) for r in range(registers, 15, -1))
            fewer = next((pair for pair in more if pair[1] > limits.warps), None)
            alt += (
                " With {} registers it would be {} warps.".format(*fewer)
                if fewer
                else " Fewer registers would not help."
            )
        return alt

    return Panel(
        "Occupancy",
        figure,
        {
            "registers": whole("registers", 16, MOST_REGISTERS, 64),
            "shared": whole("shared, KiB", 0, 227, 0),
            "warps": menu("warps", WARPS, 4),
            "gpu": menu("GPU", GPUS, "H200"),
        },
        draw,
    ).set(registers=registers, shared=shared, warps=warps, gpu=gpu)
