"""What every notebook of the course keeps to, and what its readers need: links that lead somewhere, pictures with
words."""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(p for folder in ("lessons", "exercises", "solutions") for p in (ROOT / folder).glob("*.ipynb"))
LESSONS = [p for p in NOTEBOOKS if p.parent.name == "lessons"]


def words(text: str) -> int:
    """Words of prose: HTML, table rules and other marks do not count."""
    return len(re.sub(r"<[^>]+>|[|*#`\-]", " ", text).split())


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_links_lead_somewhere(path):
    nb = nbformat.read(path, as_version=4)
    texts = [cell.source for cell in nb.cells if cell.cell_type == "markdown"]
    texts += [
        output.data["text/markdown"]
        for cell in nb.cells
        for output in cell.get("outputs", [])
        if "text/markdown" in output.get("data", {})
    ]
    for target in re.findall(r"\]\(([^)#]+)", "\n".join(texts)):
        assert target.startswith("https://") or (path.parent / target).exists(), f"{name(path)} links to {target}"


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_there_is_something_to_look_at(path):
    """Code comes after about 150 words: a picture, an experiment, a kernel."""
    run = 0
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            run = 0
            continue
        run += words(cell.source)
        assert run <= 165, f"{name(path)}: {run} words without code, up to cell {cell.id}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_pictures_have_words(path):
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                said = "".join(data.get("text/plain", ""))
                assert words(said) >= 8 and not said.startswith("<"), f"{name(path)}, cell {cell.id}: {said!r}"


@pytest.mark.parametrize("path", [p for p in LESSONS if (ROOT / "exercises" / p.name).exists()], ids=name)
def test_a_lesson_ends_in_what_to_keep(path):
    """Its sections are headed as its thread wants; behind *Keep* stands nothing but *Going further*."""
    cells = nbformat.read(path, as_version=4).cells
    headings = [
        line[3:]
        for cell in cells
        if cell.cell_type == "markdown"
        for line in cell.source.splitlines()
        if line.startswith("## ")
    ]
    assert headings[-1] == "Keep" or headings[-2:] == ["Keep", "Going further"], headings
