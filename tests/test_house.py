"""The rules of docs/architecture.md that no other test holds: who imports whom, how long a file of kernels/ is."""

import ast
from pathlib import Path

import pytest

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
