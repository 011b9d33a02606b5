import inspect
import re

import pytest

from instruments.backend import triton
from kernels import rmsnorm
from widgets import show_source
from widgets.panel import Panel


class StandIn:
    """What stands for a kernel where there is no triton: it holds the function."""

    def __init__(self, fn):
        self.fn = fn


def plain(x):
    """Doubled."""
    return x + x  # 2 < 3 & so on


def _text(page: str) -> str:
    """What a page shows, line by line, without the line numbers."""
    import html

    body = re.search(r"<pre[^>]*>(.*?)</pre>", page, re.S)[1]
    body = re.sub(r'<span style="[^"]*user-select[^"]*">[^<]*</span>', "", body)
    return html.unescape(re.sub(r"<[^>]+>", "", body))


@pytest.mark.parametrize(
    "shown",
    [
        rmsnorm.rmsnorm_resident_kernel,
        rmsnorm.rmsnorm,
        Panel,
        StandIn(plain),
        StandIn(StandIn(rmsnorm.rmsnorm_resident_kernel)),
    ],
)
def test_page_and_text_hold_the_very_source(shown):
    function = shown
    while not (inspect.isfunction(function) or inspect.isclass(function)):
        function = function.fn
    source = inspect.getsource(function).rstrip("\n")
    shown = show_source(shown)
    assert repr(shown).endswith(source)
    assert _text(shown._repr_html_()) == source


def test_file_and_lines_are_named():
    page = show_source(rmsnorm.rmsnorm_resident_kernel)._repr_html_()
    lines, first = inspect.getsourcelines(rmsnorm.rmsnorm_resident_kernel.fn)
    assert f"<b>kernels/rmsnorm.py</b>, lines {first} to {first + len(lines) - 1}" in page
    assert f">{first}  </span>" in page


def test_autotuned_kernels_show_the_kernel():
    tuned = triton.autotune(configs=[], key=[])(rmsnorm.rmsnorm_resident_kernel)
    assert repr(show_source(tuned)) == repr(show_source(rmsnorm.rmsnorm_resident_kernel))


def test_several_at_once():
    shown = show_source(plain, rmsnorm.rmsnorm)
    assert len(shown.parts) == 2 and shown._repr_html_().count("<pre") == 2


def test_what_has_no_source_is_named():
    with pytest.raises(ValueError, match="shown: got 3, expected a kernel"):
        show_source(3)
