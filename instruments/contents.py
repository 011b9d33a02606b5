"""The course's table of contents, in Markdown, from the notebooks themselves; the README shows it between its markers.

    python -m instruments.contents            write it into the README
    python -m instruments.contents --check    exit 1 where the README shows something else

A lesson is a notebook in lessons/. Its line has its title; from `bytes_first` in its metadata what it is `about`, its
`minutes` and the numbers of the lessons that it `needs`; and the exercise and the solution that are called after it.
A lesson whose text says "about 40 minutes" needs no `minutes`. An exercise takes the minutes of its tasks' cards.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from instruments.files import between, write_whole
from instruments.start import lesson_of, notebook_of

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- lessons:begin -->\n", "<!-- lessons:end -->\n"


@dataclass(frozen=True)
class Lesson:
    """What a lesson says of itself; '', 0 and () where it does not say."""

    title: str
    about: str
    minutes: int
    needs: tuple[str, ...]


class Cell(msgspec.Struct):
    """A notebook's cell, without what it shows."""

    cell_type: str
    source: str | list[str]
    metadata: dict = {}

    @property
    def text(self) -> str:
        return "".join(self.source)


class _Notebook(msgspec.Struct):
    cells: list[Cell]
    metadata: dict = {}


def cells_of(path: Path) -> list[Cell]:
    """A notebook's cells."""
    return msgspec.json.decode(path.read_bytes(), type=_Notebook).cells


def _read(path: Path) -> tuple[dict, str]:
    """A notebook's `bytes_first` metadata and the text of its Markdown cells."""
    nb = msgspec.json.decode(path.read_bytes(), type=_Notebook)
    text = "\n".join(cell.text for cell in nb.cells if cell.cell_type == "markdown")
    return nb.metadata.get("bytes_first", {}), text


def described(path: Path) -> Lesson:
    """What a lesson says of itself; ValueError where it has no title."""
    metadata, text = _read(path)
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    if not title:
        raise ValueError(f"{path}: has no title, expected a Markdown cell with a line '# NN Title'")
    minutes = re.search(r"\babout (\d+) minutes", text, re.IGNORECASE)
    return Lesson(
        title[1].strip(),
        metadata.get("about", ""),
        int(minutes[1]) if minutes else metadata.get("minutes", 0),
        tuple(metadata.get("needs", ())),
    )


def _exercise(lesson: str, course: str) -> str:
    """A link to a lesson's exercise, with the number of its tasks and their cards' minutes, '' where there is none."""
    exercise = notebook_of(lesson, "exercises")
    if not (ROOT / exercise).exists():
        return ""
    minutes = [int(found) for found in re.findall(r"· (\d+) minutes ·", _read(ROOT / exercise)[1])]
    tasks = f"{len(minutes)} task{'s' * (len(minutes) > 1)}, {sum(minutes)} min" if minutes else "exercise"
    return f"[{tasks}]({course}{exercise})"


def table(course: str = "") -> str:
    """A line per lesson, in the order of their numbers. course: the way to the course's folder, as '../'."""
    lines = ["| lesson | minutes | builds on | exercise | solution |", "|---|---:|---|---|---|"]
    for path in sorted((ROOT / "lessons").glob("*.ipynb")):
        lesson = described(path)
        solution = notebook_of(lesson_of(path.name), "solutions")
        cells = (
            f"[{lesson.title}]({course}lessons/{path.name})" + (f": {lesson.about}" if lesson.about else ""),
            str(lesson.minutes or ""),
            ", ".join(lesson.needs),
            _exercise(lesson_of(path.name), course),
            f"[solution]({course}{solution})" if (ROOT / solution).exists() else "",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_table(readme: str) -> str:
    """The README's text with the current table between the markers."""
    return between(readme, BEGIN, END, table())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m instruments.contents", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 where the README differs")
    options = parser.parse_args(arguments)
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    current = with_table(text)
    if options.check:
        if text != current:
            print("README.md does not show the lessons as they are: run python -m instruments.contents")
        return int(text != current)
    write_whole(readme, current.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
