"""The panel of a ring of slots: a producer and a consumer meet at mbarriers, one instruction at a time."""

from instruments.mbarriers import TENSOR_CORES, TMA, simulate
from kernels.matmul.models import specialized
from widgets.toolkit.boxes import Boxes
from widgets.toolkit.panel import BLACK, ORANGE, RED, SKY, Example, Panel, canvas, menu, whole

EXAMPLE = Example(entry="20", text="Step 20 of")

ITEMS, MOST = 6, 4  # items that are multiplied, slots at most
_GREY = "#555555"
_LEFT, _WIDE, _GAP = 112, 148, 12  # of a slot, CSS pixels
_WORDS = {
    "wait full": "waits until the copy into slot {} is complete",
    "wait free": "waits until slot {} is free",
    "expect full": "announces the bytes for slot {} and arrives",
    "arrive free": "arrives: slot {} is free",
    "copy": "starts a copy of item {1} into slot {0}",
    "multiply": "queues the matmul of item {1} from slot {0}",
    "finish": "waits until at most {} matmul is queued or running",
    "store": "stores its tile",
}


def ring_steps(step: int = 14, slots: int = 3) -> Panel:
    """A producer and a consumer over six items: what lies in each slot, and the phases of its barriers.

    Args:
        step: Instructions and events so far.
        slots: Slots of the ring, 2 to 4.
    """
    runs = {count: simulate(specialized(ITEMS, count), count) for count in (2, 3, MOST)}
    figure = canvas(height=330)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 760), ylim=(330, 0))
    axes.axis("off")
    look = {"fontsize": 9.5, "va": "center", "animated": True}
    actors = {"producer": 30, "consumer": 62, TMA: 94, TENSOR_CORES: 126}
    for name, y in actors.items():
        axes.text(_LEFT - 10, y, name, fontsize=9.5, ha="right", va="center", weight="bold")
    doing = {name: axes.text(_LEFT + 6, y, "", **look) for name, y in actors.items()}
    now = Boxes(axes, "#fff3cd", zorder=1, edgecolor=BLACK, linewidth=0.8)
    idle = Boxes(axes, "white", zorder=2, edgecolor=BLACK, linewidth=1.2)
    coming = Boxes(axes, "#cfe6f5", zorder=2, edgecolor=BLACK, linewidth=1.2, hatch="..")
    there = Boxes(axes, SKY, zorder=2, edgecolor=BLACK, linewidth=1.2)
    reading = Boxes(axes, ORANGE, zorder=2, edgecolor=BLACK, linewidth=1.2)
    phase_0 = Boxes(axes, "#cfe6f5", zorder=2, edgecolor=_GREY, linewidth=0.8)
    phase_1 = Boxes(axes, "white", zorder=2, edgecolor=_GREY, linewidth=0.8)
    waited = Boxes(axes, "none", zorder=4, edgecolor=RED, linewidth=2.6)
    for y, name in ((190, "slot"), (252, "full"), (290, "free")):
        axes.text(_LEFT - 10, y, name, fontsize=9.5, ha="right", va="center", weight="bold")
    middle = [_LEFT + at * (_WIDE + _GAP) + _WIDE / 2 for at in range(MOST)]
    patch = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    numbers = [axes.text(x, 155, "", ha="center", zorder=5, **look) for x in middle]
    items = [axes.text(x, 190, "", ha="center", zorder=5, bbox=patch, **look) for x in middle]
    barriers = {
        "full": [axes.text(x, 252, "", ha="center", zorder=5, **look) for x in middle],
        "free": [axes.text(x, 290, "", ha="center", zorder=5, **look) for x in middle],
    }
    controls = {"step": whole("step", 1, len(runs[3].snapshots), 1), "slots": menu("slots", tuple(runs), 3)}

    def limit(_change=None):  # before the panel hears of the change: observers are called in their order
        controls["step"].max = len(runs[controls["slots"].value].snapshots)

    controls["slots"].observe(limit, names="value")

    def draw(step, slots):
        snapshots = runs[slots].snapshots
        step = min(step, len(snapshots))
        snap = snapshots[step - 1]
        lefts = [x - _WIDE / 2 for x in middle]
        kinds: dict = {box: [] for box in (idle, coming, there, reading, phase_0, phase_1, waited)}
        for at in range(MOST):
            numbers[at].set_text(f"slot {at}" if at < slots else "")
            if at >= slots:
                for text in (items[at], barriers["full"][at], barriers["free"][at]):
                    text.set_text("")
                continue
            item, arriving, readers = snap.slots[at]
            kind = reading if readers else coming if arriving is not None else idle if item is None else there
            kinds[kind].append((lefts[at], 168, _WIDE, 44))
            words = f"item {item}" if item is not None else "empty"
            words += ", in wgmma" * bool(readers)
            items[at].set_text(f"item {arriving} arrives" if arriving is not None else words)
            for name, y, row in (("full", 238, snap.full), ("free", 276, snap.free)):
                phase, arrived, copies = row[at]
                kinds[phase_1 if phase else phase_0].append((lefts[at], y, _WIDE, 28))
                barriers[name][at].set_text(f"phase {phase}" + ", expecting" * bool(copies))
                if any(words.startswith(f"wait {name} {at} ") for words in snap.waits.values()):
                    kinds[waited].append((lefts[at] - 3, y - 3, _WIDE + 6, 34))
        for box, places in kinds.items():
            box.place(*zip(*places)) if places else box.place([], [], [], [])
        now.place(_LEFT, actors[snap.actor] - 14, 636, 28)
        for name, text in doing.items():
            text.set_text(_said(snap, name))
        told = f"{snap.actor} {_plain(snap.words)}" if snap.actor in ("producer", "consumer") else snap.words
        waits = " and ".join(f"the {role} {_plain(words)}" for role, words in snap.waits.items() if role != snap.actor)
        return (
            f"Step {step} of {len(snapshots)}, time {snap.time:.1f}: {told}. "
            + (f"Meanwhile {waits}. " if waits else "")
            + "Slots hold "
            + ", ".join("nothing" if s[0] is None else f"item {s[0]}" for s in snap.slots)
            + "."
        )

    return Panel("A ring of slots, one instruction at a time", figure, controls, draw).set(slots=slots).set(step=step)


def _plain(words: str) -> str:
    """An instruction in plain words."""
    first, *rest = words.split()
    name = f"{first} {rest.pop(0)}" if first in ("wait", "expect", "arrive") else first
    return _WORDS[name].format(*rest)


def _said(snap, name: str) -> str:
    """What stands beside an actor."""
    if name == snap.actor:
        return snap.words if name in (TMA, TENSOR_CORES) else f"{snap.words}:  {_plain(snap.words)}"
    if name in snap.waits:
        return f"{snap.waits[name]}:  {_plain(snap.waits[name])}"
    if name == TMA:
        arriving = [str(s[1]) for s in snap.slots if s[1] is not None]
        return f"copies item {', '.join(arriving)}" if arriving else ""
    if name == TENSOR_CORES:
        running = [s[0] for s in snap.slots if s[2]]
        return f"multiply item {min(running)}" if running else "idle"
    return ""
