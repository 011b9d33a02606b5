import base64
import io
import re
import subprocess
import sys
import threading
import types
from pathlib import Path

import ipywidgets
import numpy as np
import pytest
from PIL import Image

from widgets.toolkit import panel as panels
from widgets.toolkit.panel import Checks, Panel, Powers, canvas, menu, whole


@pytest.fixture
def panel():
    figure = canvas(400, 200)
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.set(xlim=(0, 10), ylim=(0, 1), xticks=[], yticks=[])
    (bar,) = axes.barh(0.5, 0, 0.5, color=panels.ORANGE, animated=True)

    def draw(cols, kind):
        if cols == 13:
            raise RuntimeError("13 <brings> bad luck")
        bar.set_width(cols)
        return f'{cols} columns & "{kind}". More, for the text alternative alone.'

    return Panel("Bars", figure, {"cols": whole("columns", 0, 20, 3), "kind": menu("kind", ("a", "b"), "a")}, draw)


def _page(panel) -> str:
    return panel.box.children[-1].value


def _orange(panel) -> int:
    image = Image.open(io.BytesIO(panel.png)).convert("RGB")
    return sum(count for count, colour in image.getcolors(1 << 20) if colour == (230, 159, 0))


def test_a_moved_control_changes_text_and_picture(panel):
    assert panel.caption == '3 columns & "a".' and panel.alt.startswith(panel.caption + " More")
    few = _orange(panel)
    panel.controls["cols"].value = 6
    assert panel.caption == '6 columns & "a".'
    assert _orange(panel) == pytest.approx(2 * few, rel=0.03)
    panel.controls["cols"].value = 3
    assert _orange(panel) == few, "nothing of the longer bar stays behind"


def test_the_page_holds_picture_text_alternative_and_caption(panel):
    page = _page(panel)
    escaped = "3 columns &amp; &quot;a&quot;."
    assert re.search(rf'<p role="status" aria-live="polite"[^>]*>{escaped}</p>', page)
    assert f'<img alt="{escaped} More, for the text alternative alone." width="400" height="200"' in page
    assert page.index("<img") < page.index("role="), "the caption stands under the picture"
    assert page.count("text alternative alone") == 1, "the text alternative is not printed"
    encoded = re.search(r"data:image/png;base64,([^\"]+)", page)[1]
    assert base64.b64decode(encoded) == panel.png
    assert Image.open(io.BytesIO(panel.png)).convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_set_moves_several_and_redraws_once(panel):
    seen = []
    panel.box.children[-1].observe(seen.append, names="value")
    assert panel.set(cols=9, kind="b").values == {"cols": 9, "kind": "b"}
    assert panel.caption == '9 columns & "b".' and len(seen) == 1


def test_set_names_what_is_wrong(panel):
    with pytest.raises(ValueError, match="rows: 'Bars' has no such control, expected one of cols, kind"):
        panel.set(rows=1)
    with pytest.raises(ValueError, match="kind: got 'c', expected one of a, b"):
        panel.set(cols=5, kind="c")
    assert panel.caption == '5 columns & "a".', "the picture agrees with the controls all the same"


def test_an_error_stands_in_the_panel_until_the_next_success(panel):
    before = panel.png
    panel.controls["cols"].value = 13
    assert '<p role="alert" style="color:#b00020">RuntimeError: 13 &lt;brings&gt; bad luck</p>' in _page(panel)
    assert panel.png == before
    panel.controls["cols"].value = 4
    assert panel.error == "" and 'role="alert"' not in _page(panel)
    with pytest.raises(RuntimeError):
        panel.set(cols=13)


def test_callbacks_of_several_threads_leave_one_picture(panel):
    def slide(values):
        for value in values:
            panel.controls["cols"].value = value

    threads = [threading.Thread(target=slide, args=([*range(i, 12), 12 - i] * 3,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert panel.error == ""
    assert panel.alt.startswith(f"{panel.controls['cols'].value} ")
    assert base64.b64encode(panel.png).decode() in _page(panel)


def test_a_figure_without_animated_artists_is_redrawn_whole():
    figure = canvas(300, 150)
    text = figure.text(0.1, 0.5, "")
    panel = Panel("Text", figure, {"n": whole("n", 0, 9, 1)}, lambda n: text.set_text("#" * n) or f"{n}")
    first = panel.png
    panel.set(n=5)
    assert panel.png != first
    panel.set(n=1)
    assert panel.png == first


def test_a_caption_is_the_first_sentence_where_a_line_holds_it():
    assert panels.caption_of("7 columns, 1.5 times as many. More.") == "7 columns, 1.5 times as many."
    assert panels.caption_of("x" * panels.LINE + ". More.") == ""


def test_a_png_has_few_colours_near_those_of_the_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (70, 130, 4), dtype=np.uint8)
    flat = dict(enumerate((panels.ORANGE, panels.BLUE, "#ececec", "#ffffff", "#c9c9c9")))
    for at, colour in flat.items():
        pixels[:, 20 * at : 20 * at + 20, :3] = list(bytes.fromhex(colour[1:]))
    image = Image.open(io.BytesIO(panels.encoded(pixels))).convert("RGB")
    assert len(image.getcolors()) <= 256 and image.size == (130, 70)
    for at, colour in flat.items():
        seen = np.asarray(image)[:, 20 * at : 20 * at + 20]
        assert np.abs(seen.astype(int) - list(bytes.fromhex(colour[1:]))).max() < 16, colour
    assert image.getpixel((45, 5)) != image.getpixel((65, 5)), "a pale ground is no white"


def test_no_picture_has_a_ground_too_pale_for_its_colours():
    for file in Path(panels.__file__).parents[1].rglob("*.py"):
        drawn = file.read_text(encoding="utf-8").replace("background:#f7f7f7", "")  # a source's, which is HTML
        pale = [colour for colour in re.findall(r"#[0-9a-fA-F]{6}", drawn) if colour[1::2].lower() == "fff"]
        assert set(pale) <= {"#ffffff"}, f"{file.name}: {pale}"


def test_it_shows_a_widget_and_a_still_picture(panel, monkeypatch):
    shown = []
    monkeypatch.setattr(panels, "display", lambda *args, **kwargs: shown.append((args, kwargs)))
    panel._ipython_display_()
    (((bundle,), options),) = shown
    assert options["raw"] is True and options["metadata"] == {
        "image/png": {"width": 400, "height": 200, "alt": panel.alt},
        "title": "Bars",
        "caption": '3 columns & "a".',
    }
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == panel.box.model_id
    assert base64.b64decode(bundle["image/png"]) == panel.png
    assert bundle["text/plain"] == f"Bars. {panel.alt}"


def test_colab_gets_the_plain_widget(panel, monkeypatch):
    shown = []
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    monkeypatch.setattr(panels, "display", lambda *args, **kwargs: shown.append((args, kwargs)))
    panel._ipython_display_()
    assert shown == [((panel.box,), {})]


def test_pyplot_is_never_touched():
    code = (
        "import sys, widgets; widgets.fusion_savings().set(rows=4); widgets.roofline().set(n=64); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3]).returncode == 0


class TestPowers:
    def test_slider_and_field_follow_each_other(self):
        powers = Powers("rows", 0, 20, 8192)
        slider, field = powers.children
        assert (slider.value, field.value, powers.value) == (13, 8192, 8192)
        slider.value = 14
        assert (field.value, powers.value) == (16384, 16384)
        field.value = 5000
        assert (slider.value, powers.value) == (12, 5000)

    def test_the_page_reporting_the_slider_back_changes_nothing(self):
        powers = Powers("FLOPs", 3, 15, 1.234e9, base=10, step=0.1)
        powers.children[0].value = 9.1 + 1e-12
        assert powers.value == 1.234e9

    def test_limits(self):
        powers = Powers("rows", 0, 20, 8192)
        with pytest.raises(Exception, match="expected 1 to 1,048,576"):
            powers.value = 2**21

    def test_a_field_for_powers_alone_takes_the_nearest(self):
        powers = Powers("BLOCK_M", 4, 10, 128, alone=True)
        slider, field = powers.children
        for typed, taken in ((192, 256), (180, 128), (129, 128), (1000, 1024)):
            field.value = typed
            assert (powers.value, field.value, slider.value) == (taken, taken, taken.bit_length() - 1)
        with pytest.raises(Exception, match="expected a power of 2 from 16 to 1,024"):
            powers.value = 192


class TestChecks:
    def test_boxes_and_value_follow_each_other_in_the_lists_order(self):
        checks = Checks("Ops:", ("a", "b", "c"))
        assert checks.value == ("a", "b", "c")
        boxes = [w for w in checks.children[1].children if isinstance(w, ipywidgets.Checkbox)]
        boxes[1].value = False
        assert checks.value == ("a", "c")
        checks.value = ("c", "b")
        assert checks.value == ("b", "c") and [box.value for box in boxes] == [False, True, True]

    def test_unknown_names_are_refused(self):
        with pytest.raises(Exception, match="got 'd', expected names out of: a, b, c"):
            Checks("Ops:", ("a", "b", "c")).value = ("a", "d")
