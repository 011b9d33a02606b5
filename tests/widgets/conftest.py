import pytest

from tests.widgets.corners import faults
from widgets.toolkit.panel import Panel


@pytest.fixture(autouse=True)
def stills(monkeypatch):
    """Of every picture without controls that a test makes, the words keep clear of each other."""
    made, init = [], Panel.__init__
    monkeypatch.setattr(Panel, "__init__", lambda self, *given: made.append(self) or init(self, *given))
    yield
    for panel in made:
        assert panel.controls or faults(panel.figure) == [], panel.title
