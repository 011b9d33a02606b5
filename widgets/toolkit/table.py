"""A table in a notebook: aligned, whole at any width, with a plain-text twin."""

import html

_RIGHT, _LEFT = "text-align:right", "text-align:left"


class Table:
    """Rows under headings; see `table`."""

    def __init__(self, columns: dict, rows: list, caption: str):
        self.columns, self.caption = dict(columns), caption
        self.numbers = [any(_is_number(row[i]) for row in rows) for i in range(len(self.columns))]
        self.rows = [[_said(value, form) for value, form in zip(row, self.columns.values())] for row in rows]

    def __repr__(self):
        lines = [list(self.columns), *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines)]
        text = [
            "  ".join(
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, number in zip(line, widths, self.numbers)
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.caption, *text] if self.caption else text)

    def _repr_html_(self):
        def line(cells, tag):
            looks = (_RIGHT if number else _LEFT for number in self.numbers)
            return "".join(f'<{tag} style="{look}">{html.escape(cell)}</{tag}>' for cell, look in zip(cells, looks))

        caption = f'<caption style="{_LEFT};caption-side:top">{html.escape(self.caption)}</caption>'
        return (
            f'<div style="overflow-x:auto"><table style="white-space:nowrap">{caption if self.caption else ""}'
            f"<thead><tr>{line(self.columns, 'th')}</tr></thead><tbody>"
            + "".join(f"<tr>{line(row, 'td')}</tr>" for row in self.rows)
            + "</tbody></table></div>"
        )


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _said(value, form: str) -> str:
    return "-" if value is None else format(value, form) if _is_number(value) else str(value)


def table(columns: dict, rows, caption: str = "") -> Table:
    """A table to display in a notebook: numbers to the right, words to the left, no line broken.

        table({"rows": ",", "fused, µs": ".1f", "limited by": ""}, [(8192, 65.8, "bytes"), (1, None, "launches")])

    columns: {heading, with its unit: the format of its numbers, as Python's `format` takes it}. rows: a value for each
    column; None is shown as "-". Raises ValueError where a row has another length.
    """
    rows = [tuple(row) for row in rows]
    for at, row in enumerate(rows):
        if len(row) != len(columns):
            raise ValueError(f"rows[{at}]: got {len(row)} values, expected {len(columns)}: {', '.join(columns)}")
    return Table(columns, rows, caption)
