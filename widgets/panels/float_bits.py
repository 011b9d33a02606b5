"""The bits panel: a number's sign, exponent and mantissa, flipped one by one, in formats of 32 to 4 bits."""

import math

import ipywidgets
import numpy as np
import torch
import traitlets
from matplotlib.collections import PolyCollection
from matplotlib.patches import Rectangle

from kernels.quantization.formats import FORMATS, FP32_BIAS, FP32_MANTISSA, Format, encode
from widgets.toolkit.panel import BLACK, BLUE, GREEN, INK_RED, ORANGE, RED, Example, Panel, canvas, menu, whole
from widgets.toolkit.words import number

EXAMPLE = Example(entry="57", text="code 57: sign 0", arguments={"value": 1.0, "format": "e4m3"})

FP32 = Format("fp32", 8, FP32_MANTISSA, FP32_BIAS, True, True)
TF32 = Format("tf32", 8, 10, FP32_BIAS, True, True)  # what tensor cores read of fp32: the upper 19 of its bits
FORMS = {
    form.name: form for form in (FP32, TF32, *(FORMATS[name] for name in ("bf16", "fp16", "e5m2", "e4m3", "e2m1")))
}
MOST = FP32.bits
_SIGN, _EXPONENT, _MANTISSA = (RED, INK_RED), (GREEN, "#00694d"), (BLUE, BLUE)  # of cells, of words
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


class Bits(ipywidgets.VBox):
    """A button for each bit, the highest first, over a slider that goes through all codes; `value` is the code.

    Bits above the format's are not looked at.
    """

    value = traitlets.Int()
    min = 0

    def __init__(self, label: str):
        self.label = label
        self._buttons = [
            ipywidgets.ToggleButton(tooltip=f"bit {MOST - 1 - at}", layout={"width": "auto", "margin": "0"})
            for at in range(MOST)
        ]
        for button in self._buttons:
            button.layout.padding, button.layout.flex = "0", "0 1 32px"
            button.observe(self._flipped, names="value")
        self._slider = whole(label, 0, 1, 0)
        self._slider.observe(self._slid, names="value")
        self._setting = False
        row = ipywidgets.HBox(self._buttons, layout={"width": "100%"})
        super().__init__([row, self._slider], layout={"width": "100%"})

    @property
    def max(self) -> int:
        """The last code of the format."""
        return self._slider.max

    def resize(self, bits: int, exponent: int, value: int):
        """Another format, and a code of it."""
        for at, button in enumerate(self._buttons):
            bit = MOST - 1 - at
            button.layout.display = "" if bit < bits else "none"
            mantissa = bits - 1 - exponent
            button.button_style = "danger" if bit == bits - 1 else "success" if bit >= mantissa else "info"
        self._setting = True  # a smaller range moves the slider's value
        self._slider.max = (1 << bits) - 1
        self._setting = False
        self.value = value
        self.show()

    def _flipped(self, _change):
        if not self._setting:
            self.value = sum(button.value << (MOST - 1 - at) for at, button in enumerate(self._buttons))

    def _slid(self, change):
        if not self._setting:
            self.value = change["new"]

    @traitlets.validate("value")
    def _within(self, proposal):
        if not 0 <= proposal["value"] < 1 << MOST:
            raise traitlets.TraitError(f"expected 0 to {self.max:,}")
        return proposal["value"] & self.max

    def show(self, _change=None):
        """Buttons and slider as the code has them. A panel's observer comes first, so its picture is sent first."""
        self._setting = True
        self._slider.value = self.value
        for at, button in enumerate(self._buttons):
            bit = self.value >> (MOST - 1 - at) & 1
            with button.hold_sync():  # one message for both
                button.value, button.description = bool(bit), str(bit)
        self._setting = False


def code_of(value: float, form: Format) -> int:
    """The code of a format's number nearest to a value."""
    held = torch.tensor([value], dtype=torch.float32)
    return held.view(torch.int32).item() & (1 << MOST) - 1 if form == FP32 else encode(held, form).item()


def fields(code: int, form: Format) -> tuple[int, int, int]:
    """Sign, exponent and mantissa of a code, as they stand in its bits."""
    return (code >> form.bits - 1, code >> form.mantissa & (1 << form.exponent) - 1, code & (1 << form.mantissa) - 1)


def float_bits(value: float = 3.14159265, format: str = "fp32") -> Panel:
    """A number in a format, bit by bit; with another format it is rounded to that.

    value: any number. format: one of FORMS.
    """
    if not isinstance(value, (int, float)):
        raise ValueError(f"value: got {value!r}, expected a number")
    picture = _Picture()
    controls = {"code": Bits("code"), "format": menu("format", FORMS, FP32.name)}

    def fit(change):  # before the panel hears of the change: observers are called in their order
        held = FORMS[change["old"]].value(controls["code"].value)
        form = FORMS[change["new"]]
        controls["code"].resize(form.bits, form.exponent, code_of(held, form))

    controls["code"].resize(FP32.bits, FP32.exponent, code_of(value, FP32))
    controls["format"].observe(fit, names="value")

    def draw(code, format):
        form = FORMS[format]
        sign, exponent, mantissa = fields(code, form)
        held = form.value(code)
        picture.show(form, code, held)
        alt = (
            f"{format}, code {code:,}: sign {sign}, exponent {exponent:0{form.exponent}b} = {exponent}, mantissa "
            f"{mantissa:0{form.mantissa}b} = {mantissa:,}. "
        )
        if not math.isfinite(held):
            return alt + f"An exponent of ones stands for {_no_number(form, held)}."
        alt += f"{_taken_apart(form, code)} = {_words(held)}"
        alt += ", a subnormal" if 0 < abs(held) < form.smallest_normal else ""
        size = code & (1 << form.bits - 1) - 1  # the code without its sign
        if size == form.largest_code:
            return alt + f", the largest of {format}."
        gap = form.value(size + 1) - abs(held)
        share = f", {_words(float(f'{100 * gap / abs(held):.3g}'))}% of it" if held else ""
        return alt + f"; the next larger is {_words(gap)} away{share}."

    panel = Panel("A number, bit by bit", picture.figure, controls, draw)
    controls["code"].observe(controls["code"].show, names="value")
    return panel.set(format=format)


def _words(value: float) -> str:
    """A number as the panel writes it: nine digits tell every fp32 from its neighbours."""
    if math.isfinite(value) and value and not 1e-3 <= abs(value) < 1e9:
        digits, power = f"{value:.6e}".split("e")
        return f"{float(digits):g} × 10{str(int(power)).translate(_RAISED)}".replace("-", "−")
    return number(value, digits=9).replace("-", "−") if math.isfinite(value) else f"{value}".replace("-", "−")


def _taken_apart(form: Format, code: int) -> str:
    """The product that a finite number is: a sign, a power of two, and one and so many parts."""
    sign, exponent, mantissa = fields(code, form)
    power = str(max(exponent, 1) - form.bias).translate(_RAISED)  # of subnormals: that of the smallest normal ones
    return f"{'−' if sign else '+'}2{power} × ({min(exponent, 1)} + {mantissa:,}/{1 << form.mantissa:,})"


def _no_number(form: Format, held: float) -> str:
    """What a code that is no finite number stands for."""
    if math.isnan(held):
        return "NaN, not a number" + (
            "" if form.has_inf else f"; of {form.name} only where the mantissa is all ones too"
        )
    return "minus infinity" if held < 0 else "infinity"


class _Picture:
    """The bits; below them the factors they stand for; where the number is in the format's range, and among the
    numbers of its power of two."""

    _LEFT, _RIGHT = 0.03, 0.97

    def __init__(self):
        self.figure = canvas(height=330)
        self.bits = self.figure.add_axes((self._LEFT, 0.72, self._RIGHT - self._LEFT, 0.17))
        self.bits.set(xlim=(0, MOST), ylim=(0, 1))
        self.bits.axis("off")
        self.cells = self.bits.add_collection(PolyCollection([], edgecolors="white", linewidths=1.5, animated=True))
        look = {"ha": "center", "va": "center", "animated": True}
        self.digits = [self.bits.text(at + 0.5, 0.48, "", fontsize=11, weight="bold", **look) for at in range(MOST)]
        names = (("sign", _SIGN), ("exponent", _EXPONENT), ("mantissa", _MANTISSA))
        self.names = [
            self.figure.text(0, 0.945, "", fontsize=10, color=ink, va="center", animated=True) for _, (_, ink) in names
        ]
        self.product = self.figure.text(0.5, 0.6, "", fontsize=13, color=BLACK, ha="center", va="center", animated=True)
        self.range = self.figure.add_axes((self._LEFT, 0.34, self._RIGHT - self._LEFT, 0.1))
        self.range.set(xscale="log", xlim=(1e-46, 1e40), ylim=(0, 1), yticks=[])
        self.range.minorticks_off()
        self.range.set_xticks(
            [10.0**p for p in range(-40, 41, 10)],
            [f"10{str(p).translate(_RAISED)}" if p else "1" for p in range(-40, 41, 10)],
            fontsize=9,
        )
        self.figure.text(
            self._LEFT, 0.49, "the format's range, subnormals hatched", fontsize=9.5, weight="bold", va="center"
        )
        self.normal, self.subnormal = (
            self.range.add_patch(
                Rectangle((1, 0.15), 1, 0.7, facecolor=colour, edgecolor="white", hatch=hatch, animated=True)
            )
            for colour, hatch in ((GREEN, ""), ("#8fcdb9", "//"))
        )
        seen = {"clip_on": False, "animated": True}
        (self.there,) = self.range.plot([], [], "o", color=ORANGE, markeredgecolor=BLACK, markersize=9, **seen)
        self.near = self.figure.add_axes((self._LEFT, 0.05, self._RIGHT - self._LEFT, 0.12))
        self.near.set(xlim=(-0.004, 1.004), ylim=(0, 1), xticks=[], yticks=[])
        self.near.spines[["top", "right", "left"]].set_visible(False)
        self.title = self.figure.text(self._LEFT, 0.205, "", fontsize=9.5, weight="bold", va="center", animated=True)
        (self.comb,) = self.near.plot([], [], color=BLUE, linewidth=1, animated=True)
        self.dense = self.near.add_patch(Rectangle((0, 0), 0, 0.6, facecolor=BLUE, animated=True))
        (self.here,) = self.near.plot([], [], "o", color=ORANGE, markeredgecolor=BLACK, markersize=9, **seen)
        self.format = ""

    def show(self, form: Format, code: int, held: float):
        if form.name != self.format:
            self._fit(form)
        ones = [code >> bit & 1 for bit in reversed(range(form.bits))]
        fields_of = [_SIGN, *[_EXPONENT] * form.exponent, *[_MANTISSA] * form.mantissa]
        self.cells.set_facecolors([colour if one else "#e9e9e9" for one, (colour, _) in zip(ones, fields_of)])
        for digit, one, (_, ink) in zip(self.digits, ones, fields_of):
            digit.set(text=str(one), color="white" if one else ink)
        finite = math.isfinite(held)
        self.product.set_text(f"{_taken_apart(form, code)} = {_words(held)}" if finite else _no_number(form, held))
        self.there.set_data(*(([abs(held)], [0.5]) if finite and held else ([], [])))
        steps, exponent = 1 << form.mantissa, fields(code, form)[1]
        first = exponent << form.mantissa  # code of the numbers that share the exponent, of which some may not be
        count = min(steps, form.largest_code + 1 - first)
        low, more = form.value(first), first + steps <= form.largest_code  # the last exponent has no successor
        high = form.value(first + steps) if more else 2 * low
        end = f"{'to' if more else 'towards'} {_words(high)}"
        words = f"the {count:,} numbers of this exponent, from {_words(low)} {end}"
        self.title.set_text(words if finite else "no number, and no neighbours")
        few = finite and steps <= 128
        places = np.arange(count + more) / steps if few else np.zeros(0)
        self.comb.set_data(np.repeat(places, 3), np.tile([0, 0.6, np.nan], len(places)))
        self.dense.set_width(1 if finite and not few else 0)
        self.here.set_data(*(([(abs(held) - low) / (high - low)], [0.6]) if finite else ([], [])))

    def _fit(self, form: Format):
        """What changes with the format alone."""
        self.format = form.name
        width = min(1.6, MOST / form.bits)
        lefts = [at * width for at in range(form.bits)]
        self.cells.set_verts([[(x, 0), (x + width, 0), (x + width, 1), (x, 1)] for x in lefts])
        for at, digit in enumerate(self.digits):
            digit.set(visible=at < form.bits, x=(at + 0.5) * width)
        for text, words, x in zip(
            self.names,
            (
                "sign, 1 bit",
                f"exponent, {form.exponent} bits",
                f"mantissa, {form.mantissa} bit{'s' * (form.mantissa > 1)}",
            ),
            (self._LEFT, 0.2, 0.42),
        ):
            text.set(text=words, x=x)
        self.subnormal.set(x=form.smallest_subnormal, width=form.smallest_normal - form.smallest_subnormal)
        self.normal.set(x=form.smallest_normal, width=form.largest - form.smallest_normal)
