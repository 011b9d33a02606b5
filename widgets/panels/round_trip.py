"""The round-trip panel: silu(gate) * up in two kernels and in one, access by access."""

from matplotlib.patches import FancyArrowPatch, Rectangle

from widgets.toolkit.panel import BLACK, GREEN, SKY, WIDTH, Example, Panel, canvas, whole

EXAMPLE = Example(entry="4", text="Step 4 of 7", arguments={"step": 2})

#: Each step: (kernel, what happens, tensor in HBM or None, whether it is written, what the registers hold afterwards).
UNFUSED = (
    (1, "kernel 1 reads gate", "gate", False, "gate"),
    (1, "kernel 1 computes silu", None, False, "silu(gate)"),
    (1, "kernel 1 writes silu, and ends", "silu", True, ""),
    (2, "kernel 2 reads silu", "silu", False, "silu(gate)"),
    (2, "kernel 2 reads up", "up", False, "silu(gate), up"),
    (2, "kernel 2 multiplies", None, False, "y"),
    (2, "kernel 2 writes y, and ends", "y", True, ""),
)
FUSED = (
    (1, "the kernel reads gate", "gate", False, "gate"),
    (1, "the kernel computes silu", None, False, "silu(gate)"),
    (1, "the kernel reads up", "up", False, "silu(gate), up"),
    (1, "the kernel multiplies", None, False, "y"),
    (1, "the kernel writes y, and ends", "y", True, ""),
)
LAST = len(UNFUSED)
_HALF, _TOP, _BOX, _CHIP = WIDTH / 2, 52, (70, 40), 186  # CSS pixels


def round_trip(step: int = LAST) -> Panel:
    """Where the data lie while silu(gate) * up is computed, unfused on the left and fused on the right.

    Args:
        step: the one to open at, 1 to 7; the last by default.
    """
    figure = canvas(height=312)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(312, 0))
    axes.axis("off")
    sides = [
        _Side(axes, 12, "unfused: two kernels", ("gate", "silu", "up", "y"), UNFUSED),
        _Side(axes, _HALF + 12, "fused: one kernel", ("gate", "up", "y"), FUSED),
    ]

    def draw(step):
        words = [side.show(step) for side in sides]
        passes = [sum(tensor is not None for *_, tensor, _, _ in way[:step]) for way in (UNFUSED, FUSED)]
        return (
            f"Step {step} of {LAST}: unfused, {words[0]}; fused, {words[1]}. Passes so far: {passes[0]} unfused, "
            f"{passes[1]} fused. Unfused, silu is written to HBM by one kernel and read back by the next, so gate, "
            f"silu (twice), up and y make five passes. Fused, silu stays in registers, and gate, up and y make three."
        )

    return Panel(
        "silu(gate) * up: a round trip to HBM, and none", figure, {"step": whole("step", 1, LAST, LAST)}, draw
    ).set(step=step)


class _Side:
    """HBM with its tensors above, the registers of an SM below, one access between them, and the passes so far."""

    def __init__(self, axes, left: float, title: str, tensors: tuple, steps: tuple):
        self.steps, wide = steps, _HALF - 24
        axes.text(left, 14, title, fontsize=10.5, weight="bold", va="center")
        axes.add_patch(Rectangle((left, 28), wide, 78, facecolor="#ececec", edgecolor="#999999"))
        axes.text(left + 6, 39, "HBM", fontsize=9, va="center", color="#444444")
        axes.add_patch(Rectangle((left, _CHIP), wide, 62, facecolor="#ececec", edgecolor="#999999"))
        axes.text(left + 6, _CHIP + 12, "registers of an SM", fontsize=9, va="center", color="#444444")
        gap = wide / len(tensors)
        self.middle = {name: left + gap * (at + 0.5) for at, name in enumerate(tensors)}
        self.boxes = {
            name: axes.add_patch(
                Rectangle((x - _BOX[0] / 2, _TOP + 4), *_BOX, facecolor="white", edgecolor=BLACK, animated=True)
            )
            for name, x in self.middle.items()
        }
        for name, x in self.middle.items():
            axes.text(x, _TOP + 4 + _BOX[1] / 2, name, fontsize=10, ha="center", va="center", zorder=5, animated=True)
        self.held = axes.text(left + wide / 2, _CHIP + 38, "", fontsize=10, ha="center", va="center", animated=True)
        self.action = axes.text(left + wide / 2, 146, "", fontsize=9.5, ha="center", va="center", animated=True)
        self.arrow = FancyArrowPatch((0, 0), (1, 1), arrowstyle="simple", mutation_scale=20, animated=True, linewidth=0)
        axes.add_patch(self.arrow)
        passes = [(tensor, written) for *_, tensor, written, _ in steps if tensor]
        self.passes = [
            axes.add_patch(Rectangle((left + at * 70, 266), 66, 30, edgecolor="#777777", animated=True))
            for at in range(len(passes))
        ]
        for at, (tensor, written) in enumerate(passes):
            verb = "write" if written else "read"
            look = {"fontsize": 8.5, "ha": "center", "va": "center", "zorder": 5, "animated": True}
            axes.text(left + at * 70 + 33, 281, f"{verb} {tensor}", **look)

    def show(self, step: int) -> str:
        """Draw what has happened after so many steps, and say the last of it."""
        done = self.steps[:step]
        over = step > len(self.steps)
        _, words, tensor, written, held = done[-1]
        written_already = {name for *_, name, wrote, _ in done if wrote} | {"gate", "up"}
        for name, box in self.boxes.items():
            box.set_facecolor("#cfe8f7" if name in written_already else "white")
            box.set_linestyle("-" if name in written_already else ":")
        self.arrow.set_visible(tensor is not None and not over)
        if tensor and not over:
            ends = [(self.middle[tensor], _TOP + 48), (self.middle[tensor], _CHIP - 2)]
            self.arrow.set_positions(*(reversed(ends) if written else ends))
            self.arrow.set_facecolor(GREEN if written else "#2a8fcf")
        middle = sum(self.middle.values()) / len(self.middle)
        near = self.middle[tensor] if tensor and not over else middle
        self.action.set_position((near + (86 if near < middle else -86 if near > middle else 0), 146))
        said = "done" if over else words
        self.action.set_text(said.replace(", and", "\nand"))
        self.held.set_text(held or "empty")
        count = sum(tensor is not None for *_, tensor, _, _ in done)
        kinds = [wrote for *_, tensor, wrote, _ in self.steps if tensor]
        for at, box in enumerate(self.passes):
            box.set_facecolor(("#8fd3bd" if kinds[at] else SKY) if at < count else "white")
        return said
