"""The panel of softmax's passes: how often each form of it reads and writes x, and where that has to fit."""

from matplotlib.patches import Rectangle

from instruments.gpus import GPUS
from instruments.occupancy import REGISTERS
from instruments.traffic import Traffic
from kernels.softmax.models import PASSES, RESIDENT_ROW, UNFUSED, rows_in_flight, softmax_passes_traffic
from kernels.softmax.online import streaming_layout
from widgets.toolkit.panel import BLACK, BLUE, INK_RED, ORANGE, RED, Example, Panel, Powers, canvas, menu
from widgets.toolkit.words import number, size, time

EXAMPLE = Example(entry="131072", text="512 x 131,072 bf16")

ITEMSIZE = 2  # of bf16
ELEMENTS = 1 << 26  # of x, whatever its width: 134 MB in bf16
REGISTER_BYTES = 4 * REGISTERS  # of an SM
LEAST = 0.001  # share at which the axis begins


def softmax_passes(cols: int = 8192, form: str = RESIDENT_ROW, gpu: str = "H200") -> Panel:
    """Passes over x of four forms of softmax, for 134 MB of bf16, and what each form keeps on chip.

    Args:
        cols: 128 to 262,144.
        form: One of PASSES.
        gpu: Whose registers, L2 and bandwidth.
    """
    picture = _Picture()

    def draw(cols, form, gpu):
        cols = round(cols)
        rows, device, full = max(1, ELEMENTS // cols), GPUS[gpu], max(1, ELEMENTS // cols) * cols * ITEMSIZE
        moved = {name: softmax_passes_traffic(name, rows, cols) for name in PASSES}
        block = streaming_layout(cols, ITEMSIZE)["config"]["BLOCK"]
        working = rows_in_flight(rows, cols, gpu)
        on_chip = {UNFUSED: 0, RESIDENT_ROW: cols * 4}.get(form, min(cols, block) * 4)
        again = {UNFUSED: full, RESIDENT_ROW: 0}.get(form, working * cols * ITEMSIZE)
        picture.show(form, moved, on_chip / REGISTER_BYTES, again / device.l2)
        alt = f"{rows:,} x {cols:,} bf16, {form}: "
        if form == RESIDENT_ROW:
            alt += "the row is too wide. " if moved[form] is None else _moved(moved[form], full, gpu)
            share = _share(on_chip / REGISTER_BYTES)
            alt += f"A row is {number(on_chip / 1024)} KiB in fp32, {share} of an SM's registers"
            return alt + (", which no kernel here can hold." if moved[form] is None else "; nothing is read again.")
        alt += _moved(moved[form], full, gpu)
        between = "kernels the tensor waits" if form == UNFUSED else f"reads {working:,} rows are in flight"
        holds = "which L2 can hold" if again <= device.l2 else f"of which L2 can hold at most {device.l2 / again:.0%}"
        return alt + f"Between two {between}, {size(again)}, {holds}."

    controls = {
        "cols": Powers("columns", 7, 18, 8192),
        "form": menu("form", PASSES, RESIDENT_ROW),
        "gpu": menu("GPU", GPUS, "H200"),
    }
    return Panel("How often softmax goes over x", picture.figure, controls, draw).set(cols=cols, form=form, gpu=gpu)


def _moved(work: Traffic, full: int, gpu: str) -> str:
    least = f"at least {time(work.memory_seconds(GPUS[gpu]))} on the {gpu}"
    return f"{number(work.bytes / full, digits=3)} times |x|, {size(work.bytes)}, {least}. "


class _Picture:
    """Left: a line of boxes for each form, one for each pass. Right: what the chosen form keeps, as shares."""

    def __init__(self):
        self.figure = canvas(height=270)
        left = self.figure.add_axes((0.2, 0.15, 0.47, 0.72))
        left.set(xlim=(0, 9.9), ylim=(3.6, -0.55))
        left.set_yticks(range(4), list(PASSES), fontsize=9)
        left.set_xticks(range(0, 9, 2), [f"{n} |x|" for n in range(0, 9, 2)], fontsize=8.5)
        left.spines[["top", "right", "left"]].set_visible(False)
        left.tick_params(left=False)
        self.boxes, self.words, self.sizes = {}, {form: [] for form in PASSES}, {}
        for line, (form, passes) in enumerate(PASSES.items()):
            self.boxes[form] = [
                left.add_patch(Rectangle((at, line - 0.32), 0.96, 0.64, edgecolor="#555555", animated=True))
                for at in range(len(passes))
            ]
            for at, words in enumerate(passes):
                style = {"fontsize": 8.5, "ha": "center", "va": "center", "animated": True, "zorder": 3}
                self.words[form].append(left.text(at + 0.48, line, words.removeprefix("-"), **style))
            self.sizes[form] = left.text(len(passes) + 0.15, line, "", fontsize=8.5, va="center", animated=True)
        self.figure.text(0.2, 0.92, "passes over x: filled reads, hollow writes", fontsize=9.5, weight="bold")
        right = self.figure.add_axes((0.72, 0.15, 0.265, 0.72))
        right.set(xscale="log", xlim=(LEAST, 100), ylim=(-0.6, 1.75), yticks=[])
        right.minorticks_off()
        right.set_xticks([0.01, 0.1, 1, 10], ["1%", "10%", "all", "× 10"], fontsize=8.5)
        right.spines[["top", "right", "left"]].set_visible(False)
        self.figure.text(0.72, 0.92, "what has to fit, as a share", fontsize=9.5, weight="bold")
        right.vlines([1, 1], [0.72, -0.28], [1.24, 0.24], color=BLACK, linewidth=2, zorder=3, animated=True)
        self.points = [
            right.plot([], [], marker, markersize=9, markeredgecolor=BLACK, zorder=4, animated=True)[0]
            for marker in ("o", "s")  # points and no bars: the axis is logarithmic
        ]
        self.names = [right.text(LEAST, 1 - at + 0.3, "", fontsize=8.5, va="bottom", animated=True) for at in range(2)]

    def show(self, form: str, moved: dict, registers: float, l2: float):
        for name, passes in PASSES.items():
            fits, chosen = moved[name] is not None, name == form
            filled, edge = (BLUE if chosen else "#bfdcf0"), (BLACK if chosen else "#777777")
            for words, patch, text in zip(passes, self.boxes[name], self.words[name]):
                reads = fits and not words.startswith("-")
                patch.set(facecolor=filled if reads else "white", edgecolor=edge, linestyle="-" if fits else ":")
                text.set_color("white" if reads and chosen else BLACK)
            alt = self.sizes[name]
            alt.set_text(size(moved[name].bytes) if fits else "row too wide")
            alt.set(color=BLACK if fits else INK_RED, weight="bold" if chosen else "normal")
        what = {UNFUSED: "nothing stays in registers", RESIDENT_ROW: f"a row in an SM's registers: {_share(registers)}"}
        self.names[0].set_text(what.get(form, f"a tile in an SM's registers: {_share(registers)}"))
        what = {UNFUSED: f"the tensor in L2: {_share(l2)}", RESIDENT_ROW: "nothing is read again"}
        self.names[1].set_text(what.get(form, f"rows in flight in L2: {_share(l2)}"))
        for at, (point, share, colour) in enumerate(zip(self.points, (registers, l2), (BLUE, ORANGE))):
            point.set_data(*(([max(share, LEAST)], [1 - at]) if share else ([], [])))
            point.set_markerfacecolor(RED if share >= 1 else colour)


def _share(part: float) -> str:
    return f"{number(100 * part, digits=3)}%"
