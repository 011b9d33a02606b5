"""Little's law as a timeline: the loads that one SM has in flight, and the bandwidth that they add up to."""

from matplotlib.patches import Rectangle

from instruments import results
from instruments.gpus import GPUS
from widgets.toolkit.panel import BLACK, BLUE, GREEN, SKY, WIDTH, Example, Panel, canvas, menu, whole

EXAMPLE = Example(entry="8", text="8 loads of 512 B, 4 KiB in flight per SM", arguments={"loads": 1})

MOST, SIZES, ROUNDS = 24, (256, 512, 1024, 2048), 3
_HEIGHT, _LEFT, _WIDE, _TOP, _TALL = 320, 74, 440, 40, 236
_BAR = 604  # left of the bandwidth bar


def needed(seconds: float, bytes_per_second: float) -> float:
    """Bytes in flight that a memory of this latency and bandwidth needs: Little's law."""
    return seconds * bytes_per_second


def in_flight(loads: int = 1, size: int = 512) -> Panel:
    """Loads from HBM that an SM of an H200 keeps in flight, each of `size` bytes, and the bandwidth of all SMs.

    Args:
        loads: In flight per SM at any time, 1 to MOST.
        size: Bytes per load, one of SIZES.
    """
    h200, sms = results.load("h200"), GPUS["H200"].sms
    wait, peak = h200.machine.latency[-1].ns, h200.copy_gbps
    figure = canvas(height=_HEIGHT)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(_HEIGHT, 0))
    axes.axis("off")
    axes.text(_LEFT, 20, "loads of one SM over time", fontsize=9.5, weight="bold", va="center")
    axes.text(_BAR - 44, 20, "all 132 SMs together", fontsize=9.5, weight="bold", va="center")
    for turn in range(ROUNDS + 1):
        x = _LEFT + turn * _WIDE / ROUNDS
        axes.plot([x, x], [_TOP, _TOP + _TALL], color="#cccccc", linewidth=1, zorder=0)
        axes.text(x, _TOP + _TALL + 14, f"{turn * wait:,.0f}", fontsize=9, ha="center", va="center")
    axes.text(_LEFT + _WIDE / 2, _TOP + _TALL + 34, "time, ns", fontsize=9, ha="center", va="center")
    moving = {"animated": True}
    look = {"edgecolor": "white", "linewidth": 2, **moving}
    bars = [
        [axes.add_patch(Rectangle((0, 0), 1, 1, facecolor=SKY, **look)) for _ in range(ROUNDS)] for _ in range(MOST)
    ]
    slots = axes.text(_LEFT - 8, _TOP + _TALL / 2, "", fontsize=9, ha="center", va="center", rotation=90, **moving)
    limit = _TOP + 26  # y of the copy bandwidth
    scale = (_TOP + _TALL - limit) / peak
    axes.plot([_BAR - 40, _BAR + 130], [limit, limit], "--", color=BLACK, linewidth=1.2)
    axes.text(_BAR - 40, limit - 11, f"copy bandwidth, {peak:,.0f} GB/s", fontsize=9, va="center")
    axes.plot([_BAR - 40, _BAR + 130], [_TOP + _TALL] * 2, color=BLACK, linewidth=1)
    speed = axes.add_patch(Rectangle((_BAR, 0), 60, 1, edgecolor="white", **moving))
    words = axes.text(_BAR + 30, 0, "", fontsize=10, ha="center", va="center", **moving)

    def draw(loads, size):
        tall = _TALL / loads
        for slot, row in enumerate(bars):
            for turn, bar in enumerate(row):
                start = (turn + slot / loads) * _WIDE / ROUNDS  # one load arrives every wait / loads
                bar.set_bounds(
                    _LEFT + start, _TOP + slot * tall + 1, min(_WIDE / ROUNDS, _WIDE - start), max(2, tall - 2)
                )
                bar.set_visible(slot < loads)
        slots.set_text(f"{loads} load{'s' * (loads > 1)} in flight")
        gbps = loads * size * sms / wait
        reached = min(gbps, peak)
        speed.set_bounds(_BAR, _TOP + _TALL - reached * scale, 60, reached * scale)
        speed.set_facecolor(GREEN if gbps >= peak else BLUE)
        words.set_text(f"{reached:,.0f} GB/s")
        words.set_position((_BAR + 30, _TOP + _TALL + 14))
        kib = loads * size / 1024
        start = f"{loads} load{'s' * (loads > 1)} of {size:,} B, {kib:g} KiB in flight per SM: "
        if gbps < peak:
            return start + f"at most {reached:,.0f} GB/s, {reached / peak:.0%} of copy bandwidth."
        return start + "enough for copy bandwidth. More loads would only wait longer."

    controls = {"loads": whole("loads", 1, MOST, 1), "size": menu("bytes per load", SIZES, 512)}
    return Panel("Loads in flight", figure, controls, draw).set(loads=loads, size=size)
