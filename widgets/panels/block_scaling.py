"""The block scaling panel: a scale for a tensor, a row or a block, which of the values it can hold, and what that costs
in bits and in error."""

from functools import lru_cache

import numpy as np
import torch
from matplotlib.patches import Polygon

from kernels.quantization.schemes import (
    SCHEMES,
    Scheme,
    blocks_of,
    dequantize_reference,
    expand_scales,
    quantize_reference,
    scale_values,
)
from widgets.panels.number_line import all_values
from widgets.toolkit.panel import BLACK, BLUE, GREEN, INK_RED, ORANGE, RED, SKY, Example, Panel, Powers, canvas, menu
from widgets.toolkit.words import number

EXAMPLE = Example(entry="100", text="one value 100 times larger", arguments={"block": "row", "larger": 8})

ROWS, COLS, SHOWN = 16, 256, 128  # of the matrix; columns of its first row that are seen
GAUSS, LAPLACE, HEAVY = "Gaussian", "Laplace", "heavy tails, t of 3"
DATA = {
    GAUSS: lambda lot: lot.standard_normal((ROWS, COLS)),
    LAPLACE: lambda lot: lot.laplace(size=(ROWS, COLS)),
    HEAVY: lambda lot: lot.standard_t(3, (ROWS, COLS)),
}
NONE, ONE, SOME, COLUMNS = "none", "one value", "1% of the values", "two columns"
OUTLIERS = (NONE, ONE, SOME, COLUMNS)
FORMATS = ("e2m1", "int4", "e4m3", "int8")
BLOCKS = {
    "tensor": (None, None),
    "row": (1, None),
    "128 of a row": (1, 128),
    "64 of a row": (1, 64),
    "32 of a row": (1, 32),
    "16 of a row": (1, 16),
}
#: name: (scale_format, scale_rounding) of a Scheme
SCALES = {
    "fp32": ("fp32", "floor"),
    "E8M0": ("e8m0", "floor"),
    "E8M0, rounded up": ("e8m0", "up"),
    "E4M3, and an fp32": ("e4m3", "floor"),
}
SMALLEST, LARGEST = 2.0**-14, 2.0**11  # magnitudes that are seen, where 1 is the root mean square without outliers
LEAST, MOST = 2e-3, 1.5  # errors that are seen
_INK_ORANGE, _DARK_GREEN = "#8a5f00", "#00694d"


@lru_cache
def matrix(data: str, outliers: str, larger: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(x, which of it are outliers), both [ROWS, COLS]: values of root mean square 1, of which some are multiplied."""
    lot = np.random.default_rng(9)
    x = DATA[data](lot)
    x /= np.sqrt((x**2).mean())
    out = np.zeros((ROWS, COLS), bool)
    if outliers == ONE:
        out[0, 40] = True
    elif outliers == SOME:
        out.flat[lot.choice(ROWS * COLS, ROWS * COLS // 100, replace=False)] = True
    elif outliers == COLUMNS:
        out[:, [40, 90]] = True
    if outliers in (ONE, COLUMNS):  # the row that is drawn shows them: of an ordinary size before they are multiplied
        x[0, out[0]] = (1.5, -1.2)[: out[0].sum()]
    x[out] *= larger
    return torch.from_numpy(x).float(), torch.from_numpy(out)


def scheme(format: str, block: str, scales: str) -> Scheme:
    """What the controls say, as kernels/quantization/schemes.py has it."""
    return Scheme(f"{format}, {block}, {scales}", format, BLOCKS[block], *SCALES[scales])


def error(x: torch.Tensor, held: torch.Tensor, of: torch.Tensor) -> float:
    """The norm of what quantization changed over the norm of x, of some of the values."""
    return ((held - x)[of].norm() / x[of].norm()).item()


@lru_cache(maxsize=1024)
def errors_by_block(data: str, outliers: str, larger: float, format: str, scales: str) -> dict:
    """{block: (bits per value, error of all values, error without the outliers)}."""
    x, out = matrix(data, outliers, larger)
    by_block = {}
    for block in BLOCKS:
        of = scheme(format, block, scales)
        held = dequantize_reference(quantize_reference(x, of))
        bits = 8 * sum(of.nbytes(ROWS, COLS).values()) / (ROWS * COLS)
        by_block[block] = bits, error(x, held, out | ~out), error(x, held, ~out)
    return by_block


def block_scaling(
    data: str = GAUSS,
    outliers: str = ONE,
    larger: float = 64,
    format: str = "e2m1",
    block: str = "32 of a row",
    scales: str = "E8M0",
) -> Panel:
    """A quantized matrix of 16 x 256: what each block's scale can represent, and the error by bits per value.

    Args:
        data: One of DATA.
        outliers: One of OUTLIERS.
        larger: How many times an outlier is multiplied, 1 to 1,024.
        format: One of FORMATS.
        block: One of BLOCKS: the values that share a scale.
        scales: One of SCALES.
    """
    picture = _Picture()

    def draw(larger, outliers, data, format, block, scales):
        larger = 1.0 if outliers == NONE else larger
        of, (x, out) = scheme(format, block, scales), matrix(data, outliers, larger)
        every = errors_by_block(data, outliers, larger, format, scales)
        quantized = quantize_reference(x, of)
        held = dequantize_reference(quantized)
        steps = expand_scales(scale_values(quantized.scales, quantized.tensor_scale, of), of, ROWS, COLS)
        largest = steps * of.largest
        part = (x.abs() / largest).round(decimals=6)  # a scale is rounded, so a block's largest may be a little off
        zero, cut = (held == 0) & (x != 0), part > 1
        rows, cols = of.block_of(ROWS, COLS)
        unused = (1 - blocks_of(part, (rows, cols)).amax((1, 3))).clamp(min=0)
        shares = [zero.float().mean().item(), cut.float().mean().item(), unused.mean().item()]
        smallest = steps * all_values(format)[len(all_values(format)) // 2 + 1] / 2
        picture.row(*(each[0, :SHOWN].numpy() for each in (x.abs(), smallest, largest, zero, cut)))
        picture.costs(every, block, shares, out.any())
        bits, whole, rest = every[block]
        named = [each.name for each in SCHEMES.values() if _alike(each, of)]
        text = f"{format}, a scale per {block}, {scales}: {number(bits)} bits per value, error {_percent(whole)}"
        text += f", without outliers {_percent(rest)}. " if out.any() else ". "
        text += f"The data: {data}" + ("" if outliers == NONE else f", {_outliers(outliers, larger)}")
        text += f"; the scheme is {named[0]}. " if named else ". "
        text += f"{_percent(shares[0])} of the values become 0, {_percent(shares[1])} saturate, and "
        return text + f"{_percent(shares[2])} of a group's range is unused, above its values."

    controls = {
        "larger": Powers("times larger", 0, 10, larger),
        "outliers": menu("outliers", OUTLIERS, ONE),
        "data": menu("data", DATA, GAUSS),
        "format": menu("format", FORMATS, "e2m1"),
        "block": menu("a scale per", BLOCKS, "32 of a row"),
        "scales": menu("scales", SCALES, "E8M0"),
    }
    return Panel("Scale granularity, bits and error", picture.figure, controls, draw).set(
        outliers=outliers, data=data, format=format, block=block, scales=scales
    )


def _alike(one: Scheme, other: Scheme) -> bool:
    return all(
        getattr(one, name) == getattr(other, name) for name in ("format", "block", "scale_format", "scale_rounding")
    )


def _outliers(outliers: str, larger: float) -> str:
    return f"{outliers} {number(larger)} times larger"


def _percent(share: float) -> str:
    return f"{number(100 * share, digits=3 if share >= 1e-3 else 2)}%"


class _Picture:
    """Left, magnitudes of a row, and from which on and up to which its scales hold them. Right, error by bits per value
    for every block, and the shares of what goes wrong."""

    def __init__(self):
        self.figure = canvas(height=350)
        left = self.left = self.figure.add_axes((0.08, 0.115, 0.49, 0.735))
        left.set(yscale="log", xlim=(-1.5, SHOWN + 0.5), ylim=(SMALLEST, LARGEST))
        left.minorticks_off()
        left.set_yticks([1e-4, 1e-2, 1, 100], ["0.0001", "0.01", "1", "100"], fontsize=9)
        left.set_xticks(range(0, SHOWN + 1, 32), [str(col) for col in range(0, SHOWN + 1, 32)], fontsize=9)
        left.set_xlabel(f"column, the first {SHOWN} of {COLS} of a row", fontsize=9)
        left.spines[["top", "right"]].set_visible(False)
        self.figure.text(
            0.005, 0.955, "magnitudes, and the range of their scale", fontsize=9.5, weight="bold", va="center"
        )
        for x, words, colour in (
            (0.08, "● kept", BLUE),
            (0.155, "○ rounded to 0", INK_RED),
            (0.32, "▲ saturates", _INK_ORANGE),
        ):
            self.figure.text(x, 0.895, words, fontsize=9.5, color=colour, va="center")
        self.band = left.add_patch(Polygon([(0, 1)], facecolor="#d9ecf8", animated=True))
        self.edges = [left.plot([], [], color=BLUE, linewidth=1.3, animated=True)[0] for _ in range(2)]
        look = {"animated": True, "linestyle": "none", "clip_on": False}
        (self.held,) = left.plot([], [], "o", color=BLUE, markersize=3.6, **look)
        (self.zero,) = left.plot([], [], "o", markerfacecolor="white", color=RED, markersize=4.2, **look)
        (self.cut,) = left.plot([], [], "^", color=ORANGE, markeredgecolor=BLACK, markersize=6.5, **look)

        right = self.figure.add_axes((0.67, 0.525, 0.32, 0.325))
        right.set(yscale="log", xlim=(-0.4, len(BLOCKS) - 0.6), ylim=(LEAST, MOST))
        right.minorticks_off()
        right.set_yticks([0.01, 0.1, 1], ["1%", "10%", "100%"], fontsize=9)
        right.set_xticks(range(len(BLOCKS)), [block.split()[0] for block in BLOCKS], fontsize=9)
        right.spines[["top", "right"]].set_visible(False)
        self.figure.text(0.605, 0.955, "error, by what shares a scale", fontsize=9.5, weight="bold", va="center")
        self.figure.text(0.67, 0.895, "● all values", fontsize=9.5, color=BLUE, va="center")
        look = {"fontsize": 9.5, "color": _DARK_GREEN, "va": "center", "animated": True}
        self.without = self.figure.text(0.79, 0.895, "", **look)
        look = {"markersize": 4, "linewidth": 1, "animated": True}
        (self.rest,) = right.plot([], [], "--D", color=GREEN, markerfacecolor="white", **look)
        (self.all,) = right.plot([], [], "-o", color=BLUE, **look)
        (self.here,) = right.plot([], [], "o", color=ORANGE, markeredgecolor=BLACK, markersize=9, animated=True)
        self.figure.text(0.655, 0.4, "bits", fontsize=9, ha="right", va="center")
        places = [0.67 + 0.32 * (at + 0.4) / (len(BLOCKS) - 0.2) for at in range(len(BLOCKS))]
        look = {"fontsize": 9, "ha": "center", "va": "center", "animated": True}
        self.bits = [self.figure.text(x, 0.4, "", **look) for x in places]

        bars = self.figure.add_axes((0.79, 0.03, 0.2, 0.22))
        bars.set(xlim=(0, 1.3), ylim=(2.5, -0.5), xticks=[], yticks=[])
        bars.spines[["top", "right", "bottom"]].set_visible(False)
        self.bars, self.values = [], []
        for at, (words, colour, hatch) in enumerate(
            (("become 0", RED, ""), ("saturate", ORANGE, "//"), ("range unused", SKY, ".."))
        ):
            y = 0.03 + 0.22 * (1 - (at + 0.5) / 3)
            self.figure.text(0.782, y, words, fontsize=9, ha="right", va="center")
            self.bars += bars.barh(at, 0, 0.6, color=colour, hatch=hatch, edgecolor="white", animated=True)
            self.values.append(bars.text(0, at, "", fontsize=9, va="center", animated=True))
        self.figure.text(0.605, 0.305, "what goes wrong", fontsize=9.5, weight="bold", va="center")

    def row(self, x, smallest, largest, zero, cut):
        """Of each column that is seen: its magnitude, the smallest and largest of its scale, and what becomes of it."""
        cols = np.arange(SHOWN)
        visible = np.clip(x, SMALLEST, LARGEST)
        low, high = np.clip(smallest, SMALLEST, LARGEST), np.clip(largest, SMALLEST, LARGEST)
        edges = np.repeat(np.arange(SHOWN + 1) - 0.5, 2)[1:-1]
        low, high = np.repeat(low, 2), np.repeat(high, 2)
        self.band.set_xy(np.stack((np.append(edges, edges[::-1]), np.append(low, high[::-1])), 1))
        for line, places in zip(self.edges, (low, high)):
            line.set_data(edges, places)
        for points, which in ((self.held, ~zero & ~cut), (self.zero, zero), (self.cut, cut)):
            points.set_data(cols[which], visible[which])

    def costs(self, every: dict, block: str, shares: list, outliers: bool):
        """every: {block: (bits, error of all, error without outliers)}. shares: what goes wrong, a bar each."""
        bits, whole, rest = (np.array(each) for each in zip(*every.values()))
        places, here = np.arange(len(bits)), list(every).index(block)
        self.all.set_data(places, np.clip(whole, LEAST, MOST))
        self.rest.set_data(*((places, np.clip(rest, LEAST, MOST)) if outliers else ([], [])))
        self.without.set_text("◇ without outliers" if outliers else "")
        self.here.set_data([here], [min(max(whole[here], LEAST), MOST)])
        for at, text in enumerate(self.bits):
            text.set(text=number(bits[at], digits=3), weight="bold" if at == here else "normal")
        for bar, alt, share in zip(self.bars, self.values, shares):
            bar.set_width(share)
            alt.set(text=_percent(share), x=share + 0.03)
