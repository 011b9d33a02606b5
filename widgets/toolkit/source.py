"""Shows the source of a kernel, as it stands in kernels/, inside a notebook."""

import html
import inspect
import textwrap
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

ROOT = Path(__file__).resolve().parents[2]

_BOX = (
    "background:#f7f7f7;color:#222;border:1px solid #ddd;border-radius:4px;padding:8px 10px;margin:4px 0;"
    "overflow-x:auto;line-height:1.35;font-size:13px"
)
_LISTING = (  # whole, also on pages without JupyterLab's style
    "margin:0;background:transparent;color:inherit;font-size:inherit;line-height:inherit;"
    "font-family:monospace;white-space:pre;overflow-x:auto"
)
_NUMBER = "color:#767676;user-select:none;-webkit-user-select:none"


def _function(shown):
    """The plain Python function, class or module beneath jit, autotune and heuristics."""
    inner = inspect.unwrap(shown)
    while not (inspect.isfunction(inner) or inspect.isclass(inner) or inspect.ismodule(inner)):
        if not hasattr(inner, "fn"):
            raise ValueError(f"shown: got {shown!r}, expected a kernel, a function, a class or a module")
        inner = inner.fn
    return inspect.unwrap(inner)


class Source:
    """The source of some functions: highlighted with file and line numbers as HTML, the bare source as text."""

    def __init__(self, *shown, first: str = "", last: str = ""):
        self.parts = []  # (file, first line, source text)
        for each in shown:
            function = _function(each)
            lines, number = inspect.getsourcelines(function)
            start, stop = _cut(lines, first, last)
            lines, number = lines[start:stop], max(number, 1) + start
            file = Path(inspect.getsourcefile(function)).resolve()
            name = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.name
            self.parts.append((name, number, textwrap.dedent("".join(lines)).rstrip("\n")))

    def __repr__(self):
        return "\n\n\n".join(f"# {name}, line {first}\n{source}" for name, first, source in self.parts)

    def _repr_html_(self):
        return "".join(self._html(*part) for part in self.parts)

    @staticmethod
    def _html(name: str, first: int, source: str) -> str:
        formatter = HtmlFormatter(nowrap=True, noclasses=True, style="default")
        marked = highlight(source, PythonLexer(stripnl=False), formatter).rstrip("\n").split("\n")
        last = first + len(marked) - 1
        digits = len(str(last))
        body = "\n".join(
            f'<span style="{_NUMBER}">{number:>{digits}}  </span>{line}' for number, line in enumerate(marked, first)
        )
        return (
            f'<div style="{_BOX}"><div style="color:#555;font-family:sans-serif;margin-bottom:4px">'
            f"<b>{html.escape(name)}</b>, lines {first} to {last}</div>"
            f'<pre style="{_LISTING}">{body}</pre></div>'
        )


def _cut(lines: list, first: str, last: str) -> tuple[int, int]:
    """Where the part from the first line with `first` to the next one with `last` begins and ends."""
    start = next((at for at, line in enumerate(lines) if first in line), None)
    end = None if start is None else next((at for at in range(start, len(lines)) if last in lines[at]), None)
    if end is None:
        raise ValueError(f"{'first' if start is None else 'last'}: no line has {first if start is None else last!r}")
    return start, end + 1 if last else len(lines)


def show_source(shown, *more, first: str = "", last: str = "") -> Source:
    """The source of a kernel, function, class or module, and of any more given after it, to display in a notebook.

    first, last: words of the first and the last line to show, if not all of them.
    """
    return Source(shown, *more, first=first, last=last)
