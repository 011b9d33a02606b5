"""The rules of docs/architecture.md that no other test holds: who imports whom, how large the grader may become."""

import ast
from dataclasses import fields
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

from grading.tasks import DIAGNOSES, Task, exercises, tasks_of

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own

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


def import_graph(folder: str) -> dict[str, set]:
    """{module of a folder: the modules of the folder that it imports by name, inside functions too}."""
    paths = {path.relative_to(ROOT).with_suffix(""): path for path in (ROOT / folder).rglob("*.py")}
    modules = {".".join(name.parts).removesuffix(".__init__"): path for name, path in paths.items()}
    graph = {name: set() for name in modules}
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= {full if full in modules else node.module for full in names.values()}
        graph[name] &= modules.keys() - {name}
    return graph


@pytest.mark.parametrize("folder", FLOORS)
def test_no_module_imports_itself_through_others(folder):
    try:
        TopologicalSorter(import_graph(folder)).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_packages_of_kernels_do_not_import_each_other_in_a_circle():
    """Importing any file of a package runs its `__init__`, which imports the package's files."""
    graph = {}
    for name, imports in import_graph("kernels").items():
        package, others = ".".join(name.split(".")[:2]), {".".join(other.split(".")[:2]) for other in imports}
        if package != "kernels":
            graph.setdefault(package, set()).update(others - {package})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("path", sorted((ROOT / "widgets").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_of_widgets_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500


@pytest.mark.parametrize("path", sorted((ROOT / "kernels").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_of_kernels_is_short_and_its_kernels_have_docstrings(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 500
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list):
            assert ast.get_docstring(node), f"{node.name}: say the shape of every tensor and tile"


MAPPED = [ROOT / "instruments", ROOT / "widgets/toolkit", ROOT / "widgets/drawings"]
MAPPED += [path for path in sorted((ROOT / "kernels").iterdir()) if (path / "__init__.py").exists()]


@pytest.mark.parametrize("folder", MAPPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_docstring_of_a_package_names_each_of_its_files(folder):
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_bytes()))
    words = [word.strip(",;:()") for line in text.splitlines() for word in line.split()]
    files = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    named = {word for word in words if word.endswith(".py") and "/" not in word}
    assert named == files, f"not named: {sorted(files - named)}; named, but not there: {sorted(named - files)}"


def test_the_docstring_of_kernels_names_each_family():
    text = ast.get_docstring(ast.parse((ROOT / "kernels/__init__.py").read_bytes()))
    families = {path.name for path in MAPPED if path.parent.name == "kernels"} - {"toy"}  # which is tried and removed
    assert not families - set(text.split())


@pytest.mark.parametrize("package", [path.name for path in MAPPED if path.parent.name == "kernels"])
def test_a_package_exports_each_operator_with_its_reference_and_its_traffic(package):
    exported = vars(import_module(f"kernels.{package}"))
    for path in (ROOT / "kernels" / package).glob("*.py"):
        names = {node.name for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.FunctionDef)}
        beside = {name for name in names if name.endswith(("_traffic", "_reference"))}
        operators = {name for name in names if {f"{name}_traffic", f"{name}_reference"} & beside}
        left_out = {name for name in operators | beside if name[0] != "_"} - set(exported)
        assert not left_out or path.stem == "models", f"kernels/{package}/__init__.py does not export {left_out}"


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


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
