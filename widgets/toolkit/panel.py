"""The builder of every panel: a dictionary of controls, one reused picture, and its text alternative.

A panel's file draws its picture once, on a figure from `canvas()`, and keeps the artists. It then passes a function
that moves those artists to new values and returns the text alternative:

    figure = canvas()
    axes = figure.add_axes((0.1, 0.15, 0.85, 0.8))
    (line,) = axes.plot([], [], animated=True)

    def draw(cols):
        line.set_data(...)
        return f"Rows of {cols} columns move twice their bytes. ..."

    Panel("Row width", figure, {"cols": Powers("columns", 6, 16, value=4096)}, draw)

The first sentence of that text stands under the picture as its caption, so it is short: at most LINE characters. All
of it is the picture's alt text, for those who do not see the picture, and is printed nowhere.

A file that has an EXAMPLE holds one panel, made by the function with the file's name. `from widgets import ...` finds
it there, and so does the browser test.

Redrawing is fast because nothing is made anew: what is not `animated` (axes, titles, anything that seldom changes) is
painted again only after it changed, no layout engine runs, the PNG has few colours, and picture and text travel to
the page in one message. The figure never passes through pyplot, as callbacks run in another thread than the
cells. Everything here is in the API of ipywidgets 7.7.1, which Colab ships.
"""

import base64
import html
import io
import json
import math
import re
import sys
import threading
from dataclasses import dataclass, field

import ipywidgets
import numpy as np
import traitlets
from IPython.display import display
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from widgets.toolkit import letters

#: Okabe and Ito's colours, told apart by colour-blind readers. Panels add hatches or markers all the same.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
INK_RED = "#A84300"  # RED for words: on white, RED itself is too pale to be read when small

WIDTH, HEIGHT = 760, 330  # of a picture, in CSS pixels
READABLE = 440  # CSS pixels: a narrower page scrolls a picture. Beside the file browser, a page of 900 has room for it
LINE = 150  # characters of a caption at most: what two lines under a picture hold
_LABEL, _WIDE = {"description_width": "96px"}, {"width": "365px"}  # of a control
SHARPNESS = 1.25  # picture pixels per CSS pixel: text stays crisp on dense screens, and a redraw stays fast


# A card of its own: light on light pages, and turned dark, hues kept, where the page is dark (JupyterLab and what
# nbconvert makes; VS Code; Colab). An untouched front end shows the light one.
_STYLE = """
.bytes-first-card {background: white; color: #1b1b1b; border: 1px solid #c4c4c4; border-radius: 6px;
  padding: 6px 10px; margin: 4px 0; box-sizing: border-box; width: min(100%, CARDpx)}
.bytes-first-card div {overflow-x: auto; contain: inline-size}
[data-jp-theme-light=false] .bytes-first-card, .vscode-dark .bytes-first-card, html[theme=dark] .bytes-first-card
  {filter: invert(0.9) hue-rotate(180deg)}
""".replace("CARD", str(WIDTH + 22))  # a picture, padding and border

# What ipywidgets leaves out for screen readers: sliders have names, and one over powers says the value, not the
# exponent. Runs once, when the panel's style is on the page; a widget's HTML runs no script element. BASES: {label:
# base} of the sliders over powers. While such a slider has the focus it says the power it stands at; otherwise, and
# once the picture has followed, what the field beside it says.
_SPEAK = """
const style = this, bases = BASES;
(function find(tries) {
  const box = style.closest('.bytes-first');
  if (!box) return tries && setTimeout(find, 100, tries - 1);
  const say = (element, key, text) => element.getAttribute(key) === text || element.setAttribute(key, text);
  const tell = changes => box.querySelectorAll('.noUi-handle, .ui-slider-handle').forEach(handle => {
    const row = handle.closest('.widget-slider');
    const name = row.querySelector('.widget-label').textContent;
    const field = bases[name] && row.parentNode.querySelector('input'), readout = row.querySelector('.widget-readout');
    const slid = handle === document.activeElement && changes.some(change => change.target === handle);
    const value = slid && field ? Math.round(bases[name] ** handle.getAttribute('aria-valuenow')) : field?.value;
    say(handle, 'role', 'slider');
    say(handle, 'aria-label', name);
    if (field) say(handle, 'aria-valuetext', Number(value).toLocaleString('en-US'));
    say(field || readout, 'aria-label', name + ', exact');
  });
  new MutationObserver(tell).observe(box, {subtree: true, childList: true, attributeFilter: ['aria-valuenow']});
  tell([]);
})(50);
"""


@dataclass(frozen=True)
class Example:
    """How the tests try a panel.

    Attributes:
        entry: What is typed into the field beside the first slider; not the value that stands there.
        text: A part of the text alternative after that, and not before.
        arguments: What the panel is called with.
    """

    entry: str
    text: str
    arguments: dict = field(default_factory=dict)


def sentence(text: str) -> str:
    """The first sentence of a text."""
    return re.split(r"(?<=[.!?]) ", text, maxsplit=1)[0]


def caption_of(text: str) -> str:
    """The first sentence of a text alternative, or nothing where it is longer than LINE."""
    first = sentence(text)
    return first if len(first) <= LINE else ""


def canvas(width: int = WIDTH, height: int = HEIGHT) -> Figure:
    """An empty figure of so many CSS pixels, on a white ground, for a panel's artists."""
    figure = Figure(figsize=(width / 100, height / 100), dpi=100 * SHARPNESS, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def encoded(pixels: np.ndarray) -> bytes:
    """A PNG of pixels, uint8 [height, width, 4], whose opacity is left out, in 256 colours of the picture's own.

    Colours that share a sixteenth of red, of green and of blue become their mean, so a pale ground is #ececec or
    darker: what is paler turns white. The file is less than half as large as one in all colours, and Pillow writes it
    in a third of the time.
    """
    file = io.BytesIO()
    few = Image.fromarray(pixels).convert("RGB").quantize(method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(file, "PNG", compress_level=1)
    return file.getvalue()


class Powers(ipywidgets.HBox):
    """A slider over base**low ... base**high, and a field beside it that takes any whole number between.

    alone: only the powers themselves; the field moves to the nearest.
    """

    value = traitlets.Float()

    def __init__(
        self, label: str, low: float, high: float, value: float, base: float = 2, step: float = 1, alone: bool = False
    ):
        self.label, self.base, self._step, self._alone = label, base, step, alone
        self.least, self.most = base**low, base**high
        self._slider = ipywidgets.FloatSlider(
            min=low,
            max=high,
            step=step,
            value=low,
            readout=False,
            description=label,
            style=_LABEL,
            layout={"width": "220px"},
        )
        self._field = ipywidgets.BoundedFloatText(
            min=self.least, max=self.most, value=self.least, layout={"width": "135px"}
        )
        super().__init__([self._slider, self._field], layout={"width": "365px"})
        self._slider.observe(self._slid, names="value")
        self._field.observe(self._typed, names="value")
        self.value = value

    def _exponent(self, value: float) -> float:
        """Where the slider stands for a value: on a step, or the page would move it there and report back."""
        return round(math.log(value, self.base) / self._step) * self._step

    def _slid(self, change):
        if abs(change["new"] - self._exponent(self.value)) > self._step / 2:
            self.value = float(round(self.base ** change["new"]))

    def _typed(self, change):
        self.value = float(self.base ** self._exponent(change["new"])) if self._alone else change["new"]
        self._field.value = self.value

    @traitlets.validate("value")
    def _within(self, proposal):
        if not self.least <= proposal["value"] <= self.most:
            raise traitlets.TraitError(f"expected {self.least:,} to {self.most:,}")
        if self._alone and proposal["value"] != self.base ** self._exponent(proposal["value"]):
            raise traitlets.TraitError(f"expected a power of {self.base} from {self.least:,} to {self.most:,}")
        return float(round(proposal["value"]))

    @traitlets.observe("value")
    def _show(self, _change):
        self._slider.value, self._field.value = self._exponent(self.value), self.value


def whole(label: str, low: int, high: int, value: int) -> ipywidgets.IntSlider:
    """A slider over the whole numbers from low to high."""
    return ipywidgets.IntSlider(value=value, min=low, max=high, description=label, style=_LABEL, layout=_WIDE)


def real(label: str, low: float, high: float, value: float, step: float) -> ipywidgets.FloatSlider:
    """A slider over the numbers from low to high, step by step."""
    return ipywidgets.FloatSlider(
        value=value, min=low, max=high, step=step, description=label, style=_LABEL, layout=_WIDE
    )


def menu(label: str, options, value) -> ipywidgets.Dropdown:
    """One of several names."""
    return ipywidgets.Dropdown(options=list(options), value=value, description=label, style=_LABEL, layout=_WIDE)


class Checks(ipywidgets.VBox):
    """A list of names with a box before each; `value` is the tuple of those ticked, in the list's order."""

    value = traitlets.Tuple()

    def __init__(self, label: str, options, value=None, width: str = "120px"):
        self.options = tuple(options)
        self._boxes = {
            name: ipywidgets.Checkbox(description=name, indent=False, layout={"width": width}) for name in self.options
        }
        super().__init__(
            [
                ipywidgets.HTML(html.escape(label)),
                ipywidgets.Box(list(self._boxes.values()), layout={"flex_flow": "row wrap"}),
            ]
        )
        self._setting = False
        for box in self._boxes.values():
            box.observe(self._ticked, names="value")
        self.value = self.options if value is None else tuple(value)

    def _ticked(self, _change):
        if not self._setting:
            self.value = tuple(name for name, box in self._boxes.items() if box.value)

    @traitlets.validate("value")
    def _known(self, proposal):
        strange = [name for name in proposal["value"] if name not in self.options]
        if strange:
            raise traitlets.TraitError(f"got {strange[0]!r}, expected names out of: {', '.join(self.options)}")
        return tuple(name for name in self.options if name in proposal["value"])

    @traitlets.observe("value")
    def _show(self, _change):
        self._setting = True
        for name, box in self._boxes.items():
            box.value = name in self.value
        self._setting = False


class Panel:
    """Controls, a picture and a caption, redrawn whenever a control moves.

    In scripts and tests a panel is read through `values`, `alt`, `caption` and `png`, and moved with `set`.

    Args:
        title: Stands above the controls.
        figure: From `canvas`.
        controls: {name: ipywidgets control}.
        draw: Called with the controls' values as keywords; moves the figure's artists and returns the text alternative,
            whose first sentence becomes the caption. It may run in another thread than the notebook's cells, one call
            at a time.

    Attributes:
        alt: The picture's text alternative.
        caption: Its first sentence, under the picture; empty where it is longer than LINE.
        png: The picture.
        error: What the last redraw raised.
    """

    def __init__(self, title: str, figure: Figure, controls: dict, draw):
        self.title, self.figure, self.controls = title, figure, dict(controls)
        self.alt, self.caption, self.png, self.error = "", "", b"", ""
        self._draw, self._lock, self._setting = draw, threading.RLock(), False
        self._moving = sorted((a for a in figure.findobj() if a.get_animated()), key=lambda a: a.get_zorder())
        self._ground = None  # the pixels of what is not animated
        self._page = ipywidgets.HTML()
        self._size = [round(inches * 100) for inches in figure.get_size_inches()]  # width, height in CSS pixels
        self._picture = ""
        self._redraw()
        for control in self.controls.values():
            control.observe(self._moved, names="value")
        bases = {control.label: control.base for control in self.controls.values() if isinstance(control, Powers)}
        speak = html.escape(_SPEAK.replace("BASES", json.dumps(bases)))
        self.box = ipywidgets.VBox(
            [
                ipywidgets.HTML(f'<b>{html.escape(title)}</b><style onload="{speak}">{_STYLE}</style>'),
                ipywidgets.Box(
                    list(self.controls.values()), layout={"flex_flow": "row wrap", "max_width": f"{WIDTH}px"}
                ),
                self._page,
            ]
        )
        self.box.add_class("bytes-first")

    @property
    def values(self) -> dict:
        """{control's name: its value}, as `draw` gets them."""
        return {name: control.value for name, control in self.controls.items()}

    def set(self, **values) -> "Panel":
        """Moves several controls, then redraws once."""
        unknown = [name for name in values if name not in self.controls]
        if unknown:
            raise ValueError(
                f"{unknown[0]}: {self.title!r} has no such control, expected one of " + ", ".join(self.controls)
            )
        with self._lock:
            self._setting = True
            try:
                for name, value in values.items():
                    try:
                        self.controls[name].value = value
                    except traitlets.TraitError as error:
                        options = getattr(self.controls[name], "options", None)
                        expected = f"expected one of {', '.join(map(str, options))}" if options else error
                        raise ValueError(f"{name}: got {value!r}, {expected}") from None
            finally:  # after a bad value too, the picture shows what the controls say
                self._setting = False
                self._redraw()
        return self

    def _moved(self, _change):
        with self._lock:
            if self._setting:
                return
            try:
                self._redraw()
            except Exception as error:  # a callback's traceback reaches no one: say it in the panel
                self.error = f"{type(error).__name__}: {error}"
                self._publish()

    def _redraw(self):
        with self._lock:
            self.alt = self._draw(**self.values)
            self.caption = caption_of(self.alt)
            self.png = self._render()
            self._picture = base64.b64encode(self.png).decode("ascii")
            self.error = ""
            self._publish()

    def _render(self) -> bytes:
        canvas = self.figure.canvas
        if self._ground is None or self.figure.stale:  # animated artists make nothing stale, and draw() omits them
            canvas.draw()
            self._ground = canvas.copy_from_bbox(self.figure.bbox)
        canvas.restore_region(self._ground)
        pixels = np.asarray(canvas.buffer_rgba())
        for artist in self._moving:
            if letters.simple(artist):
                letters.write(artist, pixels, self.figure.dpi)
            else:
                artist.draw(canvas.get_renderer())
        return encoded(pixels)

    def _publish(self):
        width, height = self._size
        error = f'<p role="alert" style="color:#b00020">{html.escape(self.error)}</p>' if self.error else ""
        self._page.value = (
            f'<div class="bytes-first-card">{error}'
            f'<div><img alt="{html.escape(self.alt)}" width="{width}" height="{height}" decoding="sync" '
            f'style="max-width:100%;min-width:{min(width, READABLE)}px;height:auto" '
            f'src="data:image/png;base64,{self._picture}"></div>'
            f'<p role="status" aria-live="polite" style="line-height:1.4;margin:4px 0 0">'
            f"{html.escape(self.caption)}</p>"
            "</div>"
        )

    def __repr__(self):
        return f"{self.title}. {self.alt}"

    def _ipython_display_(self):
        width, height = self._size
        show(
            self.box,
            {"text/plain": repr(self), "image/png": self._picture},
            {
                "image/png": {"width": width, "height": height, "alt": self.alt},
                "title": self.title,
                "caption": self.caption,
            },
        )


def show(box: ipywidgets.Widget, still: dict, metadata: dict | None = None):
    """Displays a widget with what to show where no Python runs: `still` maps mime types to data."""
    if "google.colab" in sys.modules:  # Colab wants the plain widget; a bundle shows only its still part there
        display(box)
        return
    view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
    display({"application/vnd.jupyter.widget-view+json": view, **still}, metadata=metadata or {}, raw=True)
