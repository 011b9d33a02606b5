"""The panel of the five matmuls of attention's backward: what each reads and writes, on one tile of the weights."""

from matplotlib.patches import Rectangle

from widgets.toolkit.panel import BLACK, BLUE, ORANGE, SKY, WIDTH, Example, Panel, canvas, menu, whole

EXAMPLE = Example(entry="3", text="Matmul 3 of 5", arguments={"loop": "two loops: dq"})

#: (what is computed, what it reads, what it writes), a matmul each
MATMULS = (
    ("s = q kᵀ, p = exp(s − lse)", ("q", "k", "lse"), "p"),
    ("dp = dout vᵀ, ds = p ∘ (dp − delta)", ("dout", "v", "delta", "p"), "ds"),
    ("dv += pᵀ dout", ("p", "dout"), "dv"),
    ("dk += dsᵀ q", ("ds", "q"), "dk"),
    ("dq += ds k", ("ds", "k"), "dq"),
)
#: {loop: its matmuls, counted from 1}
LOOPS = {"one loop": (1, 2, 3, 4, 5), "two loops: dk and dv": (1, 2, 3, 4), "two loops: dq": (1, 2, 5)}
_HEIGHT, _SIDE, _TOP = 336, 110, 96  # CSS pixels
_BEFORE = {"p": "#d3eaf8", "dv": "#f8e3b4"}  # what an earlier matmul has made: a tile on chip, a part of a gradient
_INK = {"queries": BLUE, "keys": "#00694d", "pairs": BLACK}
#: {name: (x, y, width, height, what its rows or columns are)}
_PLACES = {
    "q": (44, _TOP, 44, _SIDE, "queries"),
    "lse": (96, _TOP, 12, _SIDE, "queries"),
    "k": (124, 42, _SIDE, 38, "keys"),
    "p": (124, _TOP, _SIDE, _SIDE, "pairs"),
    "dv": (124, 222, _SIDE, 38, "keys"),
    "dout": (270, _TOP, 44, _SIDE, "queries"),
    "delta": (322, _TOP, 12, _SIDE, "queries"),
    "v": (350, 42, _SIDE, 38, "keys"),
    "ds": (350, _TOP, _SIDE, _SIDE, "pairs"),
    "dk": (350, 222, _SIDE, 38, "keys"),
    "dq": (480, _TOP, 44, _SIDE, "queries"),
}


def backward_matmuls(step: int = 1, loop: str = "one loop") -> Panel:
    """One tile of the weights: which tensors each of the backward's five matmuls reads and writes.

    Args:
        step: The matmul, from 1 to 5.
        loop: One of LOOPS.
    """
    if not isinstance(step, int) or not 1 <= step <= len(MATMULS):
        raise ValueError(f"step: got {step!r}, expected a whole number from 1 to {len(MATMULS)}")
    picture = _Picture()

    def draw(step, loop):
        picture.show(step, loop)
        what, reads, writes = MATMULS[step - 1]
        alt = f"Matmul {step} of {len(MATMULS)}: {what}. "
        if step not in LOOPS[loop]:
            return alt + f"This loop leaves it out: it needs {len(LOOPS[loop])} matmuls per tile."
        if writes in ("p", "ds"):
            fate = "which stays on chip"
        else:
            owner = "queries" if writes == "dq" else "keys"
            fate = f"which belongs to the {owner} of the tile"
        named = ", ".join(reads[:-1]) + " and " + reads[-1]
        return (
            alt
            + f"It reads {named} and writes {writes}, {fate}. In this loop, a tile takes {len(LOOPS[loop])} matmuls."
        )

    controls = {"step": whole("matmul", 1, len(MATMULS), 1), "loop": menu("loop", LOOPS, "one loop")}
    return Panel("Five matmuls on one tile", picture.figure, controls, draw).set(step=step, loop=loop)


class _Picture:
    """The tile p with k above and dv below, the tile ds with v above and dk below; tensors of the queries beside."""

    def __init__(self):
        self.figure = canvas(height=_HEIGHT)
        axes = self.figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(_HEIGHT, 0))
        axes.axis("off")
        axes.text(124 + _SIDE / 2, 28, "keys →", fontsize=9, ha="center", va="center")
        axes.text(350 + _SIDE / 2, 28, "keys →", fontsize=9, ha="center", va="center")
        axes.text(28, _TOP + _SIDE / 2, "← queries", fontsize=9, ha="center", va="center", rotation=90)
        self.boxes = {}
        for name, (x, y, wide, high, of) in _PLACES.items():
            edge = {
                "edgecolor": _INK[of],
                "linestyle": "--" if of == "pairs" else "-",
                "linewidth": 1 + (of != "pairs"),
            }
            box = Rectangle((x, y), wide, high, animated=True, zorder=2, **edge)
            self.boxes[name] = axes.add_patch(box)
            thin = wide < 20
            place = (x + wide / 2, y - 9) if thin else (x + wide / 2, y + high / 2)
            patch = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
            look = {"fontsize": 9 if thin else 11, "ha": "center", "va": "center", "bbox": patch}
            axes.text(*place, name, animated=True, zorder=3, **look)
        axes.text(124 + _SIDE / 2, 274, "sums over queries ↓", fontsize=8.5, ha="center", va="center")
        axes.text(350 + _SIDE / 2, 274, "sums over queries ↓", fontsize=8.5, ha="center", va="center")
        axes.text(502, _TOP + _SIDE + 22, "sums over\nkeys →", fontsize=8.5, ha="center", va="center")
        self.lines = []
        for at in range(len(MATMULS)):
            y = 60 + 44 * at
            self.lines.append(axes.text(562, y, "", fontsize=9, va="center", animated=True))
        keys = (
            (44, 302, {"facecolor": SKY}, "read now"),
            (44, 322, {"facecolor": ORANGE, "hatch": "//"}, "written now"),
            (180, 302, {"facecolor": _BEFORE["p"]}, "made before, still on chip"),
            (180, 322, {"facecolor": _BEFORE["dv"]}, "has this tile's part already"),
            (400, 302, {"facecolor": "white", "edgecolor": _INK["queries"], "linewidth": 2}, "rows of queries"),
            (400, 322, {"facecolor": "white", "edgecolor": _INK["keys"], "linewidth": 2}, "rows of keys"),
            (540, 302, {"facecolor": "white", "linestyle": "--"}, "a pair of both, only on chip"),
        )
        for x, y, look, words in keys:
            axes.add_patch(Rectangle((x, y - 7), 18, 14, **{"edgecolor": BLACK, "linewidth": 0.8, **look}))
            axes.text(x + 24, y, words, fontsize=9, va="center")

    def show(self, step: int, loop: str):
        steps = LOOPS[loop]
        made = {MATMULS[at - 1][2] for at in steps if at < step}
        reads, writes = MATMULS[step - 1][1:] if step in steps else ((), "")
        for name, box in self.boxes.items():
            colour = (_BEFORE["p"] if name in ("p", "ds") else _BEFORE["dv"]) if name in made else "white"
            box.set_facecolor(ORANGE if name == writes else SKY if name in reads else colour)
            box.set_hatch("//" if name == writes else "")
        for at, (line, (what, _, _)) in enumerate(zip(self.lines, MATMULS), start=1):
            line.set_text(f"{at}  " + what.replace(", ", "\n    "))
            line.set_color(BLACK if at in steps else "#b0b0b0")
            line.set_fontweight("bold" if at == step else "normal")
