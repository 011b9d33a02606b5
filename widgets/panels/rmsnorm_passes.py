"""The panel of passes over x: what RMSNorm moves between HBM and the chip, kernel by kernel, step by step."""

from matplotlib.patches import Rectangle

from instruments.gpus import DTYPES
from instruments.traffic import Traffic
from kernels.norms.models import FORMS, ONCE, SIX, TWICE, rmsnorm_steps
from widgets.toolkit.panel import BLACK, BLUE, ORANGE, Example, Panel, canvas, menu, whole
from widgets.toolkit.words import size

EXAMPLE = Example(entry="5", text="Step 5 of 6, kernel 5 of 6, x * scale", arguments={"step": 3})

#: Where a tensor's box lies in HBM, from the left, and how wide and high it is drawn.
BOXES = {
    "x": (0.2, 1.3, 1.0),
    "weight": (1.85, 1.3, 0.12),
    "squares": (3.45, 1.3, 1.0),
    "mean": (5.2, 0.12, 1.0),
    "shifted": (5.93, 0.12, 1.0),
    "scale": (6.66, 0.12, 1.0),
    "normed": (7.2, 1.3, 1.0),
    "y": (8.8, 1.3, 1.0),
}
_READ, _WRITTEN, _PAST = BLUE, "#B85C00", "#c9c9c9"
_CHIP = 2.2, 3.5  # bottom and top of the chip, above HBM


def rmsnorm_passes(
    form: str = SIX, step: int | None = None, rows: int = 8192, cols: int = 8192, dtype: str = "bf16"
) -> Panel:
    """RMSNorm of [rows, cols] in six kernels or in one: each step's reads and writes, and the passes so far.

    Args:
        form: One of FORMS.
        step: The one to open at, from 1; the last by default.
        rows: From 1.
        cols: From 1.
        dtype: One of DTYPES.
    """
    for name, value in (("rows", rows), ("cols", cols)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}: got {value!r}, expected a whole number from 1 on")
    if dtype not in DTYPES:
        raise ValueError(f"dtype: got {dtype!r}, expected one of {', '.join(DTYPES)}")
    all_steps = {name: rmsnorm_steps(name, rows, cols, DTYPES[dtype]) for name in FORMS}
    full = rows * cols * DTYPES[dtype].itemsize
    picture = _Picture(full)
    controls = {"step": whole("step", 1, 6, 6), "form": menu("form", FORMS, SIX)}

    def limit(_change=None):  # before the panel hears of the change: observers are called in their order
        controls["step"].max = len(all_steps[controls["form"].value])

    controls["form"].observe(limit, names="value")

    def draw(step, form):
        step = min(step, len(all_steps[form]))
        done = all_steps[form][:step]
        picture.show(form, all_steps[form], step)
        now, last = done[-1], all_steps[form][-1]
        kernels = f"kernel {now.kernel} of {last.kernel}" if last.kernel > 1 else "the only kernel"
        total = sum((s.work for s in all_steps[form]), Traffic())
        so_far = sum((s.work for s in done), Traffic())
        alt = f"Step {step} of {len(all_steps[form])}, {kernels}, {now.name}: "
        alt += " and ".join(
            f"{verb} {', '.join(carried)}"
            for verb, carried in (("reads", now.work.read), ("writes", now.work.written))
            if carried
        )
        if form == ONCE:
            alt += "; the row stays in registers" if step == 1 else ", with the row from registers"
        return alt + (
            f". {form[0].upper()}{form[1:]}: "
            f"so far {_times(so_far.bytes / full)} of {_times(total.bytes / full)} passes, "
            f"{size(so_far.bytes)} of {size(total.bytes)}, for {rows:,} x {cols:,} {dtype}."
        )

    panel = Panel("From HBM to the chip and back", picture.figure, controls, draw).set(form=form)
    last = controls["step"].max
    if step is not None and not (isinstance(step, int) and 1 <= step <= last):
        raise ValueError(f"step: got {step!r}, expected a whole number from 1 to {last}")
    return panel.set(step=last if step is None else step)


def _times(passes: float) -> str:
    return f"{passes:.2f}".removesuffix(".00")


class _Picture:
    """HBM below, with a box per tensor; the chip above; arrows between them; and a pile of the passes so far."""

    def __init__(self, full: int):
        self.full = full
        self.figure = canvas(height=290)
        axes = self.figure.add_axes((0.005, 0.01, 0.8, 0.98))
        axes.set(xlim=(0, 10.3), ylim=(-0.5, 3.55))
        axes.axis("off")
        for bottom, top, colour, name in ((-0.45, 1.35, "#eeeeee", "HBM"), (*_CHIP, "#e3f1fa", "on the chip")):
            axes.add_patch(Rectangle((0.02, bottom), 10.25, top - bottom, facecolor=colour, edgecolor="none"))
            axes.text(0.12, top - 0.06, name, fontsize=9.5, weight="bold", va="top")
        self.boxes = {}
        for name, (left, wide, high) in BOXES.items():
            patch = Rectangle((left, 0), wide, high, facecolor="white", edgecolor=BLACK, linewidth=1, animated=True)
            axes.add_patch(patch)
            label = axes.text(left + wide / 2, -0.12, name, fontsize=9, ha="center", va="top")  # changes with the form
            self.boxes[name] = patch, label
        middle = 5.1
        self.title = axes.text(middle, _CHIP[1] - 0.1, "", fontsize=9.5, ha="center", va="top", animated=True)
        self.inside = axes.text(middle, 2.97, "", fontsize=13, weight="bold", ha="center", va="center", animated=True)
        self.note = axes.text(middle, 2.58, "", fontsize=9, ha="center", va="center", animated=True)
        self.arrows = {}
        for name, (left, wide, _) in BOXES.items():
            for kind, shift in (("read", -0.2), ("written", 0.2)):
                at = left + wide / 2 + shift * (1 if wide > 1 else 0.5)
                ends = (1.42, _CHIP[0] + 0.08) if kind == "read" else (_CHIP[0] + 0.08, 1.18)
                (arrow,) = axes.plot(
                    [at, at], ends, marker="^" if kind == "read" else "v", markevery=[1], animated=True
                )  # faster to draw than an arrow proper
                self.arrows[name, kind] = arrow
        pile = self.figure.add_axes((0.84, 0.06, 0.15, 0.81))
        pile.set(xlim=(0, 1), ylim=(0, 7.2), xticks=[])
        pile.set_yticks(range(8), [str(n) for n in range(8)], fontsize=8)
        pile.spines[["top", "right", "bottom"]].set_visible(False)
        self.figure.text(0.815, 0.955, "passes so far", fontsize=9.5, weight="bold", va="center")
        self.figure.text(0.815, 0.91, "read", fontsize=9, color=_READ, va="center")
        self.figure.text(0.865, 0.91, "written", fontsize=9, color=_WRITTEN, va="center")
        self.pile = [
            (
                pile.add_patch(
                    Rectangle((0.08, 0), 0.42, 0, facecolor=colour, edgecolor="white", hatch=hatch, animated=True)
                ),
                pile.text(0.56, 0, "", fontsize=9, va="center", animated=True),
            )
            for _ in range(6)
            for colour, hatch in ((_READ, ""), (ORANGE, "//"))
        ]

    def show(self, form: str, steps: list, at: int):
        here = steps[at - 1]
        tensors = {name for step in steps for name in (*step.work.read, *step.work.written)}
        written = {name for step in steps[:at] for name in step.work.written}
        for name, (patch, label) in self.boxes.items():
            there = name in tensors
            patch.set_visible(there)
            if label.get_visible() != there:
                label.set_visible(there)
            holds = name in ("x", "weight") or name in written
            patch.set_facecolor("#9fcbe8" if holds else "white")
            patch.set_linestyle("-" if holds else ":")
        carried = {"read": here.work.read, "written": here.work.written}
        for (name, kind), arrow in self.arrows.items():
            now = name in carried[kind]
            before = any(name in (s.work.read if kind == "read" else s.work.written) for s in steps[: at - 1])
            arrow.set_visible(now or before)
            arrow.set_color((_READ if kind == "read" else _WRITTEN) if now else _PAST)
            large = carried[kind].get(name, self.full) > self.full / 2
            arrow.set_linewidth(3.5 if large and now else 1.5)
            arrow.set_markersize(11 if large and now else 7)
        self.title.set_text(f"step {at} of {len(steps)}, kernel {here.kernel} of {steps[-1].kernel}")
        self.inside.set_text(here.name)
        self.note.set_text(
            ("the row stays in registers" if at == 1 else "the row is still here: x is not read again")
            if form == ONCE
            else "the scale stays in a register; the row is read again" * (at == 2)
            if form == TWICE
            else "the result goes back to HBM, for the next kernel to read" * (at < len(steps))
        )
        bottom = 0.0
        pieces = iter(self.pile)
        for step in steps:
            for carried in (step.work.read, step.work.written):
                bar, text = next(pieces)
                high = sum(carried.values()) / self.full if steps.index(step) < at else 0
                bar.set_y(bottom)
                bar.set_height(high)
                text.set_y(bottom + high / 2)
                text.set_text(max(carried, key=carried.get) if high > 0.5 else "")
                bottom += high
        for bar, text in pieces:
            bar.set_height(0)
            text.set_text("")
