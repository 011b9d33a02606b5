"""What every notebook of the course keeps to, and what its readers need: links that lead somewhere, pictures with
words."""

import re
from pathlib import Path

import nbformat
import pytest

from instruments.notebooks import WAY_IDS
from instruments.start import notebook_of
from tests.reading_time import minutes, shown_lines
from widgets.toolkit.panel import sentence

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own

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
    for target, heading in re.findall(r"\]\(([^)#]+)#?([^)]*)\)", "\n".join(texts)):
        file = path.parent / target
        assert target.startswith("https://") or file.exists(), f"{name(path)} links to {target}"
        if heading and file.suffix == ".ipynb":  # JupyterLab's anchor is the heading with hyphens for spaces
            cells = nbformat.read(file, as_version=4).cells
            headings = re.findall(r"^#+ (.+)$", "\n".join(c.source for c in cells if c.cell_type == "markdown"), re.M)
            assert heading in [h.replace(" ", "-") for h in headings], f"{name(path)}: {target} has no {heading}"


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_there_is_something_to_look_at(path):
    """Code comes after about 150 words: a picture, an experiment, a kernel."""
    run = 0
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            run = 0
            continue
        run += words(cell.source) if cell.id not in WAY_IDS else 0
        assert run <= 165, f"{name(path)}: {run} words without code, up to cell {cell.id}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_pictures_have_words(path):
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                said = "".join(data.get("text/plain", ""))
                assert words(said) >= 8 and not said.startswith("<"), f"{name(path)}, cell {cell.id}: {said!r}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_stored_pictures_have_captions(path):
    """Under each picture stands the first sentence of its text alternative."""
    for cell in nbformat.read(path, as_version=4).cells:
        outputs = cell.get("outputs", [])
        for output, below in zip(outputs, [*outputs[1:], {}]):
            alt = output.get("metadata", {}).get("image/png", {}).get("alt")
            if alt:
                caption = below.get("data", {}).get("text/plain")
                assert caption and alt.startswith(caption), f"{name(path)}, cell {cell.id}: {sentence(alt)!r}"


@pytest.mark.parametrize("path", [p for p in LESSONS if (ROOT / notebook_of(p.stem, "exercises")).exists()], ids=name)
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


#: lesson: minutes that its thread takes, from and to
THREADS = {
    "00": (0, 12),
    "01": (30, 60),
    "02": (30, 60),
    "02b": (30, 60),
    "03": (30, 60),
    "03b": (30, 60),
    "04": (30, 60),
    "05": (30, 60),
    "05b": (30, 60),
    "06": (30, 60),
    "07": (30, 60),
    "08": (30, 60),
    "08b": (25, 60),
    "08c": (30, 60),
    "08d": (30, 60),
    "09": (30, 60),
    "09b": (30, 60),
    "10": (30, 60),
    "11": (30, 60),
    "11b": (30, 60),
    "11c": (30, 60),
    "12": (30, 60),
    "13": (30, 60),
}
SHOWN_LINES, OUTPUT_LINES, COLUMNS = 15, 8, 104
#: Words of this course's first edition, for which the field has its own.
PRIVATE = re.compile(
    r"matrix units?|(?<!streaming )multiprocessors?|\b(?:\d+|two|three|six|seven) trips\b|repair factors?"
    r"|matrix products?|\bas called\b|copied by the hardware|FLOPs a byte"
)
SECOND_EDITION = [p for p in LESSONS if p.stem.partition("_")[0] in THREADS]


@pytest.mark.parametrize("path", SECOND_EDITION, ids=name)
def test_a_thread_takes_an_hour_at_most_and_says_its_minutes(path):
    nb = nbformat.read(path, as_version=4)
    least, most = THREADS[path.stem.partition("_")[0]]
    thread, _ = minutes(nb)
    assert least <= round(thread) <= most, f"{name(path)}: {thread:.0f} minutes"
    stated = int(re.search(r"\babout (\d+) minutes", nb.cells[0].source, re.I)[1])
    assert abs(stated - thread) <= 3, f"{name(path)} says {stated} minutes, counted are {thread:.0f}"


@pytest.mark.parametrize("path", SECOND_EDITION, ids=name)
def test_cells_and_outputs_are_short_and_the_words_are_the_fields(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            assert not PRIVATE.search(cell.source), f"{name(path)}, cell {cell.id}: {PRIVATE.search(cell.source)[0]!r}"
            continue
        assert shown_lines(cell) <= SHOWN_LINES, f"{name(path)}, cell {cell.id}: {shown_lines(cell)} lines"
        for output in cell.get("outputs", []):
            lines = len("".join(output.get("text", "")).splitlines())
            assert lines <= OUTPUT_LINES, f"{name(path)}, cell {cell.id}: an output of {lines} lines"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_shown_code_fits_the_page_and_what_has_a_title_is_folded(path):
    """Colab, VS Code and the book do not wrap lines of code; the title stands for the code behind it."""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code" and shown_lines(cell):
            wide = [line for line in cell.source.splitlines() if len(line) > COLUMNS]
            assert not wide, f"{name(path)}, cell {cell.id}: more than {COLUMNS} characters in {wide[0]!r}"
            assert not cell.source.startswith("# @title"), f"{name(path)}, cell {cell.id}: is to be folded"


def test_commands_name_the_learners_copy():
    """`grade exercises/...` would grade the exercise as released, which nobody edits."""
    for path in NOTEBOOKS:
        assert "grade exercises/" not in path.read_text(encoding="utf-8"), name(path)


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_running_a_lesson_checks_nothing_into_the_learners_progress(path):
    """A lesson shows what `check` says of an answer that is wrong on purpose."""
    for cell in nbformat.read(path, as_version=4).cells:
        calls = re.findall(r"^check\(.*", cell.source, re.MULTILINE) if cell.cell_type == "code" else []
        assert all("keep=False" in call for call in calls), f"{name(path)}, cell {cell.id}"
