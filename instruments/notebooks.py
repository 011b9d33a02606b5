"""The form in which notebooks are stored, and `make lessons`, which runs them and stores them again.

    python -m instruments.notebooks [--only 05,roofline]     run lessons and solutions, store what they show
    python -m instruments.notebooks --format                 the same without running: first cell and form only
    python -m instruments.notebooks --check                  change nothing; name what is not in that form

Every notebook has the same first code cell, written from FIRST_CELL and the repository's address in pyproject.toml.
Lessons and solutions are stored executed; exercises, which instruments/release.py writes from the solutions, are not.
"""

import argparse
import hashlib
import html
import json
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from instruments.files import write_whole
from instruments.start import lesson_of, notebook_of, on_colab, repository

ROOT = Path(__file__).resolve().parents[1]
EXECUTED, UNEXECUTED = ("lessons", "solutions"), ("exercises",)
CELL_SECONDS = 600

FIRST_CELL_ID, BADGE_ID = "set-up", "open-in-colab"
WAY_IDS = ("way-top", "way-bottom")  # the cells that lead to the neighbors of a notebook
KINDS = {"lessons": "lesson", "exercises": "exercise", "solutions": "solution"}
FIRST_CELL = """\
# @title Set-up: run this cell first
REPOSITORY = "@REPOSITORY@"  # @param {type:"string"}


def find_course():
    import os, subprocess, sys
    from pathlib import Path

    given = os.environ.get("BYTES_FIRST")  # the course's folder, for a notebook that lies elsewhere
    near = [Path(place).resolve() for place in (globals().get("__vsc_ipynb_file__", ""), "")]
    around = [folder for place in near for folder in (place, *place.parents)]
    folders = [Path(given).resolve()] if given else [*around, Path("bytes-first").resolve(), *map(Path, sys.path)]
    if REPOSITORY and "google.colab" in sys.modules:
        if not any(os.path.isfile(folder / "instruments/start.py") for folder in folders):
            command = ["git", "clone", "--quiet", "--depth=1", REPOSITORY, "bytes-first"]
            never_ask = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
            git = subprocess.run(command, env=never_ask, capture_output=True, text=True)
            if git.returncode:
                raise RuntimeError(f"git could not fetch the course from {REPOSITORY!r}. It says: {git.stderr.strip()}")
    for folder in folders:
        if os.path.isfile(folder / "instruments/start.py"):
            return str(folder / "instruments/start.py")
    raise FileNotFoundError(
        "The course was not found around this notebook. On Colab, write the address of the course's git repository "
        "between the quotes after REPOSITORY and run this cell again; elsewhere, keep the notebook in the course's "
        "folder or set the environment variable BYTES_FIRST to that folder."
    )


import runpy

runpy.run_path(find_course())["start"]()"""

METADATA = {
    "accelerator": "GPU",
    "colab": {"gpuType": "T4"},
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},  # the rest differs by Python's version: work.py adds it to a learner's copy
}
# What front ends leave behind: it differs from machine to machine, and `widgets` makes GitHub refuse the notebook.
NOTEBOOK_LITTER = ("celltoolbar", "signature", "toc", "varInspector", "vscode", "widgets")
CELL_LITTER = ("ExecuteTime", "colab", "execution", "id", "outputId", "trusted", "vscode")
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

ANSWER = "answer"  # tag of a cell whose output gives away what a prediction before it asks: it is stored folded
FOLD = "<details><summary>Output, which holds an answer</summary>"
CHECKED = "NBVAL_CHECK_OUTPUT"


def notebooks(only: str = "") -> list[Path]:
    """The course's notebooks.

    Args:
        only: words separated by commas; notebooks whose path contains one of them. Empty for all.

    Raises:
        ValueError: where no path contains one.
    """
    paths = [p for folder in (*EXECUTED, *UNEXECUTED) for p in sorted((ROOT / folder).glob("*.ipynb"))]
    words = [word.strip() for word in only.split(",") if word.strip()]
    selection = [p for p in paths if not words or any(word in str(p.relative_to(ROOT)) for word in words)]
    if words and not selection:
        raise ValueError(
            f"only: no notebook matches {only!r}, expected part of one of: "
            + ", ".join(str(p.relative_to(ROOT)) for p in paths)
        )
    return selection


def first_cell(address: str | None = None) -> NotebookNode:
    """The first code cell, the same in every notebook."""
    source = FIRST_CELL.replace("@REPOSITORY@", repository() if address is None else address)
    cell = nbformat.v4.new_code_cell(source, id=FIRST_CELL_ID)
    cell.metadata = NotebookNode(cellView="form", jupyter=NotebookNode(source_hidden=True))
    return cell


def badge(path: Path, address: str | None = None) -> NotebookNode | None:
    """The cell with the link that opens this notebook on Colab; none while the repository has no GitHub address."""
    target = on_colab(repository() if address is None else address, f"{path.parent.name}/{path.name}")
    if not target:
        return None
    image = "https://colab.research.google.com/assets/colab-badge.svg"
    return nbformat.v4.new_markdown_cell(f"[![Open in Colab]({image})]({target})", id=BADGE_ID)


def short_title(path: Path) -> str:
    """A notebook's title without what follows its colon: '03 Tiling'; '' for one without a title."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    titles = (re.match(r"# ([^:\n]+)", "".join(cell["source"])) for cell in cells if cell["cell_type"] == "markdown")
    return next((title[1].strip() for title in titles if title), "")


def way(path: Path) -> str:
    """The line that leads from a notebook to the lessons before and after it, to the map of all, and to the exercise,
    solution or lesson that belongs to it; '' for a notebook that is not one of the course's."""
    lessons = sorted((ROOT / "lessons").glob("*.ipynb"))
    names = [lesson_of(lesson.name) for lesson in lessons]
    kind, name = path.parent.name, lesson_of(path.name)
    if kind not in KINDS or path.resolve().parent != ROOT / kind or name not in names:
        return ""
    at, course = names.index(name), "" if kind == "lessons" else "../lessons/"

    def link(lesson: Path) -> str:
        return f"[{short_title(lesson)}]({course}{lesson.name})"

    parts = [f"← {link(lessons[at - 1])}"] if at else []
    parts += [f"[all lessons]({course}{lessons[0].name})"] if at else []
    for other, word in KINDS.items():
        if other != kind and (ROOT / notebook_of(name, other)).exists():
            parts.append(f"[{word}](../{notebook_of(name, other)})")
    parts += [f"{link(lessons[at + 1])} →"] if at + 1 < len(names) else []
    return " · ".join(parts)


def canonical(nb: NotebookNode, path: Path, address: str | None = None) -> NotebookNode:
    """A notebook in the form in which it is stored: first cell, ids, metadata, and outputs that any front end shows.

    Args:
        nb: the notebook.
        path: where it is stored; the folder says whether with outputs.
        address: of the repository, by default that in pyproject.toml.
    """
    nb = nbformat.from_dict(nb)
    nb.nbformat, nb.nbformat_minor = 4, 5
    metadata = {key: value for key, value in nb.metadata.items() if key not in NOTEBOOK_LITTER}
    nb.metadata = nbformat.from_dict({**metadata, **METADATA})

    old = next((cell for cell in nb.cells if cell.get("id") == FIRST_CELL_ID), None)
    nb.cells = [cell for cell in nb.cells if cell.get("id") not in (FIRST_CELL_ID, BADGE_ID, *WAY_IDS)]
    if nb.cells and path.parent.name in (
        "exercises",
        "solutions",
    ):  # written from one source, told apart by their titles
        word = KINDS[path.parent.name].title()
        nb.cells[0].source = re.sub(r"\A# (Exercise|Solution)\b", f"# {word}", nb.cells[0].source)
    first = first_cell(address)
    if old is not None:
        first.outputs, first.execution_count = old.outputs, old.execution_count
    at = next((i for i, cell in enumerate(nb.cells) if cell.cell_type == "code"), len(nb.cells))
    nb.cells.insert(at, first)
    if line := way(path):
        top, bottom = (nbformat.v4.new_markdown_cell(line, id=name) for name in WAY_IDS)
        nb.cells.insert(1, top)
        nb.cells.append(bottom)
    if link := badge(path, address):
        nb.cells.insert(0, link)

    executed = path.parent.name not in UNEXECUTED
    for position, cell in enumerate(nb.cells):
        if "id" not in cell:
            cell.id = hashlib.sha1(f"{position} {cell.source}".encode()).hexdigest()[:8]
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k not in CELL_LITTER})
        if cell.cell_type == "code":
            cell.outputs = canonical_outputs(cell.outputs) if executed else []
            if ANSWER in cell.metadata.get("tags", ()):
                fold(cell)
            cell.execution_count = cell.execution_count if executed else None
        else:
            cell.pop("outputs", None)
            cell.pop("execution_count", None)
    return nb


def fold(cell: NotebookNode) -> None:
    """Fold the outputs of a cell until somebody opens them; running the cell shows them.

    Text is folded on every page, GitHub's and nbconvert's too. Pictures, and text that nbval compares, stay as they are
    and are folded by the cell's metadata, which JupyterLab and Colab heed.
    """
    if CHECKED in cell.source or any("image/png" in output.get("data", {}) for output in cell.outputs):
        cell.metadata.collapsed = True
        cell.metadata.jupyter = NotebookNode({**cell.metadata.get("jupyter", {}), "outputs_hidden": True})
        return
    outputs = []
    for output in cell.outputs:
        data = output.get("data", {})
        text = output.get("text") or data.get("text/plain", "")
        if output.output_type != "error" and not data.get("text/html", "").startswith(FOLD):
            body = data.get("text/html") or f"<pre>{html.escape(text)}</pre>"
            both = {"text/html": f"{FOLD}{body}</details>", "text/plain": text}
            output = nbformat.v4.new_output("display_data", both)
        outputs.append(output)
    cell.outputs = outputs


def canonical_outputs(outputs: list) -> list:
    """Outputs without what is of use in their own run alone: paths, overwritten progress bars, widget views.

    A panel becomes its title, its picture with the text alternative, and its caption.
    """
    results = []
    for output in map(scrub, outputs):
        output.pop("transient", None)
        output.get("data", {}).pop(WIDGET_VIEW, None)
        title, caption = (output.get("metadata", {}).pop(name, "") for name in ("title", "caption"))
        if title:  # as widgets/toolkit/panel.py shows a panel
            results.append(_words(f"<b>{html.escape(title)}</b>", title))
        if output.output_type == "stream" and results and results[-1].get("name") == output.name:
            results[-1].text += output.text
        elif output.output_type in ("stream", "error") or output.data:
            results.append(output)
        if caption:
            results.append(_words(html.escape(caption), caption))
    for output in results:
        if output.output_type == "stream":
            output.text = last_words(output.text)
    return results


def _words(markup: str, text: str) -> NotebookNode:
    """A paragraph as an output of its own."""
    return nbformat.v4.new_output("display_data", {"text/html": f"<p>{markup}</p>", "text/plain": text})


def scrub(value):
    """`value` with this machine's paths replaced: files of the course by their path in it, cells by <cell>."""
    if isinstance(value, str):
        return re.sub(r"/\S*/ipykernel_\d+/\d+\.py", "<cell>", value.replace(f"{ROOT}{os.sep}", ""))
    if isinstance(value, list):
        return [scrub(item) for item in value]
    if isinstance(value, dict):
        return NotebookNode({key: scrub(item) for key, item in value.items()})
    return value


def last_words(text: str) -> str:
    """What a terminal would still show of `text`: a carriage return overwrites its line, as text progress bars do."""
    return "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))


def dumps(nb: NotebookNode, path: Path, address: str | None = None) -> str:
    """The canonical text of `nb` as it is stored at `path`."""
    return nbformat.writes(canonical(nb, path, address), version=nbformat.NO_CONVERT) + "\n"


def store(nb: NotebookNode, path: Path) -> None:
    """Write `nb` to `path` in canonical form, all of it or nothing."""
    text = dumps(nb, path)
    nbformat.validate(nbformat.reads(text, as_version=nbformat.NO_CONVERT))
    write_whole(path, text.encode())


def execute(nb: NotebookNode, path: Path) -> None:
    """Run every cell of `nb` in its own folder; a cell that fails without being meant to raises CellExecutionError."""
    from nbclient import NotebookClient
    from traitlets.config import Config

    os.environ["BYTES_FIRST_PROGRESS"] = os.devnull + "/none"  # what is stored is nobody's progress
    # Sockets in a folder rather than TCP ports, of which ipykernel warns in every run.
    with tempfile.TemporaryDirectory() as folder:
        ipc = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})
        NotebookClient(
            nb,
            timeout=CELL_SECONDS,
            kernel_name="python3",
            record_timing=False,
            config=ipc,
            resources={"metadata": {"path": str(path.parent)}},
        ).execute()


def faults(path: Path) -> list[str]:
    """Why the notebook at `path` is not in the form in which it should be stored, one sentence each."""
    text = path.read_text(encoding="utf-8")
    try:
        nb = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
        nbformat.validate(nb)
    except Exception as error:
        return [f"is not a valid notebook of format 4.5: {str(error).splitlines()[0]}"]
    problems = []
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    if not code or (code[0].source, code[0].metadata) != (first_cell().source, first_cell().metadata):
        problems.append("does not begin with the course's first code cell")
    if any("id" not in cell for cell in nb.cells):
        problems.append("has cells without an id")
    if nb.metadata.get("kernelspec") != METADATA["kernelspec"]:
        problems.append("does not name the kernel python3")
    for cell in code:
        if cell.outputs and any(output.output_type == "error" for output in cell.outputs):
            if "raises-exception" not in cell.metadata.get("tags", []):
                problems.append(f"stores an error in cell {cell.get('id')}, which is not tagged raises-exception")
    if path.parent.name in EXECUTED:
        counts = [cell.execution_count for cell in code if cell.source.strip()]
        if counts != list(range(1, len(counts) + 1)):
            problems.append("was not stored after one run from top to bottom")
    if text != dumps(nb, path):
        problems.append("is not in canonical form")
    return problems


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m instruments.notebooks", description="run and store the notebooks")
    parser.add_argument("--only", default="", metavar="WORD,...", help="only notebooks whose path contains a word")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="change nothing, name what is not as it should be")
    how.add_argument("--format", action="store_true", help="write first cell and canonical form without running")
    options = parser.parse_args(arguments)
    try:
        paths = notebooks(options.only)
    except ValueError as error:
        parser.error(str(error))
    bad = 0
    for path in paths:
        name = path.relative_to(ROOT)
        if options.check:
            problems = faults(path)
            for fault in problems:
                print(f"{name} {fault}")
            bad += bool(problems)
            continue
        try:
            nb = nbformat.read(path, as_version=4)
            nb = canonical(nb, path)
            if not options.format and path.parent.name in EXECUTED:
                print(f"{name}: running", flush=True)
                execute(nb, path)
            store(nb, path)
        except Exception as error:
            print(f"{name} was left as it is: {error}", file=sys.stderr)
            bad += 1
    if options.check and not bad:
        print(f"in canonical form: {len(paths)} notebooks")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
