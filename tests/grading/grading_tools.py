"""What the grading tests share: answers given as source, checked as a notebook would check them."""

import hashlib
import importlib.util
import sys
import tempfile
from pathlib import Path

import nbformat

from grading.checks import PUBLIC_SEED, task as find_task
from grading.notebook import verdict
from grading.release import ROOT, grade_id, task_id

_FILES = tempfile.TemporaryDirectory(prefix="answers-")  # Triton reads a kernel's source from its file, as long as we run
PREAMBLE = "import torch\nfrom instruments.backend import triton, tl\n\n"


def module_of(source: str):
    """The module that an answer's source makes; Triton wants kernels to come from a file."""
    name = "answer_" + hashlib.sha1(source.encode()).hexdigest()[:12]
    if name not in sys.modules:
        path = Path(_FILES.name) / f"{name}.py"
        path.write_text(PREAMBLE + source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def verdict_of(task_id: str, source: str, seed: int = PUBLIC_SEED):
    """The verdict on a task for the functions that `source` defines."""
    task = find_task(task_id)
    module = module_of(source)
    return verdict(task, tuple(getattr(module, name) for name in task.functions), module.__name__, seed)


def edited(source: str, *changes: tuple) -> str:
    """`source` with each (old, new) replaced; an `old` that is not there is a mistake of the test."""
    for old, new in changes:
        assert old in source, f"not in the answer: {old!r}"
        source = source.replace(old, new)
    return source


def handed_in(exercise: str, changes: dict, path: Path) -> Path:
    """A submission at `path`: the solution, with the answers of `changes` ({task id: source}) in place of its own."""
    nb = nbformat.read(ROOT / "solutions" / f"{exercise}.ipynb", as_version=4)
    for cell in nb.cells:
        if grade_id(cell).startswith("answer_") and task_id(grade_id(cell)) in changes:
            cell.source = changes[task_id(grade_id(cell))]
    nbformat.write(nb, path)
    return path


def answers(exercise: str) -> dict:
    """{task id: source of the answer cell} of the exercise's solution; given cells stand before each of them."""
    nb = nbformat.read(ROOT / "solutions" / f"{exercise}.ipynb", as_version=4)
    return {task_id(grade_id(cell)): cell.source for cell in nb.cells
            if cell.cell_type == "code" and grade_id(cell).startswith("answer_")}
