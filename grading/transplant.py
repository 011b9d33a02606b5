"""The notebook that is really run: the pristine exercise with the learner's answer cells in their places.

Everything else of a submission is left behind: its other cells, tags, markers, outputs, metadata and order. Check cells
become stubs that export raw results, so nothing a learner does to them matters.
"""

import copy
import re
from dataclasses import dataclass, field

import nbformat
from nbformat import NotebookNode

from grading.release import grade_id, task_id

LEFT_OUT_TAG = "notebook-only"
MARKER = re.compile(r"^(\s*#+\s*)(NBVAL_\w+|PYTEST_VALIDATE_IGNORE_OUTPUT)\s*$", re.MULTILINE)

#: The first cell of a run: only what lies beside the notebook is the course here, and solutions cannot be imported.
START = """\
import os, sys
sys.path[:] = [{folder!r}] + [p for p in sys.path if not os.path.exists(os.path.join(p, "grading", "judge.py"))]
sys.modules.update(dict.fromkeys(("kernels", "widgets", "solutions", "lessons", "exercises", "bench")))
"""
EXPORT = "import grading.probe as _probe\n_probe.run({task!r}, globals(), {folder!r}, expendable=True)"


@dataclass
class Transplant:
    """What to run. notebook; answers: {task id: source of its answer cell}; untouched: ids of tasks whose answer is
    still the stub; notes: what was odd about the submission, one sentence each."""

    notebook: NotebookNode
    answers: dict = field(default_factory=dict)
    untouched: set = field(default_factory=set)
    notes: list = field(default_factory=list)


def normal(source: str) -> str:
    """A source without the differences that no one meant: trailing blanks and blank lines at the ends."""
    return "\n".join(line.rstrip() for line in source.strip().splitlines())


def transplant(pristine: NotebookNode, submitted: NotebookNode, folder: str, functions: dict,
               only: set | None = None, without: frozenset = frozenset()) -> Transplant:
    """Put the answers of `submitted` into `pristine`.

    functions: {task id: names its answer defines}, to know an answer that lost its id. only: tasks to check (all by
    default). without: tasks whose answer is left out, because it ended the process before.
    """
    result = Transplant(nbformat.v4.new_notebook())
    cells = [_code(START.format(folder=folder), "start", "")]
    first = True
    for cell in pristine.cells:
        if cell.cell_type != "code":
            continue
        if first:  # the cell that makes the course importable; START stands in for it
            first = False
            continue
        name = grade_id(cell)
        task = task_id(name)
        if task and cell.metadata["nbgrader"]["solution"]:
            source = _answer(cell, task, submitted, functions.get(task, ()), result)
            if normal(source) == normal(cell.source):
                result.untouched.add(task)
            result.answers[task] = source
            if task not in without:
                cells.append(_code(MARKER.sub(r"\1(a marker of nbval, taken out)", source), "answer", task))
        elif task:
            if only is None or task in only:
                cells.append(_code(EXPORT.format(task=task, folder=folder), "check", task))
        elif LEFT_OUT_TAG not in cell.metadata.get("tags", []):
            cells.append(_code(cell.source, "given", ""))
    result.notebook.cells = cells
    result.notebook.metadata = copy.deepcopy(pristine.metadata)
    return result


def _code(source: str, role: str, task: str) -> NotebookNode:
    return nbformat.v4.new_code_cell(source, metadata={"bytes_first": {"role": role, "task": task}})


def _answer(stub: NotebookNode, task: str, submitted: NotebookNode, functions: tuple, result: Transplant) -> str:
    """The source of one answer: the last cell with its id that differs from the stub."""
    same = [cell for cell in submitted.cells if grade_id(cell) == grade_id(stub)]
    if not same:
        same = [cell for cell in submitted.cells if not grade_id(cell) and _defines(cell.source, functions)]
        if same:
            result.notes.append(f"{task}: the answer cell had lost its id and was known by its function")
        else:
            result.notes.append(f"{task}: the answer cell is missing")
            return stub.source
    if any(cell.cell_type != "code" for cell in same):
        result.notes.append(f"{task}: the answer cell was not a code cell and was read as one")
    changed = [cell for cell in same if normal(cell.source) != normal(stub.source)]
    if len(changed) > 1:
        result.notes.append(f"{task}: {len(changed)} cells carry the answer's id; the last one counts")
    return changed[-1].source if changed else stub.source


def _defines(source: str, functions: tuple) -> bool:
    return bool(functions) and all(re.search(rf"^def {re.escape(name)}\(", source, re.MULTILINE) for name in functions)
