"""The builder of every panel: a dictionary of controls, one reused picture, one sentence that reads it.

A panel's file draws its picture once, on a figure from `canvas()`, and keeps the artists. It then hands over a
function that moves those artists to new values and returns the sentence:

    figure = canvas()
    axes = figure.add_axes((0.1, 0.15, 0.85, 0.8))
    (line,) = axes.plot([], [])

    def draw(cols):
        line.set_data(...)
        return f"Rows of {cols} columns move ..."

    Panel("Row width", figure, {"cols": powers("columns", 6, 16, value=4096)}, draw)

Redrawing is fast because nothing is made anew: the figure never passes through pyplot (callbacks run in another
thread than the cells), no layout engine runs, the PNG is hardly compressed, and picture and sentence travel to the
page in one message. Everything here is in the API of ipywidgets 7.7.1, which Colab ships.
"""

import base64
import html
import io
import sys
import threading

import ipywidgets
import traitlets
from IPython.display import display
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

#: Okabe and Ito's colours, told apart by colour-blind readers. Panels add hatches or markers all the same.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")

WIDTH, HEIGHT = 760, 330  # of a picture, in CSS pixels
SHARPNESS = 1.25  # picture pixels per CSS pixel: text stays crisp on dense screens, and a redraw stays fast


def canvas(width: int = WIDTH, height: int = HEIGHT) -> Figure:
    """An empty figure of so many CSS pixels, on a white ground, for a panel's artists."""
    figure = Figure(figsize=(width / 100, height / 100), dpi=100 * SHARPNESS, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def powers(label: str, low: float, high: float, value: float, base: float = 2, step: float = 1,
           readout: str = ".0f") -> ipywidgets.FloatLogSlider:
    """A slider over base**low ... base**high; any value between can be typed into its readout."""
    return ipywidgets.FloatLogSlider(value=value, base=base, min=low, max=high, step=step, readout_format=readout,
                                     description=label, style={"description_width": "84px"},
                                     layout={"width": "350px"})


def choice(label: str, options, value) -> ipywidgets.ToggleButtons:
    """One of a few names, all of them visible."""
    return ipywidgets.ToggleButtons(options=list(options), value=value, description=label,
                                    style={"description_width": "84px", "button_width": "58px"},
                                    layout={"width": "350px"})


def menu(label: str, options, value) -> ipywidgets.Dropdown:
    """One of many names."""
    return ipywidgets.Dropdown(options=list(options), value=value, description=label,
                               style={"description_width": "84px"}, layout={"width": "350px"})


class Checks(ipywidgets.VBox):
    """A list of names with a box before each; `value` is the tuple of those ticked, in the list's order."""

    value = traitlets.Tuple()

    def __init__(self, label: str, options, value=None, width: str = "172px"):
        self.options = tuple(options)
        self._boxes = {name: ipywidgets.Checkbox(description=name, indent=False, layout={"width": width})
                       for name in self.options}
        super().__init__([
            ipywidgets.HTML(html.escape(label)),
            ipywidgets.Box(list(self._boxes.values()), layout={"flex_flow": "row wrap"})])
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
            raise traitlets.TraitError(f"got {strange[0]!r}, expected names out of {', '.join(self.options)}")
        return tuple(name for name in self.options if name in proposal["value"])

    @traitlets.observe("value")
    def _show(self, _change):
        self._setting = True
        for name, box in self._boxes.items():
            box.value = name in self.value
        self._setting = False


class Panel:
    """Controls, a picture and the sentence that reads it, redrawn whenever a control moves.

    controls: {name: ipywidgets control}. draw(**values): moves the figure's artists and returns the sentence. It may
    run in another thread than the notebook's cells, one call at a time. In scripts and tests a panel is read through
    `values`, `sentence`, `png` and moved with `set`.
    """

    def __init__(self, title: str, figure: Figure, controls: dict, draw):
        self.title, self.figure, self.controls = title, figure, dict(controls)
        self.sentence, self.png, self.error = "", b"", ""
        self._draw, self._lock, self._setting = draw, threading.RLock(), False
        self._page = ipywidgets.HTML()
        width, height = figure.get_size_inches() * 100
        self._size = f'width="{width:.0f}" height="{height:.0f}"'
        self._picture = ""
        self._redraw()
        for control in self.controls.values():
            control.observe(self._moved, names="value")
        self.box = ipywidgets.VBox([
            ipywidgets.HTML(f"<b>{html.escape(title)}</b>"),
            ipywidgets.Box(list(self.controls.values()), layout={"flex_flow": "row wrap"}),
            self._page])

    @property
    def values(self) -> dict:
        """{control's name: its value}, as `draw` gets them."""
        return {name: control.value for name, control in self.controls.items()}

    def set(self, **values) -> "Panel":
        """Moves several controls, then redraws once."""
        unknown = [name for name in values if name not in self.controls]
        if unknown:
            raise ValueError(f"{unknown[0]}: {self.title!r} has no such control, expected one of "
                             + ", ".join(self.controls))
        with self._lock:
            self._setting = True
            try:
                for name, value in values.items():
                    try:
                        self.controls[name].value = value
                    except traitlets.TraitError as error:
                        raise ValueError(f"{name}: got {value!r}; {error}") from None
            finally:
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
            self.sentence = self._draw(**self.values)
            self.png = self._render()
            self._picture = base64.b64encode(self.png).decode("ascii")
            self.error = ""
            self._publish()

    def _render(self) -> bytes:
        buffer = io.BytesIO()
        self.figure.canvas.print_png(buffer, pil_kwargs={"compress_level": 1})
        return buffer.getvalue()

    def _publish(self):
        sentence = html.escape(self.sentence)
        error = f'<p role="alert" style="color:#b00020">{html.escape(self.error)}</p>' if self.error else ""
        self._page.value = (
            f'<p role="status" aria-live="polite" style="line-height:1.4;max-width:{WIDTH}px;margin:4px 0">{sentence}'
            f'</p>{error}<img alt="{sentence}" {self._size} decoding="sync" '
            f'style="max-width:100%;height:auto" src="data:image/png;base64,{self._picture}">')

    def __repr__(self):
        return f"{self.title}. {self.sentence}"

    def _ipython_display_(self):
        show(self.box, {"text/plain": repr(self), "image/png": self._picture})


def show(box: ipywidgets.Widget, still: dict):
    """Displays a widget with what to show where no Python runs: `still` maps mime types to data."""
    if "google.colab" in sys.modules:  # Colab wants the plain widget; a bundle shows only its still part there
        display(box)
        return
    view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
    display({"application/vnd.jupyter.widget-view+json": view, **still}, raw=True)
