"""Colab ships ipywidgets 7.7.1: what a later version added must not creep in."""

import ast
from pathlib import Path

import ipywidgets
import pytest

WIDGETS = Path(__file__).resolve().parents[2] / "widgets"

COMMON = {"layout", "style", "description", "disabled", "value"}
SLIDER = COMMON | {"min", "max", "step", "readout", "readout_format", "continuous_update", "orientation"}
IN_7_7_1 = {  # name: its traits, of which `tooltip` on all but buttons came with 8
    "HTML": COMMON - {"disabled"} | {"placeholder"},
    "Widget": set(),
    "Text": COMMON | {"placeholder", "continuous_update"},
    "Button": {"layout", "style", "description", "disabled", "tooltip", "icon", "button_style"},
    "Box": {"children", "layout"},
    "HBox": {"children", "layout"},
    "VBox": {"children", "layout"},
    "Checkbox": COMMON | {"indent"},
    "ToggleButton": COMMON | {"tooltip", "icon", "button_style"},
    "Dropdown": COMMON | {"options", "index"},
    "IntSlider": SLIDER,
    "FloatSlider": SLIDER,
    "BoundedFloatText": COMMON | {"min", "max", "step", "continuous_update"},
}


def _uses():
    for path in sorted(WIDGETS.rglob("*.py")):
        tree = ast.parse(path.read_text())
        calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] != "ipywidgets", f"{path.name}: write ipywidgets.NAME"
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "ipywidgets":
                call = calls.get(id(node))
                yield path.name, node.attr, {k.arg for k in call.keywords} if call else set()


def test_only_what_7_7_1_has():
    uses = list(_uses())
    assert len(uses) > 10
    for file, name, arguments in uses:
        assert name in IN_7_7_1, f"{file}: ipywidgets.{name} is not known to be in 7.7.1"
        assert arguments <= IN_7_7_1[name], f"{file}: ipywidgets.{name} of 7.7.1 has no {arguments - IN_7_7_1[name]}"


@pytest.mark.parametrize("name", IN_7_7_1)
def test_the_installed_version_has_it_too(name):
    assert IN_7_7_1[name] <= set(getattr(ipywidgets, name).class_trait_names())
