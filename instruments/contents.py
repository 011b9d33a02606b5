"""The course's table of contents, in Markdown, from the notebooks themselves; the README shows it between its markers.

    python -m instruments.contents            write it into the README
    python -m instruments.contents --check    exit 1 where the README shows something else

A lesson is a notebook in lessons/. Its line has its title; what its metadata say under `bytes_first.about`, if
anything; and the exercise and the solution that have its file's name.
"""

import argparse
import json
import sys
from pathlib import Path

from instruments.files import between, write_whole

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- lessons:begin -->\n", "<!-- lessons:end -->\n"


def described(path: Path) -> tuple[str, str]:
    """A notebook's title and what it is about, '' where its metadata do not say; ValueError where it has no title."""
    nb = json.loads(path.read_text(encoding="utf-8"))
    texts = ("".join(cell["source"]) for cell in nb["cells"] if cell["cell_type"] == "markdown")
    titles = [line[2:].strip() for text in texts for line in text.splitlines() if line.startswith("# ")]
    if not titles:
        raise ValueError(f"{path}: has no title, expected a Markdown cell with a line '# NN Title'")
    return titles[0], nb["metadata"].get("bytes_first", {}).get("about", "")


def _link(words: str, folder: str, name: str, course: str) -> str:
    return f"[{words}]({course}{folder}/{name})" if (ROOT / folder / name).exists() else ""


def table(course: str = "") -> str:
    """A line per lesson, in the order of their numbers. course: the way to the course's folder, as '../'."""
    lines = ["| lesson | exercise | solution |", "|---|---|---|"]
    for path in sorted((ROOT / "lessons").glob("*.ipynb")):
        title, about = described(path)
        cells = (
            _link(title, "lessons", path.name, course) + (f": {about}" if about else ""),
            _link("exercise", "exercises", path.name, course),
            _link("solution", "solutions", path.name, course),
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
