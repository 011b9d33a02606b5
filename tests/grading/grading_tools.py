"""What the grading tests share: answers as files or source, checked as a notebook checks them, and submissions."""

import hashlib
import importlib.util
import json
import os
import re
import sys
import tempfile
from functools import cache
from pathlib import Path

import nbformat

from grading.notebook import verdict
from grading.tasks import PUBLIC_SEED, exercise_with
from grading.tasks import task as find_task
from instruments.release import ROOT, grade_id, task_id
from instruments.start import notebook_of

_FILES = tempfile.TemporaryDirectory(prefix="answers-")  # Triton reads a kernel's source from its file
PREAMBLE = "import torch\nfrom instruments.backend import triton, tl\n\n"


def module_of(source: str):
    """The module that an answer's source makes; Triton wants kernels to come from a file."""
    name = "answer_" + hashlib.sha1(source.encode()).hexdigest()[:12]
    if name not in sys.modules:
        path = Path(_FILES.name) / f"{name}_{os.getpid()}.py"  # forked processes share the folder
        path.write_text(PREAMBLE + source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@cache
def given_after(task_id: str) -> str:
    """The code cells of an exercise between the answer and the check cell of a task."""
    nb = nbformat.read(ROOT / notebook_of(exercise_with(task_id), "solutions"), as_version=4)
    cells = [cell for cell in nb.cells if cell.cell_type == "code"]
    first, last = [
        [grade_id(cell) for cell in cells].index(f"{kind}_{task_id.replace('.', '_')}") for kind in ("answer", "check")
    ]
    return "\n\n\n".join(["", *(cell.source for cell in cells[first + 1 : last])])


def verdict_of(task_id: str, source: str, seed: int = PUBLIC_SEED):
    """The verdict on a task for the functions that `source` defines, and given cells after it."""
    task = find_task(task_id)
    module = module_of(source + given_after(task_id))
    return verdict(task, tuple(getattr(module, name) for name in task.functions), module.__name__, seed)


def full_marks(verdict) -> bool:
    """Whether a verdict gives all points, or all that this machine can give."""
    return verdict.status in ("passed", "pending") and verdict.points + verdict.pending_points == verdict.max_points


def edited(source: str, *changes: tuple) -> str:
    """`source` with each (old, new) replaced; an `old` that is not there is a mistake of the test."""
    for old, new in changes:
        assert old in source, f"not in the answer: {old!r}"
        source = source.replace(old, new)
    return source


def handed_in(exercise: str, changes: dict, path: Path, base: str = "solutions") -> Path:
    """A submission at `path`: the notebook of folder `base`, with the answers of `changes` ({task id: source})."""
    nb = nbformat.read(ROOT / notebook_of(exercise, base), as_version=4)
    for cell in nb.cells:
        if grade_id(cell).startswith("answer_") and task_id(grade_id(cell)) in changes:
            cell.source = changes[task_id(grade_id(cell))]
    nbformat.write(nb, path)
    return path


def answers(exercise: str) -> dict:
    """{task id: source of the answer cell} of the exercise's solution."""
    nb = nbformat.read(ROOT / notebook_of(exercise, "solutions"), as_version=4)
    return {
        task_id(grade_id(cell)): cell.source
        for cell in nb.cells
        if cell.cell_type == "code" and grade_id(cell).startswith("answer_")
    }


def stub(task_id: str) -> str:
    """An answer that was not attempted."""
    names = re.findall(r"^def (\w+)", answers(exercise_with(task_id))[task_id], re.MULTILINE)
    return "".join(f"def {name}(*arguments):\n    raise NotImplementedError()\n\n" for name in names)


def notebook(path: Path, word: str, exercise: str = "01_roofline") -> Path:
    """A notebook of one cell, for tests in which nothing is really graded."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nb = {"cells": [{"cell_type": "code", "source": word}], "metadata": {"bytes_first": {"exercise": exercise}}}
    path.write_text(json.dumps(nb))
    return path
