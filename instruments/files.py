"""Files written whole or not at all, text written between markers, and tables that people wrote."""

import csv
import io
import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Put `content` at `path`: written and synced beside it under another name, then renamed. The folder must exist."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def between(text: str, begin: str, end: str, content: str) -> str:
    """`text` with `content` in the place of what stands between two markers, each of which it holds once."""
    before, rest = text.split(begin)
    return before + begin + content + end + rest.split(end)[1]


class BadTable(ValueError):
    """A table that a person wrote and that cannot be used; the text names the file, and the line that is wrong."""


def csv_rows(path: Path, name: str) -> list[tuple[str, list[str]]]:
    """The lines of a CSV file that a person wrote, as (place, cells), without empty lines and empty cells at the ends.

    Commas, semicolons or tabs are between cells, whichever the first line has most of. `name`: the file's, for people.
    A BadTable names the file, and the line that is wrong.
    """
    reader, rows = None, []
    try:
        text = path.read_text(encoding="utf-8-sig")
        first = text.partition("\n")[0]
        reader = csv.reader(io.StringIO(text), delimiter=max(",;\t", key=first.count), strict=True)
        for cells in reader:
            while cells and not cells[-1].strip():
                cells.pop()
            if cells:
                rows.append((f"{name}, line {reader.line_num}", [cell.strip() for cell in cells]))
    except csv.Error as error:
        raise BadTable(f"{name}, line {reader.line_num}: {error}") from None
    except (OSError, UnicodeError) as error:
        raise BadTable(f"{name}: cannot be read as CSV in UTF-8 ({error})") from None
    return rows
