"""Shows the source of a kernel, as it stands in kernels/, inside a notebook."""

import html
import inspect
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

ROOT = Path(__file__).resolve().parents[1]

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
    inner = shown
    while not (inspect.isfunction(inner) or inspect.isclass(inner) or inspect.ismodule(inner)):
        if not hasattr(inner, "fn"):
            raise ValueError(f"shown: got {shown!r}, expected a kernel, a function, a class or a module")
        inner = inner.fn
    return inspect.unwrap(inner)


class Source:
    """The source of some functions: highlighted with file and line numbers as HTML, the bare source as text."""

    def __init__(self, *shown):
        self.parts = []  # (file, first line, source text)
        for each in shown:
            function = _function(each)
            lines, first = inspect.getsourcelines(function)
            file = Path(inspect.getsourcefile(function)).resolve()
            name = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.name
            self.parts.append(
                (
                    name,
                    max(first, 1),
                    inspect.cleandoc("".join(lines)) if lines[0][:1] == " " else "".join(lines).rstrip("\n"),
                )
            )

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


def show_source(shown, *more) -> Source:
    """The source of a kernel, function, class or module, and of any more given after it, to display in a notebook."""
    return Source(shown, *more)
