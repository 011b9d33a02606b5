"""A new lesson is new files and nothing else: the toy of tests/growth/, put into a copy of the course, is found.

It is copied as CONTRIBUTING says, and its notebooks get the first cell of today. The toy takes two notebooks of one
number, 99 and 99b, as a long topic does: each has an exercise of its own, the second one's made from the first one's.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from instruments import notebooks
from instruments.start import notebook_of

ROOT = Path(__file__).resolve().parents[1]
TOY = ROOT / "tests" / "growth"
FOLDERS = (
    "bench",
    "exercises",
    "grading",
    "instruments",
    "kernels",
    "lessons",
    "solutions",
    "tests/grading",
    "tests/kernels",
    "tests/widgets",
    "widgets",
)
NUMBERS = ("99", "99b")
#: What belongs to both notebooks and is made anew for the second one.
NUMBERED = ("lessons/99_toy.ipynb", "solutions/99_toy_solution.ipynb", "grading/tasks/lesson_99.py")

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
    "counters": [launch.kernel for launch in cases.counter_calls()],
    "panels": {name: getattr(widgets, name).__name__ for name in widgets.PANELS},
    "alt": widgets.toy(cols=7).alt,
    "answers": sorted({answer.task for answer in test_answers.ANSWERS if answer.task[:2] == "99"}),
}))
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """A copy of the course with the toy lesson's files in it."""
    root = tmp_path_factory.mktemp("grown") / "course"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "pyproject.toml", "tests/conftest.py", "tests/test_house.py"):
        shutil.copy(ROOT / name, root / name)
    for path in toy_files():
        target = root / path.relative_to(TOY)
        assert not target.exists(), f"{target.relative_to(root)} is there: number 99 is the toy lesson's"
    shutil.copytree(TOY, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in NUMBERED:
        text = (root / name).read_text(encoding="utf-8")
        (root / name.replace("99", "99b")).write_text(text.replace("99", "99b"), encoding="utf-8")
    answers = root / "tests" / "grading" / "answers"
    shutil.copytree(answers / "99", answers / "99b")
    for path in root.glob("*/99*_toy*.ipynb"):
        path.write_text(notebooks.dumps(nbformat.read(path, as_version=4), path), encoding="utf-8")
    run(root, "-m", "instruments.notebooks", "--format")  # the lesson before the toy now links it
    return root


def toy_files() -> list[Path]:
    return [path for path in TOY.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


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
    assert all(f"exercises/{number}_toy_exercise.ipynb: written" in said for number in NUMBERS)
    run(course, "-m", "instruments.contents")
    after = files(course)
    exercises = {f"exercises/{number}_toy_exercise.ipynb" for number in NUMBERS}
    assert {name for name in after if after[name] != before.get(name)} == {*exercises, "README.md"}
    lines = [line for line in after["README.md"].decode().splitlines() if "A toy" in line]
    assert lines == [
        f"| [{number} A toy](lessons/{number}_toy.ipynb): what it takes to grow | 5 | 02 "
        f"| [1 task, 5 min](exercises/{number}_toy_exercise.ipynb) "
        f"| [solution](solutions/{number}_toy_solution.ipynb) |"
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
        nb = nbformat.read(course / notebook_of(f"{number}_toy", folder), as_version=4)
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
    assert found["panels"]["toy"] == "toy" and "28.7 KB" in found["alt"]
    assert found["answers"] == ["99.1", "99b.1"]


def test_the_answers_of_the_new_exercise_are_tried(course):
    tries = run(course, "-m", "pytest", "-q", "-k", "99.1 or (99 and stub)", "tests/grading/test_answers.py")
    assert "failed" not in tries


def test_the_toy_keeps_the_rules_of_the_house_and_passes_its_own_tests(course):
    """A kernel, a panel and a task as they should be: what CONTRIBUTING tells to copy."""
    own = ("tests/kernels/toy", "tests/widgets/panels/test_toy.py", "lessons/99_toy.ipynb")
    tries = ("tests/test_house.py", *own, "-k", "toy or twice or readme or small", "--nbval-lax", "--nbval-current-env")
    said = run(course, "-m", "pytest", "-q", *tries)
    assert "passed" in said and "failed" not in said
    new = [path.relative_to(TOY) for path in toy_files() if path.suffix == ".py" and "answers" not in path.parts]
    run(course, "-m", "ruff", "check", "-q", *new)
    run(course, "-m", "ruff", "format", "-q", "--check", *new)
