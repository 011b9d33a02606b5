"""Panels with sliders, predictions, and kernels' sources, for the lessons.

A panel needs no entry here: each file with an EXAMPLE offers the function that has the file's name.
"""

import importlib
import pkgutil

from widgets.panel import Panel
from widgets.portrait import portrait
from widgets.predict import predict, predictions
from widgets.source import show_source
from widgets.table import table
from widgets.watch import watch  # no EXAMPLE: what it and portrait show is a kernel of the caller's

#: {name of a panel: its Example}
PANELS = {}
for _name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    _module = importlib.import_module(f"widgets.{_name}")
    if hasattr(_module, "EXAMPLE"):
        PANELS[_name] = _module.EXAMPLE
        globals()[_name] = getattr(_module, _name)

__all__ = ["PANELS", "Panel", "portrait", "predict", "predictions", "show_source", "table", "watch", *PANELS]
