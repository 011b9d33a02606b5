"""What num_stages does to a loop over tiles: which loads are in flight while a tile is added, over time."""

from matplotlib.patches import Rectangle

from widgets.toolkit.panel import BLACK, BLUE, ORANGE, WIDTH, Example, Panel, canvas, whole

EXAMPLE = Example(entry="4", text="3 loads are in flight", arguments={"stages": 3})

TILES, MOST = 8, 6
LOAD, ADD = 5, 1  # lengths, in units of one addition; a load from HBM takes several
_HEIGHT, _LEFT, _WIDE, _TOP, _LINE = 290, 66, 676, 30, 26


def schedule(stages: int) -> list[tuple[int, int]]:
    """When each tile's load and its addition begin. A loop of n stages has buffers for n - 1 tiles."""
    buffers, times = max(1, stages - 1), []
    for tile in range(TILES):
        load = times[tile - buffers][1] + ADD if tile >= buffers else 0
        added = times[tile - 1][1] + ADD if tile else 0
        times.append((load, max(load + LOAD, added)))
    return times


def stage_steps(stages: int = 1) -> Panel:
    """Eight tiles of one program, each loaded and then added, with a loop of 1 to MOST stages.

    Args:
        stages: As in tl.range(..., num_stages=stages).
    """
    figure = canvas(height=_HEIGHT)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(_HEIGHT, 0))
    axes.axis("off")
    unit = _WIDE / (schedule(1)[-1][1] + ADD)
    axes.text(_LEFT, 14, "load in flight", fontsize=9.5, va="center", color="#8a5f00", weight="bold")
    axes.text(_LEFT + 120, 14, "addition", fontsize=9.5, va="center", color=BLUE, weight="bold")
    for tile in range(TILES):
        axes.text(_LEFT - 8, _TOP + (tile + 0.5) * _LINE, f"tile {tile}", fontsize=9, ha="right", va="center")
    axes.annotate(
        "",
        (_LEFT + _WIDE, _TOP + TILES * _LINE + 12),
        (_LEFT, _TOP + TILES * _LINE + 12),
        arrowprops={"arrowstyle": "->"},
    )
    axes.text(_LEFT, _TOP + TILES * _LINE + 30, "time", fontsize=9, va="center")
    look = {"animated": True, "edgecolor": "white"}
    loads = [axes.add_patch(Rectangle((0, 0), 1, 1, facecolor=ORANGE, hatch="//", **look)) for _ in range(TILES)]
    adds = [axes.add_patch(Rectangle((0, 0), 1, 1, facecolor=BLUE, **look)) for _ in range(TILES)]
    (end,) = axes.plot([], [], "--", color=BLACK, linewidth=1.2, animated=True)
    words = axes.text(0, _TOP + TILES * _LINE + 30, "", fontsize=9, ha="right", va="center", animated=True)

    def draw(stages):
        times = schedule(stages)
        for tile, (load, add) in enumerate(times):
            y = _TOP + tile * _LINE + 4
            loads[tile].set_bounds(_LEFT + load * unit, y, LOAD * unit, _LINE - 8)
            adds[tile].set_bounds(_LEFT + add * unit, y, ADD * unit, _LINE - 8)
        last = times[-1][1] + ADD
        end.set_data([_LEFT + last * unit] * 2, [_TOP, _TOP + TILES * _LINE + 18])
        words.set(text=f"done after {last} units", x=max(_LEFT + 190, _LEFT + last * unit))
        flight = max(1, stages - 1)
        return (
            f"num_stages={stages}: {flight} load{'s are' if flight > 1 else ' is'} in flight, and eight tiles take "
            f"{last} units of time. A load takes {LOAD} units here and an addition {ADD}, which is for "
            "illustration, not measured."
        )

    return Panel("Stages of a loop", figure, {"stages": whole("stages", 1, MOST, 1)}, draw).set(stages=stages)
