"""A new lesson is new files and nothing else: the toy of tests/growth/, put into a copy of the course, is found.

Its notebooks are written here, so that they have the first cell of today. The toy takes two notebooks of one number, 99
and 99b, as a long topic does: each has an exercise of its own, the second one's made from the first one's.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from instruments import notebooks

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "bench",
    "exercises",
    "grading",
    "instruments",
    "kernels",
    "lessons",
    "solutions",
    "tests/grading",
    "widgets",
)
NUMBERS = ("99", "99b")
TASK = {"schema_version": 3, "task": False, "cell_type": "code"}
ANSWER = """\
@triton.jit
def thrice_kernel(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    ### BEGIN SOLUTION
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = o < size
    tl.store(y_ptr + o, 3 * tl.load(x_ptr + o, mask=mask), mask=mask)
    ### END SOLUTION


def thrice(x):
    ### BEGIN SOLUTION
    y = torch.empty_like(x)
    thrice_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y
    ### END SOLUTION"""

#: What the course finds by itself, told by a process of its own, in which the toy is launched and drawn as well.
FOUND = """
import json, sys
sys.path.insert(0, "tests/grading")
import test_answers, widgets
from bench import cases, sanitize
sanitize.launches()["toy 3x5 fp32"]()
print(json.dumps({
    "bench": [case.name for case in cases.cases()],
    "memory checker": list(sanitize.launches()),
    "counters": [launch.kernel for launch in cases.counted()],
    "panels": {name: getattr(widgets, name).__name__ for name in widgets.PANELS},
    "sentence": widgets.toy(cols=7).sentence,
    "answers": sorted({answer.task for answer in test_answers.ANSWERS if answer.task[:2] == "99"}),
}))
"""


def lesson(number: str) -> nbformat.NotebookNode:
    return new_notebook(
        metadata={"bytes_first": {"about": "what it takes to grow"}},
        cells=[
            new_markdown_cell(f"# {number} A toy", id="title"),
            new_code_cell("from kernels.toy import twice\nfrom widgets import toy", id="imports"),
            new_markdown_cell("## Keep\n\nTwice a tensor is two tensors moved.", id="keep"),
        ],
    )


def solution(number: str) -> nbformat.NotebookNode:
    answer = {"grade": False, "grade_id": f"answer_{number}_1", "locked": False, "solution": True, **TASK}
    check = {"grade": True, "grade_id": f"check_{number}_1", "locked": True, "points": 2, "solution": False, **TASK}
    imports = "import torch\n\nfrom grading import check\nfrom instruments.backend import tl, triton"
    return new_notebook(
        metadata={"bytes_first": {"exercise": f"{number}_toy"}},
        cells=[
            new_markdown_cell(f"# Exercise {number}: a toy", id="title"),
            new_code_cell(imports, id="imports"),
            new_markdown_cell(f"## {number}.1 Three times", id="card"),
            new_code_cell(ANSWER, id="answer", metadata={"nbgrader": answer}),
            new_code_cell(f'check("{number}.1", thrice)', id="check", metadata={"nbgrader": check}),
        ],
    )


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """A copy of the course with the toy lesson's files in it."""
    root = tmp_path_factory.mktemp("grown") / "course"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, root / name)
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    for path in (ROOT / "tests" / "growth").rglob("*.py"):
        target = root / path.relative_to(ROOT / "tests" / "growth")
        assert not target.exists(), f"{target.relative_to(root)} is there: number 99 is the toy lesson's"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    tasks = (root / "grading" / "tasks" / "lesson_99.py").read_text(encoding="utf-8")
    (root / "grading" / "tasks" / "lesson_99b.py").write_text(tasks.replace("99", "99b"), encoding="utf-8")
    shutil.copytree(root / "tests" / "grading" / "answers" / "99", root / "tests" / "grading" / "answers" / "99b")
    for number in NUMBERS:
        for folder, nb in (("lessons", lesson(number)), ("solutions", solution(number))):
            path = root / folder / f"{number}_toy.ipynb"
            path.write_text(notebooks.dumps(nb, path), encoding="utf-8")
    return root


def run(course: Path, *arguments) -> str:
    """What Python prints, started in the copy and with nothing but the copy on its path."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=course,
        env={**os.environ, "PYTHONPATH": str(course)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files(course: Path) -> dict:
    return {
        path.relative_to(course).as_posix(): path.read_bytes()
        for path in course.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_release_and_contents_write_the_exercise_and_the_readme_and_nothing_else(course):
    before = files(course)
    said = run(course, "-m", "instruments.release")
    assert all(f"exercises/{number}_toy.ipynb: written" in said for number in NUMBERS)
    run(course, "-m", "instruments.contents")
    after = files(course)
    exercises = {f"exercises/{number}_toy.ipynb" for number in NUMBERS}
    assert {name for name in after if after[name] != before.get(name)} == {*exercises, "README.md"}
    lines = [line for line in after["README.md"].decode().splitlines() if "A toy" in line]
    assert lines == [
        f"| [{number} A toy](lessons/{number}_toy.ipynb): what it takes to grow "
        f"| [exercise](exercises/{number}_toy.ipynb) | [solution](solutions/{number}_toy.ipynb) |"
        for number in NUMBERS
    ]
    run(course, "-m", "instruments.contents", "--check")


def test_grade_knows_the_exercises(course, tmp_path):
    """The solutions get their points, the untouched exercise none; a notebook that lost its exercise's name is known by
    its cells."""
    run(course, "-m", "instruments.release")
    for learner, number, folder in (
        ("solved", "99", "solutions"),
        ("second", "99b", "solutions"),
        ("untouched", "99b", "exercises"),
    ):
        path = tmp_path / "class" / learner / f"{number}_toy.ipynb"
        path.parent.mkdir(parents=True)
        nb = nbformat.read(course / folder / path.name, as_version=4)
        if learner == "second":
            del nb.metadata["bytes_first"]
        nbformat.write(nb, path)
    run(course, "-m", "grading.cli", tmp_path / "class", "--report", tmp_path / "report")
    graded = json.loads((tmp_path / "report" / "results.json").read_text(encoding="utf-8"))["submissions"]
    assert {r["learner"]: (r["exercise"], [t["id"] for t in r["tasks"]], r["points"]) for r in graded} == {
        "solved": ("99_toy", ["99.1"], 2),
        "second": ("99b_toy", ["99b.1"], 2),
        "untouched": ("99b_toy", ["99b.1"], 0),
    }


def test_bench_checker_counters_panels_and_answers_are_found(course):
    found = json.loads(run(course, "-c", FOUND))
    assert "twice 64x1024 bf16" in found["bench"]
    assert "toy 1x1 bf16" in found["memory checker"]
    assert "twice" in found["counters"]
    assert found["panels"]["toy"] == "toy" and found["sentence"] == "A row has 7 columns."
    assert found["answers"] == ["99.1", "99b.1"]


def test_the_answers_of_the_new_exercise_are_tried(course):
    tries = run(course, "-m", "pytest", "-q", "-k", "99.1 or (99 and stub)", "tests/grading/test_answers.py")
    assert "failed" not in tries
