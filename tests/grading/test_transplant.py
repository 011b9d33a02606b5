"""Answers find their places whatever was done to the cells around them; nothing else of a submission is run."""

import random
import subprocess
import sys

import nbformat
import pytest
from grading_tools import answers
from nbformat.v4 import new_code_cell, new_markdown_cell, new_raw_cell

from grading.checks import tasks_of
from grading.release import ROOT, grade_id, released
from grading.transplant import transplant

SOLUTION = nbformat.read(ROOT / "solutions" / "05_rmsnorm.ipynb", as_version=4)
EXERCISE = released(SOLUTION)
ANSWERS = answers("05_rmsnorm")
FUNCTIONS = {task.id: task.functions for task in tasks_of("05_rmsnorm")}


def planted(nb, **options):
    return transplant(EXERCISE, nb, "/run", FUNCTIONS, **options)


def submission():
    return nbformat.reads(nbformat.writes(SOLUTION), as_version=4)


def cell_of(nb, name):
    return next(cell for cell in nb.cells if grade_id(cell) == name)


def sources(plan, role):
    return {c.metadata.bytes_first.task: c.source for c in plan.notebook.cells if c.metadata.bytes_first.role == role}


def test_the_solution_is_carried_over_whole():
    plan = planted(submission())
    assert sources(plan, "answer") == ANSWERS and not plan.untouched and not plan.notes
    assert list(sources(plan, "check")) == list(ANSWERS)
    assert all("_probe.run" in source for source in sources(plan, "check").values())


def test_an_exercise_as_released_is_untouched():
    assert planted(EXERCISE).untouched == set(ANSWERS)


def test_trailing_blanks_do_not_make_an_answer():
    nb = nbformat.reads(nbformat.writes(EXERCISE), as_version=4)
    for cell in nb.cells:
        cell.source = "\n" + cell.source.replace("\n", "  \n") + "\n\n"
    assert planted(nb).untouched == set(ANSWERS)


def test_order_does_not_matter_and_extra_cells_are_left_behind():
    nb = submission()
    random.Random(0).shuffle(nb.cells)
    nb.cells.insert(0, new_code_cell("raise SystemExit"))
    plan = planted(nb)
    assert sources(plan, "answer") == ANSWERS
    assert not any("SystemExit" in cell.source for cell in plan.notebook.cells)


def test_a_deleted_answer_is_the_stub_again():
    nb = submission()
    nb.cells.remove(cell_of(nb, "answer_05_3"))
    plan = planted(nb)
    assert plan.untouched == {"05.3"} and "missing" in plan.notes[0]


def test_everything_deleted_does_not_abort():
    nb = submission()
    nb.cells = []
    assert planted(nb).untouched == set(ANSWERS)


def test_of_two_copies_the_last_changed_one_counts():
    nb = submission()
    cell = cell_of(nb, "answer_05_1")
    second = new_code_cell("# again\n" + cell.source, metadata=cell.metadata)
    nb.cells += [second, new_code_cell(cell_of(EXERCISE, "answer_05_1").source, metadata=cell.metadata)]
    plan = planted(nb)
    assert sources(plan, "answer")["05.1"] == second.source and "last one counts" in plan.notes[0]


def test_a_copied_stub_does_not_hide_the_answer():
    nb = submission()
    nb.cells.append(nbformat.from_dict(cell_of(EXERCISE, "answer_05_1")))
    assert sources(planted(nb), "answer") == ANSWERS


@pytest.mark.parametrize("make", [new_markdown_cell, new_raw_cell])
def test_a_retyped_answer_is_still_read(make):
    nb = submission()
    old = cell_of(nb, "answer_05_2")
    nb.cells[nb.cells.index(old)] = make(old.source, metadata=old.metadata)
    plan = planted(nb)
    assert sources(plan, "answer") == ANSWERS and "not a code cell" in plan.notes[0]


def test_an_answer_without_its_id_is_known_by_its_function():
    nb = submission()
    del cell_of(nb, "answer_05_3").metadata["nbgrader"]
    plan = planted(nb)
    assert sources(plan, "answer") == ANSWERS and "known by its function" in plan.notes[0]


def test_edited_check_cells_and_tags_mean_nothing():
    nb = submission()
    for cell in nb.cells:
        cell.metadata["tags"] = ["nbval-skip", "raises-exception"]
        if grade_id(cell).startswith("check"):
            cell.source = "print('all passed')"
    cell_of(nb, "answer_05_1").source += "\n# NBVAL_SKIP\n    # NBVAL_RAISES_EXCEPTION"
    plan = planted(nb)
    text = nbformat.writes(plan.notebook)
    assert "NBVAL" not in text and "nbval-skip" not in text and "raises-exception" not in text and "all passed" not in text


@pytest.mark.parametrize("mark", [None, 3, "x", [], {"grade_id": 5}, {"grade_id": ["a"]}])
def test_strange_metadata_does_not_abort(mark):
    nb = submission()
    for cell in nb.cells:
        cell.metadata["nbgrader"] = mark
    plan = planted(nb)
    assert sources(plan, "answer") == ANSWERS  # known by their functions


def test_only_some_tasks_and_without_one_answer():
    plan = planted(submission(), only={"05.4"}, without=frozenset({"05.2"}))
    assert set(sources(plan, "check")) == {"05.4"} and "05.2" not in sources(plan, "answer")


def test_no_solution_can_be_imported_by_name():
    start = planted(submission()).notebook.cells[0].source
    code = start + "\nimport importlib.util\nassert not importlib.util.find_spec('grading')\nimport kernels"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "import of kernels halted" in run.stderr, run.stderr
