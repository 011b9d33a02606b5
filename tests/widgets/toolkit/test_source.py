import inspect
import re

import pytest

from instruments.backend import triton
from kernels.matmul.descriptors import matmul_specialized_kernel
from kernels.norms.rmsnorm import rmsnorm, rmsnorm_resident_kernel
from widgets import show_source
from widgets.toolkit.panel import Panel


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
    "shown", [rmsnorm_resident_kernel, rmsnorm, Panel, StandIn(plain), StandIn(StandIn(rmsnorm_resident_kernel))]
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
    page = show_source(rmsnorm_resident_kernel)._repr_html_()
    lines, first = inspect.getsourcelines(rmsnorm_resident_kernel.fn)
    assert f"<b>kernels/norms/rmsnorm.py</b>, lines {first} to {first + len(lines) - 1}" in page
    assert f">{first}  </span>" in page


def test_autotuned_kernels_show_the_kernel():
    tuned = triton.autotune(configs=[], key=[])(rmsnorm_resident_kernel)
    assert repr(show_source(tuned)) == repr(show_source(rmsnorm_resident_kernel))


def test_several_at_once():
    shown = show_source(plain, rmsnorm)
    assert len(shown.parts) == 2 and shown._repr_html_().count("<pre") == 2


def test_what_has_no_source_is_named():
    with pytest.raises(ValueError, match="shown: got 3, expected a kernel"):
        show_source(3)


def test_part_of_a_kernel_is_shown_with_its_line_numbers():
    ((_, start, whole),) = show_source(rmsnorm_resident_kernel).parts
    ((_, first, part),) = show_source(rmsnorm_resident_kernel, first="tl.program_id", last="tl.load").parts
    lines = part.splitlines()
    assert "tl.program_id" in lines[0] and "tl.load" in lines[-1]
    assert whole.splitlines()[first - start].strip() == lines[0].strip()
    ((_, _, loop),) = show_source(matmul_specialized_kernel, first="for k in", last="tl.dot").parts
    assert [line[:4] for line in loop.splitlines()] == ["for ", "    "]
    with pytest.raises(ValueError, match="first: no line has 'nowhere'"):
        show_source(rmsnorm_resident_kernel, first="nowhere")
