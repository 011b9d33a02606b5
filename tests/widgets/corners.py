"""Every panel at the corners of its ranges: what its texts say and where they lie.

    python tests/widgets/corners.py FOLDER [NAME ...]

writes a contact sheet per panel into FOLDER, to be looked at; test_corners.py holds that no words lie on others.
"""

import io
import itertools
import random
import sys
from pathlib import Path

import ipywidgets
import numpy as np
import torch
from matplotlib.text import Text
from PIL import Image, ImageDraw

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

import widgets  # noqa: E402
from kernels.elementwise.copy import copy  # noqa: E402
from kernels.matmul.tiled import matmul  # noqa: E402
from widgets.toolkit.cells import Pixels  # noqa: E402
from widgets.toolkit.panel import Checks, Powers  # noqa: E402

#: `watch` is handed a kernel.
WATCHED = {
    "watch": lambda: widgets.watch(copy, torch.rand(20_000)),
    "watch a product": lambda: widgets.watch(matmul, torch.rand(70, 48), torch.rand(48, 90), path="tiled"),
}
NAMES = [*widgets.PANELS, *WATCHED]
MOST = 500  # corners of a panel; of more, so many are drawn by lot, the same ones every time
BETWEEN = 200  # settings inside the ranges, drawn by lot


def made(name: str):
    """The panel of this name."""
    return WATCHED[name]() if name in WATCHED else getattr(widgets, name)()


def ends(control) -> list:
    """The values between which a control goes; all of a menu's, and for boxes none, all, and each alone."""
    if isinstance(control, Powers):
        return [control.least, control.most]
    if isinstance(control, Checks):
        return [(), control.options, *((name,) for name in control.options)]
    if isinstance(control, ipywidgets.Dropdown):
        return list(control.options)
    return [False, True] if isinstance(control, ipywidgets.Checkbox) else [control.min, control.max]


def between(control, lot: random.Random):
    """Any value of a control, by lot."""
    if isinstance(control, Powers):
        value = control.least * (control.most / control.least) ** lot.random()
        return float(round(control.base ** control._exponent(value) if control._alone else value))
    if isinstance(control, Checks):
        return tuple(name for name in control.options if lot.random() < 0.5)
    if isinstance(control, ipywidgets.IntSlider):
        return lot.randint(control.min, control.max)
    return lot.choice(ends(control))


def corners(panel, most: int = MOST) -> list:
    """Settings, each {control: value}: the corners of a panel's ranges, all of them or so many by lot."""
    sides = {name: ends(control) for name, control in panel.controls.items()}
    every = [dict(zip(sides, values)) for values in itertools.product(*sides.values())]
    return every if len(every) <= most else random.Random(0).sample(every, most)


def settings(panel) -> list:
    """The corners of a panel's ranges, and places inside them."""
    lot = random.Random(1)
    inside = [{name: between(c, lot) for name, c in panel.controls.items()} for _ in range(BETWEEN)]
    return [panel.values, *corners(panel), *inside]


def texts_of(figure) -> list:
    """The figure's texts, those along its axes included: the same ones as long as the axes keep their limits."""
    ticks, labels = set(), set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        labels.update(_tick_texts(axis))
        ticks.update(text for tick in (*axis.majorTicks, *axis.minorTicks) for text in (tick.label1, tick.label2))
    return [text for text in figure.findobj(Text) if text not in ticks or text in labels]


def _tick_texts(axis) -> list:
    """The labels of an axis that lie within its limits: matplotlib draws no others."""
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_majorticklocs(), axis.get_ticklabels())
    shown = axis.get_visible() and axis.axes.axison
    return [text for place, text in ticks if shown and low <= place <= high]


def faults(figure, texts: list | None = None, slack: float = 1) -> list:
    """What is wrong with a figure's words, a sentence each.

    Two that overlap, one that leaves the picture, one that lies in axes which are not its own. texts: what
    `texts_of` gives, where it is known already. slack: pixels by which boxes may overlap, as letters do not fill them.
    """
    seen = [each for each in texts or texts_of(figure) if each.get_visible() and each.get_text().strip()]
    words = [(text.get_text(), text.axes, text.get_window_extent().extents) for text in seen]
    words += [(said, None, box) for page in figure.artists if isinstance(page, Pixels) for said, box in page.boxes()]
    if not words:
        return []
    boxes = np.array([box for *_, box in words])
    out = (boxes[:, :2] < -slack).any(1) | (boxes[:, 2:] > figure.bbox.extents[2:] + slack).any(1)
    found = [f"{words[i][0]!r} leaves the picture" for i in np.flatnonzero(out)]
    for axes in figure.axes:
        inside = _overlaps(boxes, axes.bbox.extents[None], slack)[:, 0]
        strange = [words[i][0] for i in np.flatnonzero(inside) if words[i][1] is not axes]
        found += [f"{said!r} lies in axes that are not its own" for said in strange]
    pairs = np.argwhere(np.triu(_overlaps(boxes, boxes, slack), 1))
    return found + [f"{words[i][0]!r} and {words[j][0]!r} overlap" for i, j in pairs]


def _overlaps(boxes, others, slack: float) -> np.ndarray:
    """Which of the boxes lie on which of the others: [boxes, others]."""
    shared = np.minimum(boxes[:, None, 2:], others[:, 2:]) - np.maximum(boxes[:, None, :2], others[:, :2])
    return (shared > slack).all(2)


def sheet(name: str, most: int = 9) -> Image.Image:
    """Pictures of a panel at corners of its ranges, two abreast, settings and text alternative above each."""
    panel = made(name)
    chosen = [panel.values, *corners(panel, most)]
    width, height = (round(each) for each in panel.figure.bbox.size)
    page = Image.new("RGB", (2 * width + 10, -(-len(chosen) // 2) * (height + 60)), "white")
    pen = ImageDraw.Draw(page)
    for place, values in enumerate(chosen):
        panel.set(**values)
        x, y = place % 2 * (width + 10), place // 2 * (height + 60)
        text = panel.alt
        pen.text((x + 4, y + 2), ", ".join(f"{key} {value}" for key, value in values.items())[:150], fill="#0000aa")
        for line in range(3):
            pen.text((x + 4, y + 14 + 12 * line), text[line * 150 : (line + 1) * 150], fill="black")
        pen.line((x, y, x + width, y), fill="#888888")
        page.paste(Image.open(io.BytesIO(panel.png)), (x, y + 56))
    return page


def main(folder: str, *names: str):
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name in names or NAMES:
        sheet(name).save(Path(folder) / f"{name}.png")
        print(Path(folder) / f"{name}.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
