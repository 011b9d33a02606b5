"""Each panel is found by its file, and says what its EXAMPLE promises."""

import importlib
import inspect
import pkgutil

import ipywidgets
import pytest

import widgets
from widgets import PANELS, Panel, panels
from widgets.panels.float_bits import Bits
from widgets.toolkit.panel import Powers

SPANS = ("block_scaling", "float_bits", "number_line")  # whose rectangles on a logarithmic axis are ranges of it


def test_every_panel_has_an_example():
    """But for those that show what a caller hands them."""
    for module in pkgutil.iter_modules(panels.__path__):
        made = getattr(importlib.import_module(f"widgets.panels.{module.name}"), module.name, None)
        if inspect.isfunction(made) and inspect.signature(made).return_annotation is Panel:
            alone = all(p.default is not p.empty for p in inspect.signature(made).parameters.values())
            assert module.name in PANELS or not alone, f"widgets/panels/{module.name}.py: no EXAMPLE"


@pytest.mark.parametrize("name", PANELS)
def test_what_is_typed_beside_the_first_slider_is_told(name):
    example = PANELS[name]
    panel = getattr(widgets, name)(**example.arguments)
    assert example.text not in panel.alt
    assert "`" not in panel.caption + panel.alt + panel.title  # plain text, which nothing renders
    slider = next(k for k, c in panel.controls.items() if isinstance(c, (Powers, Bits, ipywidgets.IntSlider)))
    assert example.text in panel.set(**{slider: int(example.entry)}).alt


@pytest.mark.parametrize("name", PANELS)
def test_no_bar_stands_on_a_logarithmic_axis(name):
    axes = getattr(widgets, name)().figure.axes
    for each in (each for each in axes if "log" in each.get_xscale() + each.get_yscale()):
        assert not each.containers and (name in SPANS or not each.patches)
