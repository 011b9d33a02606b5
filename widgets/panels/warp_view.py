"""One warp's view of a tile: which elements its threads hold, and how their partial sums become sums of rows."""

from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch, Rectangle

from widgets.panels.launch_steps import WARP_COLOURS
from widgets.toolkit.panel import BLACK, WIDTH, Example, Panel, canvas, menu, whole

EXAMPLE = Example(entry="5", text="the threads 4 apart exchange their sums", arguments={"step": 1})

ROWS, COLS, WARPS, LANES = 16, 128, 4, 32
PER_THREAD = 8  # elements of one 16-byte load
ACROSS = COLS // PER_THREAD  # threads per row
LOADS = ROWS * COLS // (WARPS * LANES * PER_THREAD)
DISTANCES = (8, 4, 2, 1)  # of the shuffles
STEPS = LOADS + 1 + len(DISTANCES) + 1
_GREY, _HEIGHT = "#e4e4e4", 300
_LEFT, _TOP, _CELL, _LINE = 36, 40, 16, 14  # of the tile, in CSS pixels
_LANES, _LANE = 336, 26  # of the threads


def rows_of(warp: int, load: int) -> tuple[int, int]:
    """The two rows of a tile that a warp loads with its load of this number, from 0."""
    first = load * WARPS * 2 + warp * 2
    return first, first + 1


def warp_view(step: int = 1, warp: int = 0) -> Panel:
    """A tile of 16 x 128 in bf16 that four warps sum along its rows, as the compiler spreads it over their threads.

    Args:
        step: 1 to STEPS: the loads, the additions in each thread, four shuffles, the store.
        warp: 0 to 3.
    """
    if not isinstance(step, int) or not 1 <= step <= STEPS:
        raise ValueError(f"step: got {step!r}, expected a whole number from 1 to {STEPS}")
    figure = canvas(height=_HEIGHT)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(_HEIGHT, 0))
    axes.axis("off")
    axes.text(_LEFT, 18, "the tile, 16 rows of 128 elements", fontsize=9.5, weight="bold", va="center")
    axes.text(_LEFT, _TOP + ROWS * _LINE + 14, "a box: 8 elements of a row", fontsize=9, va="center")
    axes.text(_LANES, 18, "the 32 threads of this warp", fontsize=9.5, weight="bold", va="center")
    moving = {"animated": True}
    places = [(_LEFT + col * _CELL, _TOP + row * _LINE) for row in range(ROWS) for col in range(ACROSS)]
    tile = PatchCollection([Rectangle(place, _CELL, _LINE) for place in places], edgecolor="white", **moving)
    axes.add_collection(tile, autolim=False)
    for row in range(0, ROWS, 2):
        axes.text(_LEFT - 6, _TOP + (row + 0.5) * _LINE, f"{row}", fontsize=8.5, ha="right", va="center")
    lanes, counts, names = [], [], []
    for lane in range(LANES):
        x, y = _LANES + lane % ACROSS * _LANE, 84 + lane // ACROSS * 92
        lanes.append(axes.add_patch(Rectangle((x, y), _LANE - 2, 30, edgecolor="#555555", linewidth=0.8, **moving)))
        counts.append(axes.text(x + 12, y + 15, "", fontsize=8, ha="center", va="center", **moving))
        axes.text(x + 12, y + 39, f"{lane}", fontsize=8, ha="center", va="center", color="#555555")
    for half in range(2):
        names.append(axes.text(_LANES, 52 + half * 92, "", fontsize=9, va="center", **moving))
    legend = axes.text(_LANES, 234, "", fontsize=9, va="center", animated=True)
    axes.text(_LANES, 251, "below a box: the thread's lane, 0 to 31", fontsize=9, va="center", color="#555555")
    arcs = {
        distance: [
            axes.add_patch(
                FancyArrowPatch(
                    (_LANES + lane % ACROSS * _LANE + 12, 83 + lane // ACROSS * 92),
                    (_LANES + (lane % ACROSS + distance) * _LANE + 12, 83 + lane // ACROSS * 92),
                    arrowstyle="<->",
                    connectionstyle=f"arc3,rad=-{0.16 if distance > 1 else 0.5}",
                    mutation_scale=7,
                    color="#8a5f00",
                    linewidth=1,
                    **moving,
                )
            )
            for lane in range(LANES)
            if not lane % ACROSS & distance
        ]
        for distance in DISTANCES
    }

    def draw(step, warp):
        loads = min(step, LOADS)
        shuffles = min(max(0, step - LOADS - 1), len(DISTANCES))
        own = WARP_COLOURS[warp]
        pale = tuple((part + 1) / 2 for part in to_rgb(own))  # of the load that is not drawn on the right
        shown = (loads - 1) if step <= LOADS else 0  # of which load the threads are drawn
        mine = {row: load for load in range(loads) for row in rows_of(warp, load)}
        rows = [_GREY if row not in mine else own if mine[row] == shown else pale for row in range(ROWS)]
        tile.set_facecolor([colour for colour in rows for _ in range(ACROSS)])
        held = PER_THREAD << shuffles
        for lane, (box, count) in enumerate(zip(lanes, counts)):
            ends = step == STEPS and lane % ACROSS == 0
            box.set_facecolor(BLACK if ends else pale)
            count.set(text=f"{held}", color="white" if ends else "black")
        legend.set_text(
            "in a box: elements of the row that this thread " + ("has loaded" if step <= LOADS else "has in its sum")
        )
        for half, name in enumerate(names):
            name.set_text(f"row {rows_of(warp, shown)[half]}")
        for distance, arrows in arcs.items():
            for arrow in arrows:
                arrow.set_visible(LOADS + 1 < step < STEPS and distance == DISTANCES[shuffles - 1])
        return _sentence(step, warp, shown, shuffles)

    controls = {"step": whole("step", 1, STEPS, 1), "warp": menu("warp", range(WARPS), 0)}
    return Panel("One warp sums its rows", figure, controls, draw).set(step=step, warp=warp)


def _sentence(step: int, warp: int, shown: int, shuffles: int) -> str:
    first, second = rows_of(warp, shown)
    start = f"Step {step}, warp {warp}: "
    if step <= LOADS:
        return start + f"load {shown + 1} of {LOADS} brings rows {first} and {second}, 8 elements to each thread."
    if not shuffles:
        return (
            start + "each thread adds its own 8 elements of a row, in registers. It does so for both loads; "
            f"rows {first} and {second} are drawn."
        )
    if step < STEPS:
        distance = DISTANCES[shuffles - 1]
        return (
            start + f"shuffle {shuffles}: the threads {distance} apart exchange their sums, and each adds what it "
            f"receives. A thread's sum now holds {PER_THREAD << shuffles} of 128 elements."
        )
    return (
        start + f"all 16 threads of a row hold its sum, and one of them stores it. Rows {first} and {second} are done, "
        f"and so are rows {rows_of(warp, 1)[0]} and {rows_of(warp, 1)[1]}."
    )
