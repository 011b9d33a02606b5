"""What every notebook of the course keeps to, and what its readers need: links that lead somewhere, pictures with
words."""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(p for folder in ("lessons", "exercises", "solutions") for p in (ROOT / folder).glob("*.ipynb"))
LESSONS = [p for p in NOTEBOOKS if p.parent.name == "lessons"]

STEPS = (
    "Count",
    "Predict",
    "Read the kernel",
    "Run and check",
    "Meter and measure",
    "Move the sliders",
    "What goes wrong",
    "Folklore, checked",
    "Keep",
)


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
def test_length(path):
    """A lesson has at most 2,500 words, lesson 00 at most 1,200, and code comes after about 150 of them."""
    total = run = 0
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            run = 0
            continue
        run += words(cell.source)
        total += words(cell.source)
        assert run <= 165, f"{name(path)}: {run} words without code, up to cell {cell.id}"
    assert total <= (1_200 if path.name.startswith("00") else 2_500), f"{name(path)}: {total} words"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_pictures_have_words(path):
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                said = "".join(data.get("text/plain", ""))
                assert words(said) >= 8 and not said.startswith("<"), f"{name(path)}, cell {cell.id}: {said!r}"


@pytest.mark.parametrize("path", [p for p in LESSONS if not p.name.startswith("00")], ids=name)
def test_steps(path):
    """The steps of a lesson, in order."""
    cells = nbformat.read(path, as_version=4).cells
    headings = [
        line[3:]
        for cell in cells
        if cell.cell_type == "markdown"
        for line in cell.source.splitlines()
        if line.startswith("## ")
    ]
    assert [heading for heading in headings if heading in STEPS] == list(STEPS)
