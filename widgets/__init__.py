"""Panels with sliders, predictions, and kernels' sources, for the lessons.

panels/    a panel per file: `from widgets import roofline`
drawings/  still pictures: of attention, FP8, mixture of experts, precision; plots of a lesson's figures
toolkit/   what panels are built from: controls, letters, tables, sources, guesses
watch.py, portrait.py  a launch step by step, and a kernel's four numbers: for any kernel

What panels compute comes from kernels/: `..._traffic` functions, and models.py of a family, which lessons import too.
The sizes of an operator, for `portrait`, are declared in its family's operators.py.

A panel needs no entry here: each file of panels/ offers the function that has its name, and an EXAMPLE.
"""

import importlib
import pkgutil

from widgets import panels
from widgets.portrait import portrait
from widgets.toolkit.panel import Panel
from widgets.toolkit.predict import predict, predictions
from widgets.toolkit.source import show_source
from widgets.toolkit.table import table
from widgets.watch import watch  # no EXAMPLE: what it and portrait show is a kernel of the caller's

#: {name of a panel: its Example}
PANELS = {}
for _name in sorted(module.name for module in pkgutil.iter_modules(panels.__path__)):
    _module = importlib.import_module(f"widgets.panels.{_name}")
    PANELS[_name] = _module.EXAMPLE
    globals()[_name] = getattr(_module, _name)

__all__ = ["PANELS", "Panel", "portrait", "predict", "predictions", "show_source", "table", "watch", *PANELS]
