"""What the grading tests share: answers given as source, checked as a notebook would check them, and tables of answers.

The answers to an exercise stand in test_NN.py as three tables, which its tests and `make corpora` read:

    SOLUTION = {task: source}
    RIGHT = {name: (task, source)}
    WRONG = {name: (task, changes to the solution or a whole source, kind or kinds of finding, words of the hint)}

and beside them, where a task's card promises so much that a property of test_tasks.py cannot be, why:

    NOT_ONE, NOT_FAR = {(task, function): what the card promises}
    TILES = {task: elements of a tile of a kernel that takes vectors}, where they are fewer than 4,096
"""

import ast
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import tempfile
import types
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

from grading.notebook import verdict
from grading.release import ROOT, grade_id, task_id
from grading.tasks import PUBLIC_SEED, Draw, Tensor, source_of
from grading.tasks import task as find_task

_FILES = tempfile.TemporaryDirectory(prefix="answers-")  # Triton reads a kernel's source from its file while we run
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


def handed_in(exercise: str, changes: dict, path: Path, base: str = "solutions") -> Path:
    """A submission at `path`: the notebook of folder `base`, with the answers of `changes` ({task id: source}) in
    it."""
    nb = nbformat.read(ROOT / base / f"{exercise}.ipynb", as_version=4)
    for cell in nb.cells:
        if grade_id(cell).startswith("answer_") and task_id(grade_id(cell)) in changes:
            cell.source = changes[task_id(grade_id(cell))]
    nbformat.write(nb, path)
    return path


def answers(exercise: str) -> dict:
    """{task id: source of the answer cell} of the exercise's solution; given cells stand before each of them."""
    nb = nbformat.read(ROOT / "solutions" / f"{exercise}.ipynb", as_version=4)
    return {
        task_id(grade_id(cell)): cell.source
        for cell in nb.cells
        if cell.cell_type == "code" and grade_id(cell).startswith("answer_")
    }


def stub(task_id: str) -> str:
    """An answer that was not attempted."""
    names = find_task(task_id).functions
    return "".join(f"def {name}(*arguments):\n    raise NotImplementedError()\n\n" for name in names)


# ---------------------------------------------------------------- tables of answers


def table_files() -> list[Path]:
    """The files test_NN.py, one for each exercise, in the order of their numbers: 05, 05b, 06."""
    here = Path(__file__).parent
    return sorted(path for path in here.glob("test_*.py") if re.fullmatch(r"test_\d\d[a-z]?", path.stem))


def tables() -> list:
    """The modules test_NN.py, in the same order."""
    return [importlib.import_module(path.stem) for path in table_files()]


@dataclass(frozen=True)
class Answer:
    """One answer to a task, and what it deserves: full marks, or to fail with one of `kinds` and all `words`."""

    name: str
    task: str
    source: str
    right: bool
    kinds: tuple = ()  # of finding; any where empty
    words: tuple = ()

    def __str__(self):
        return f"{self.task} {self.name}"


def right_answers(solution: dict, right: dict) -> list:
    """The solution's answers, and those in other styles."""
    return [
        Answer(name, task, source, True)
        for name, (task, source) in [*(("solution", item) for item in sorted(solution.items())), *right.items()]
    ]


def wrong_answers(solution: dict, wrong: dict) -> list:
    """The wrong answers, whole, and those that the tasks' slips make."""
    return [
        *slip_answers(solution),
        *(
            Answer(
                name,
                task,
                given if isinstance(given, str) else edited(solution[task], *given),
                False,
                (kinds,) if isinstance(kinds, str) else kinds or (),
                tuple(words),
            )
            for name, (task, given, kinds, words) in wrong.items()
        ),
    ]


def slip_answers(solution: dict) -> list:
    """The wrong answers that the tasks' own slips make: by an edit of the published answer, where a slip gives one; and
    of a task of plain numbers by the edited oracle itself."""
    made = []
    for task in map(find_task, sorted(solution)):
        for slip in task.slips:
            changes = [edit.split(" -> ") for edit in slip.answer]
            if changes and all(
                old in solution[task.id] for old, _ in changes
            ):  # tasks share slips, and not their texts
                source = edited(solution[task.id], *changes)
                made.append(Answer(f"slip: {slip.fault}", task.id, source, False, ("slip",), (slip.fault,)))
            elif not task.kernel and not any(
                isinstance(v, Tensor) for c in task.cases for v in c.make(Draw([1], 0)).values()
            ):
                made += [
                    Answer(
                        f"slip: {slip.fault}, way {way} of {name}",
                        task.id,
                        _by_oracle(task, name, mistaken, solution),
                        False,
                        ("slip",),
                        (slip.fault,),
                    )
                    for way, (name, mistaken) in enumerate(task.mistaken(slip), 1)
                    if not slip.results
                ]
    return made


def _by_oracle(task, name: str, mistaken, solution: dict) -> str:
    """An answer in which one function is an edited oracle, with what that uses of its module."""
    oracle = task.functions[name]
    parts: dict = {}

    def collect(source: str, scope: dict) -> None:
        for used in dict.fromkeys(node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)):
            value = scope.get(used)
            if used in parts or value is None or used == oracle.__name__:
                continue
            if isinstance(value, types.ModuleType):
                parts[used] = f"import {value.__name__} as {used}"
            elif isinstance(value, types.FunctionType) and value.__module__ == "math":
                parts[used] = f"from math import {used}"
            elif isinstance(value, types.FunctionType):
                text = source_of(value)
                parts[used] = ""  # a place for it, for functions that call each other
                collect(text, value.__globals__)
                parts[used] = text
            elif callable(value):
                parts[used] = f"from {value.__module__} import {used}"
            else:
                parts[used] = f"{used} = {value!r}"

    collect(mistaken.source, oracle.__globals__)
    called = mistaken.source.replace(f"def {oracle.__name__}(", f"def {name}(")
    return "\n\n".join([solution[task.id], *parts.values(), called]) + "\n"


def fault(answer: Answer, found) -> str:
    """'' where `found`, the verdict on an answer, is the one that it deserves; else the verdict."""
    if answer.right:
        good = found.status in ("passed", "pending") and found.points + found.pending_points == found.max_points
    else:
        good = (
            (found.status, found.points, found.pending_points) == ("failed", 0, 0)
            and (not answer.kinds or found.kind in answer.kinds)
            and all(word in found.hint for word in answer.words)
        )
    return "" if good else f"{answer}: {found.kind}: {found}"


def answer_tests(solution: dict, right: dict, wrong: dict) -> tuple:
    """The tests of an exercise's tables: full marks for what is right, its own hint for what is wrong, and enough."""

    def each(found: list):
        return pytest.mark.parametrize("answer", found, ids=str)

    def agree(answer: Answer, seeds: int):
        for seed in range(1, int(os.environ.get("ANSWER_SEEDS", seeds)) + 1):
            said = fault(answer, verdict_of(answer.task, answer.source, seed))
            assert not said, f"seed {seed}: {said}"

    @each(right_answers(solution, right))
    def test_right(answer):
        agree(answer, 1 if find_task(answer.task).kernel else 3)  # make corpora takes as many as it is asked for

    @each(wrong_answers(solution, wrong))
    def test_wrong(answer):
        agree(answer, 1 if find_task(answer.task).kernel else 3)

    @pytest.mark.parametrize("task", sorted(solution))
    def test_untouched(task):
        found = verdict_of(task, stub(task))
        assert (found.status, found.points, found.hint) == ("not_attempted", 0, "")

    def test_every_task_has_three_right_answers_and_wrong_ones():
        for task in solution:
            assert sum(answer.task == task for answer in right_answers(solution, right)) >= 3, task
            assert any(answer.task == task for answer in wrong_answers(solution, wrong)), task

    return test_right, test_wrong, test_untouched, test_every_task_has_three_right_answers_and_wrong_ones
