"""exercises/ and solutions/ agree, and every exercise keeps the form that transplant and nbgrader rely on."""

from itertools import takewhile

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from grading.tasks import exercises, tasks_of
from instruments import release
from instruments.release import ROOT, cleared, exercise_id, grade_id, released, task_id
from instruments.start import lesson_of

SOLUTIONS = sorted((ROOT / "solutions").glob("*.ipynb"))
FIELDS = {"grade", "grade_id", "locked", "schema_version", "solution", "task", "cell_type"}


def test_exercises_are_what_the_solutions_release():
    for path, text in release.targets():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `python -m instruments.release`"
    assert {p.name for p in (ROOT / "exercises").glob("*.ipynb")} == {
        p.name.replace("_solution", "_exercise") for p in SOLUTIONS
    }


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda p: p.stem)
def test_a_solution_holds_its_tasks_in_nbgraders_form(path):
    nb = nbformat.read(path, as_version=4)
    tasks = tasks_of(exercise_id(nb))
    assert exercise_id(nb) == lesson_of(path.name)
    marked = [cell for cell in nb.cells if "nbgrader" in cell.metadata]
    assert [grade_id(c) for c in marked] == [
        f"{kind}_{t.id.replace('.', '_')}" for t in tasks for kind in ("answer", "check")
    ]
    for cell in marked:
        mark, answer = cell.metadata.nbgrader, grade_id(cell).startswith("answer")
        assert set(mark) == FIELDS | (set() if answer else {"points"})
        assert (mark.schema_version, mark.cell_type, mark.task) == (3, "code", False) and cell.cell_type == "code"
        assert (mark.solution, mark.grade, mark.locked) == (answer, not answer, not answer)
        task = next(t for t in tasks if t.id == task_id(grade_id(cell)))
        if answer:
            after = takewhile(lambda c: not grade_id(c).startswith("check"), nb.cells[nb.cells.index(cell) :])
            given = "".join(c.source for c in after if c.cell_type == "code")  # and cells between answer and check
            assert release.BEGIN in cell.source and all(f"def {name}(" in given for name in task.functions)
        else:
            assert mark.points == task.max_points
            assert cell.source == f'check("{task.id}", {", ".join(task.functions)})'


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda p: p.stem)
def test_an_exercise_shows_no_solution(path):
    nb = released(nbformat.read(path, as_version=4))
    text = nbformat.writes(nb)
    assert release.BEGIN not in text and release.END not in text
    for cell in nb.cells:
        assert release.SOLUTION_TAG not in cell.metadata.get("tags", [])
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None
            assert ("raise NotImplementedError()" in cell.source) == grade_id(cell).startswith("answer")


def test_every_exercise_with_checks_has_a_solution():
    assert set(exercises()) == {lesson_of(path.name) for path in SOLUTIONS}


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda p: p.stem)
def test_run_all_passes_over_an_untouched_exercise(path):
    nb = released(nbformat.read(path, as_version=4))
    NotebookClient(nb, timeout=120, resources={"metadata": {"path": str(ROOT / "exercises")}}).execute()
    for cell in nb.cells:
        if grade_id(cell).startswith("check"):
            assert any("not attempted" in output.get("data", {}).get("text/plain", "") for output in cell.outputs)


def test_regions_become_nbgraders_stub():
    source = "def f(x):\n    y = 1\n    ### BEGIN SOLUTION\n    return x\n    ### END SOLUTION\n"
    assert cleared(source) == "def f(x):\n    y = 1\n    # YOUR CODE HERE\n    raise NotImplementedError()\n"


@pytest.mark.parametrize(
    "name, task",
    [
        ("answer_05_3", "05.3"),
        ("check_05b_12", "05b.12"),
        ("answer_5_3", ""),
        ("answer_05B_3", ""),
        ("answer_05bc_3", ""),
        ("check_05b_", ""),
        ("imports", ""),
    ],
)
def test_a_cells_id_names_its_task(name, task):
    """A lesson's number has two digits, and a letter where a topic takes more than one notebook."""
    assert task_id(name) == task


@pytest.mark.parametrize(
    "source", ["### BEGIN SOLUTION\n", "### END SOLUTION", "### BEGIN SOLUTION\n### BEGIN SOLUTION"]
)
def test_unbalanced_regions_are_refused(source):
    cell = new_code_cell(source, metadata={"nbgrader": {"solution": True, "grade_id": "answer_01_1"}})
    with pytest.raises(ValueError, match="answer_01_1"):
        released(new_notebook(cells=[cell]))


def test_explanations_are_left_out():
    nb = new_notebook(cells=[new_markdown_cell("why", metadata={"tags": ["solution"]}), new_markdown_cell("card")])
    assert [cell.source for cell in released(nb).cells] == ["card"]


def test_the_command_says_that_they_agree(capsys):
    assert release.main(["--check"]) == 0 and "agree" in capsys.readouterr().out


def test_without_solutions_it_says_so(tmp_path):
    with pytest.raises(ValueError, match="solutions"):
        release.targets(tmp_path)
