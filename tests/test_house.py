"""The rules of docs/architecture.md that no other test holds: who imports whom, how large the grader may become."""

import ast
from dataclasses import fields
from pathlib import Path

import pytest

from grading.tasks import DIAGNOSES, Task, exercises, tasks_of

ROOT = Path(__file__).resolve().parents[1]
FLOORS = {"instruments": 0, "kernels": 1, "widgets": 2, "grading": 2, "bench": 2}
BESIDE = {"grading/notebook.py": {"widgets"}}  # what `check` shows beside its card is a panel
FILES = sorted(path for folder in FLOORS for path in (ROOT / folder).rglob("*.py"))


def imported(path: Path) -> set:
    """The course's folders that a file imports from, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module.partition(".")[0])
    return found & set(FLOORS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_floor_imports_only_from_those_below(path):
    own = path.relative_to(ROOT).parts[0]
    beside = BESIDE.get(path.relative_to(ROOT).as_posix(), set())
    above = {name for name in imported(path) - {own} - beside if FLOORS[name] >= FLOORS[own]}
    assert not above, f"imports from {', '.join(sorted(above))}"


@pytest.mark.parametrize("path", sorted((ROOT / "kernels").glob("*.py")), ids=lambda path: path.name)
def test_a_file_of_kernels_is_short_and_its_kernels_have_docstrings(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list):
            assert ast.get_docstring(node), f"{node.name}: say the shape of every tensor and tile"


def lines(*patterns: str) -> int:
    """Lines of Python in the files that the patterns match, learners' answers left out."""
    paths = {path for pattern in patterns for path in ROOT.glob(pattern) if "answers" not in path.parts}
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def test_the_grader_is_small():
    tasks = sum(len(tasks_of(exercise)) for exercise in exercises())
    assert lines("grading/*.py") <= 3500
    assert lines("grading/tasks/*.py") <= 100 * tasks
    assert lines("tests/grading/**/*.py") <= 4500
    assert len(fields(Task)) <= 14 and len(DIAGNOSES) <= 15
    assert all(len(task.mistakes) <= 5 for exercise in exercises() for task in tasks_of(exercise))
    assert lines("grading/plugin.py") <= 80


#: What makes one more way through a function (McCabe, 1976).
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.With, ast.Assert, ast.comprehension)


def complexity(function: ast.AST) -> int:
    nodes = list(ast.walk(function))
    more = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return 1 + more + sum(isinstance(node, BRANCHES) for node in nodes)


@pytest.mark.parametrize("path", sorted((ROOT / "grading").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_of_the_grader_are_short_and_simple(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno - node.lineno < 60, f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
            assert complexity(node) <= 15, f"{node.name}: complexity {complexity(node)}"
