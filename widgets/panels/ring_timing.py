"""The panel of a ring against latency: how many slots keep the tensor cores busy."""

from instruments.mbarriers import TENSOR_CORES, TMA, Timing, simulate
from kernels.matmul.models import specialized
from widgets.drawings.hopper import LOOKS, key
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, Example, Panel, canvas, real, whole

EXAMPLE = Example(entry="5", text="5 slots", arguments={"slots": 3})

STEPS, TILES, MOST = 6, 2, 6  # items of a tile, tiles, slots at most
INTERVAL = 0.6  # between the ends of two copies


def ring_timing(slots: int = 2, latency: float = 2.5, store: float = 2.0) -> Panel:
    """Two tiles of six items each: copies, matmuls and epilogues over time, in units of one item's matmul.

    Args:
        slots: Slots of the ring, 2 to 6.
        latency: Of a copy.
        store: Length of the epilogue.
    """
    figure = canvas(height=276)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 760), ylim=(276, 0))
    axes.axis("off")
    left, wide = 104, 640
    rows = {**{(TMA, at): 12 + 22 * at for at in range(MOST)}, TENSOR_CORES: 150, "consumer": 178, "producer": 206}
    for name, y in (("TMA, copies", 20), ("tensor cores", 161), ("consumer", 189), ("producer", 217)):
        axes.text(left - 8, y, name, fontsize=9.5, ha="right", va="center")
    boxes = {
        kind: Boxes(axes, colour, edgecolor=BLACK, linewidth=0.5, hatch=hatch, zorder=2)
        for kind, (colour, hatch) in LOOKS.items()
    }
    key(axes, left, 246)
    said = axes.text(left + wide, 253, "", fontsize=9.5, ha="right", va="center", animated=True)

    def draw(slots, latency, store):
        run = simulate(specialized(STEPS, slots, TILES), slots, timing=Timing(latency, INTERVAL, store))
        end = max(run.time, 16.0)
        places: dict = {kind: [] for kind in boxes}
        lanes: list = []
        for span in run.spans:
            row = span.actor
            if span.actor == TMA:
                lane = next((at for at, until in enumerate(lanes) if until <= span.start + 1e-9), len(lanes))
                lanes[lane : lane + 1] = [span.end]
                row = TMA, lane
            scale = wide / end
            places[span.kind].append((left + span.start * scale, rows[row], (span.end - span.start) * scale, 18))
        for kind, each in places.items():
            boxes[kind].place(*zip(*each)) if each else boxes[kind].place([], [], [], [])
        busy = run.busy(TENSOR_CORES)
        said.set_text(f"tensor cores busy {busy:.0%} of {run.time:.1f} units")
        return (
            f"With {slots} slots and a latency of {latency:.1f}, {TILES * STEPS} items take {run.time:.1f} units. The "
            f"tensor cores are busy in {busy:.0%} of them; each epilogue takes {store:.1f}. One unit is the matmul "
            "of one item."
        )

    controls = {
        "slots": whole("slots", 2, MOST, 2),
        "latency": real("latency", 0.5, 6.0, 2.5, 0.5),
        "store": real("epilogue", 0.0, 4.0, 2.0, 0.5),
    }
    panel = Panel("Slots against latency", figure, controls, draw)
    return panel.set(slots=slots, latency=latency, store=store)
