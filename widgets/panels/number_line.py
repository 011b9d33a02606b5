"""The number line panel: all values that a format has at a scale, and the error of rounding to them."""

from functools import cache

import numpy as np
import torch
from matplotlib.patches import Rectangle

from kernels.quantization.formats import FORMATS, decode, encode, values
from kernels.quantization.schemes import INTEGERS, Quantized, Scheme, codes_of, dequantize_reference
from widgets.toolkit.panel import BLACK, BLUE, INK_RED, ORANGE, RED, Example, Panel, canvas, menu, real, whole
from widgets.toolkit.words import number

EXAMPLE = Example(entry="3", text="e2m1 at scale 2³ = 8", arguments={"format": "e2m1", "scale": -2})

NAMES = ("e2m1", "int4", "e4m3", "e5m2", "int8", "fp16", "bf16")
SCALES = -16, 8  # powers of two
FAR = 8.0  # where the line ends, on both sides
RANGE = 2.0**-16, 2.0**11  # of |x|, where its rounding is shown
LEAST = 1e-4  # of rounding errors that are seen
_X = np.geomspace(*RANGE, 1600, dtype=np.float32)
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


@cache
def all_values(format: str) -> np.ndarray:
    """Every finite value of a format at scale 1, in ascending order."""
    most = INTEGERS.get(format)
    return (values(format) if most is None else torch.arange(-most, most + 1)).double().numpy()


def rounded(x: np.ndarray, format: str, scale: float) -> np.ndarray:
    """The numbers, fp32, that x becomes in a format at a scale. An even number of them."""
    scaled = torch.from_numpy(x)[None] / scale
    if format not in INTEGERS:
        return (decode(encode(scaled, format), format) * scale)[0].numpy()
    scheme = Scheme(format, format, (None, None))
    held = Quantized(codes_of(scaled, scheme), torch.tensor([[scale]]), None, scheme, tuple(scaled.shape))
    return dequantize_reference(held)[0].numpy()


def number_line(format: str = "e4m3", scale: int = 0, x: float = 3.3) -> Panel:
    """The values of a format times 2^scale, and what x becomes.

    format: one of NAMES. scale: a power of two, -16 to 8. x: -8 to 8.
    """
    for name in NAMES:
        all_values(name)  # so that no step waits for the table of a format
    picture = _Picture()
    controls = {
        "scale": whole("scale, 2^", *SCALES, 0),
        "x": real("x", -FAR, FAR, 3.3, 0.01),
        "format": menu("format", NAMES, "e4m3"),
    }

    def draw(scale, x, format):
        line, scale, power = all_values(format), 2.0**scale, scale
        held = float(rounded(np.array([x, x], np.float32), format, scale)[0])
        picture.show(format, line, scale, x, held)
        alt = (
            f"{format} at scale 2{str(power).translate(_RAISED)} = {_words(scale)}: {len(line):,} values from "
            f"{_words(line[0] * scale)} to {_words(line[-1] * scale)}. x = {_words(x)} becomes {_words(held)}"
        )
        if held == np.float32(x):
            alt += ", exactly"
        elif np.isfinite(held):
            alt += f", {number(100 * abs(held / x - 1), digits=3)}% off"
        least, most = (_words(end * scale) for end in (line[line > 0][0] / 2, line[-1]))
        infinite = format in FORMATS and FORMATS[format].has_inf
        return alt + (
            f". What is no larger than {least} becomes 0; what would round to more than {most} becomes "
            f"{'infinity' if infinite else most}."
        )

    panel = Panel("The values of a format", picture.figure, controls, draw)
    for name, value in (("scale", scale), ("x", x)):
        low, high = controls[name].min, controls[name].max
        if not isinstance(value, (int, float)) or not low <= value <= high:
            raise ValueError(f"{name}: got {value!r}, expected {low:g} to {high:g}")
    return panel.set(format=format, scale=scale, x=x)


def _words(value: float) -> str:
    value = float(value)
    if value and np.isfinite(value) and not 1e-3 <= abs(value) < 1e7:
        digits, power = f"{value:.2e}".split("e")
        return f"{float(digits):g} × 10{str(int(power)).translate(_RAISED)}".replace("-", "−")
    return (number(value, digits=4) if np.isfinite(value) else f"{value:g}inity").replace("-", "−")


class _Picture:
    """Above, the line: a stroke for each value, x, and all that becomes what x becomes. Below, the relative rounding
    error, by magnitude."""

    def __init__(self):
        self.figure = canvas(height=340)
        self.figure.text(0.03, 0.955, "values, times the scale", fontsize=9.5, weight="bold", va="center")
        self.moves = self.figure.text(0.97, 0.955, "", fontsize=11, ha="right", va="center", animated=True)
        line = self.figure.add_axes((0.03, 0.72, 0.94, 0.17))
        line.set(xlim=(-FAR, FAR), ylim=(0, 1), yticks=[])
        line.set_xticks([-8, -6, -4, -2, 0, 2, 4, 6, 8], ["−8", "−6", "−4", "−2", "0", "2", "4", "6", "8"], fontsize=9)
        line.spines[["top", "right", "left"]].set_visible(False)
        self.pixels = round(line.get_window_extent().width)
        self.same = line.add_patch(Rectangle((0, 0), 0, 0.72, facecolor="#f7dfae", animated=True))
        (self.strokes,) = line.plot([], [], color=BLUE, linewidth=1.1, solid_capstyle="butt", animated=True)
        look = {"clip_on": False, "animated": True}
        (self.held,) = line.plot([], [], color=RED, linewidth=3.5, solid_capstyle="butt", **look)
        (self.x,) = line.plot([], [], "v", color=ORANGE, markeredgecolor=BLACK, markersize=9, **look)

        self.error = error = self.figure.add_axes((0.085, 0.09, 0.885, 0.45))
        self.figure.text(0.03, 0.595, "relative rounding error, by magnitude", fontsize=9.5, weight="bold", va="center")
        error.set(xscale="log", yscale="log", xlim=RANGE, ylim=(LEAST, 4))
        error.minorticks_off()
        ticks = [1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100, 1000]
        error.set_xticks(ticks, [number(tick) if tick > 1e-4 else "0.0001" for tick in ticks], fontsize=9)
        error.set_yticks([1e-4, 1e-3, 1e-2, 0.1, 1], ["0.01%", "0.1%", "1%", "10%", "100%"], fontsize=9)
        error.spines[["top", "right"]].set_visible(False)
        self.zones = [
            error.add_patch(Rectangle((0, 1.25), 1, 2.6, facecolor=colour, edgecolor="white", animated=True))
            for colour in ("#f3c9b4", "#cfe4f3", "#cfe4f3", "#f3c9b4")
        ]
        self.words = [
            error.text(1, 2.15, "", fontsize=9, ha="center", va="center", color=colour, animated=True)
            for colour in (INK_RED, BLACK, BLACK, INK_RED)
        ]
        (self.curve,) = error.plot([], [], color=BLUE, linewidth=1, animated=True)
        (self.point,) = error.plot([], [], "o", color=ORANGE, markeredgecolor=BLACK, markersize=9, **look)
        self.widths = {}
        self.drawn = ()  # format and scale whose values were drawn last

    def show(self, format: str, line: np.ndarray, scale: float, x: float, held: float):
        """line: the format's values at scale 1. held: what x becomes."""
        if self.drawn != (format, scale):
            self.drawn = format, scale
            self._values(format, line, scale)
        self.moves.set_text(f"x = {_words(x)} → {_words(held)}")
        scaled = line * scale
        infinite = format in FORMATS and FORMATS[format].has_inf
        end = scaled[-1] + (scaled[-1] - scaled[-2]) / 2 if infinite else np.inf
        between = np.concatenate(([-end], (scaled[1:] + scaled[:-1]) / 2, [end]))
        at = int(np.searchsorted(scaled, held).clip(0, len(scaled) - 1))
        low, high = between[at : at + 2] if np.isfinite(held) else sorted((np.copysign(end, held), held))
        low, high = np.clip([low, high], -FAR, FAR)
        self.same.set(x=low, width=high - low)
        self.held.set_data([held, held] if abs(held) <= FAR else [], [0, 0.8] if abs(held) <= FAR else [])
        self.x.set_data([x], [0.95])
        error = abs(held / x - 1) if x else 0.0
        seen = [min(max(error, LEAST), 1.0)] if x else []
        self.point.set_data([min(max(abs(x), RANGE[0]), RANGE[1])] if x else [], seen)

    def _values(self, format: str, line: np.ndarray, scale: float):
        """What changes with format and scale alone."""
        places = line[np.abs(line) * scale <= FAR] * scale
        places = np.unique(np.round(places * self.pixels / FAR)) * FAR / self.pixels  # a stroke for each half pixel
        self.strokes.set_data(np.repeat(places, 3), np.tile([0, 0.6, np.nan], len(places)))
        held = rounded(_X, format, scale)
        with np.errstate(invalid="ignore"):
            error = np.where(np.isfinite(held), np.abs(held / _X - 1), 1)
        self.curve.set_data(_X, np.clip(error, LEAST, 1))
        form = FORMATS.get(format)
        positive = line[line > 0]
        normal = positive[positive >= form.smallest_normal] if form else positive[-1:]
        most = (np.diff(normal) / (normal[1:] + normal[:-1])).max(initial=0)  # of a number halfway between two
        ends = np.clip(np.array([0, positive[0] / 2, normal[0], positive[-1], np.inf]) * scale, *RANGE)
        off = f"{number(100 * most, digits=3)}%"
        words = (
            ("becomes 0", "0"),
            ("even steps", "even"),
            (f"steps grow with it: at most {off} off", f"at most {off} off", f"≤ {off}"),
            ("becomes infinity", "infinity") if form and form.has_inf else ("saturates",),
        )
        for zone, text, alt, low, high in zip(self.zones, self.words, words, ends, ends[1:]):
            zone.set(x=low, width=high - low)
            text.set_x(np.sqrt(low * high))
            room = np.diff(self.error.transData.transform([(low, 1), (high, 1)])[:, 0])[0] - 6
            text.set_text(next((word for word in alt if self._width(text, word) <= room), ""))

    def _width(self, text, words: str) -> float:
        """Pixels that words take."""
        if words not in self.widths:
            text.set_text(words)
            self.widths[words] = text.get_window_extent().width
        return self.widths[words]
