"""Answers find their places whatever was done to the cells around them; nothing else of a submission is run."""

import ast
import random
import subprocess
import sys
import time

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_raw_cell
from synthetic_class import functions_of

from grading.release import ROOT, grade_id, released, task_id
from grading.transplant import MAX_ANSWER, transplant

SOLUTION = nbformat.read(ROOT / "solutions" / "05_rmsnorm.ipynb", as_version=4)
EXERCISE = released(SOLUTION)
ANSWERS = {task_id(grade_id(cell)): cell.source for cell in SOLUTION.cells if grade_id(cell).startswith("answer_")}
FUNCTIONS = functions_of(EXERCISE)


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


# ---------------------------------------------------------------- answers elsewhere

KERNEL, WRAPPER = (
    ANSWERS["05.3"][: ANSWERS["05.3"].index("def gemma_norm(")],
    ANSWERS["05.3"][ANSWERS["05.3"].index("def gemma_norm(") :],
)


def untouched():
    return nbformat.reads(nbformat.writes(EXERCISE), as_version=4)


def below(nb, name, *cells):
    at = nb.cells.index(cell_of(nb, name)) + 1
    nb.cells[at:at] = cells
    return nb


def runs_alike(source, wanted):
    """Whether two sources are the same statements, whatever stands between them."""
    return [ast.dump(node) for node in ast.parse(source).body] == [ast.dump(node) for node in ast.parse(wanted).body]


def test_an_answer_in_a_new_cell_below_the_untouched_stub_is_taken():
    nb = below(
        untouched(),
        "check_05_3",
        new_markdown_cell("mine"),
        new_code_cell("gemma_norm(1, 2, 3)"),
        new_code_cell(ANSWERS["05.3"]),
        new_code_cell("x = torch.ones(3)\nassert gemma_norm(x, x, 1)"),
    )
    plan = planted(nb)
    assert plan.answers["05.3"] == ANSWERS["05.3"] and plan.untouched == set(ANSWERS) - {"05.3"}
    assert plan.notes == ["05.3: the answer stood in a cell of its own and was taken from there"]


@pytest.mark.parametrize("between", [(), (new_markdown_cell("and now"), new_code_cell("print(torch.ones(2))"))])
@pytest.mark.parametrize("first, second", [(KERNEL, WRAPPER), (WRAPPER, KERNEL)])
def test_an_answer_split_over_cells_is_put_together(first, second, between):
    nb = submission()
    cell_of(nb, "answer_05_3").source = first
    plan = planted(below(nb, "answer_05_3", *between, new_code_cell(second)))
    assert runs_alike(plan.answers["05.3"], first + "\n" + second)
    assert plan.notes == ["05.3: the answer stood in 2 cells and was put together"]
    stub = below(untouched(), "answer_05_3", new_code_cell(first), *between, new_code_cell(second))  # both of them new
    assert runs_alike(planted(stub).answers["05.3"], first + "\n" + second)


@pytest.mark.parametrize("left", ["nothing", "the stub", "a remark"])
def test_two_answers_in_one_cell_serve_both_tasks(left):
    nb = submission()
    both = cell_of(nb, "answer_05_3").source = ANSWERS["05.3"] + "\n\n" + ANSWERS["05.4"]
    cell = cell_of(nb, "answer_05_4")
    if left == "nothing":
        nb.cells.remove(cell)
    else:
        cell.source = cell_of(EXERCISE, "answer_05_4").source if left == "the stub" else "# see above"
    plan = planted(nb)
    assert plan.answers["05.3"] == plan.answers["05.4"] == both and not plan.untouched
    assert plan.notes == ["05.4: the answer stood in the answer cell of 05.3 and was taken from there"]


def test_functions_beside_a_half_finished_stub_take_its_places():
    """Two of three are written into the stub, the third below it."""
    nb = submission()
    names, source = FUNCTIONS["05.1"], ANSWERS["05.1"]
    third = source[source.index(f"def {names[2]}(") :]
    cell_of(nb, "answer_05_1").source = source.replace(
        third, f"def {names[2]}(rows, cols, itemsize):\n    raise NotImplementedError()\n"
    )
    plan = planted(below(nb, "check_05_1", new_code_cell(third)))
    space = {}
    exec(plan.answers["05.1"], space)
    assert space[names[2]](8, 8, 4) and "2 cells" in plan.notes[0]


def test_a_finished_answer_keeps_what_experiments_beside_it_say():
    nb = submission()
    trial = ANSWERS["05.3"].replace("return y, scale", "return None")
    below(nb, "check_05_3", new_code_cell(trial + "\nraise SystemExit"), new_code_cell("def other(): pass"))
    plan = planted(nb)
    assert plan.answers == ANSWERS and not plan.notes


def test_where_nothing_is_found_it_is_not_attempted():
    nb = below(untouched(), "check_05_3", new_code_cell("x = 3"), new_code_cell("def helper(): pass"))
    nb.cells.append(nbformat.from_dict({**cell_of(nb, "answer_05_4"), "metadata": {}}))  # a copy of a stub
    plan = planted(nb)
    assert plan.untouched == set(ANSWERS) and not plan.notes


@pytest.mark.parametrize(
    "filler",
    [
        "\n" * 90_000,
        "\n" + " " * 90_000,
        "#" * 90_000,
        "x = " * 22_000 + "=",
        "# " * 45_000,
        "\n# NBVAL_" * 9_000,
        "import " + "a," * 45_000,
    ],
)
def test_no_answer_takes_long(filler):
    nb = below(submission(), "answer_05_3", new_code_cell(filler), *[new_code_cell("def f(): g()\n" * 900)] * 900)
    cell_of(nb, "answer_05_3").source = KERNEL + filler + "\n"
    begun = time.process_time()
    planted(nb)
    assert time.process_time() - begun < 60  # against hanging: it is over in a second


def test_an_answer_of_a_size_that_is_not_graded_says_so():
    nb = submission()
    cell_of(nb, "answer_05_3").source += "\n" * MAX_ANSWER
    plan = planted(nb)
    with pytest.raises(ValueError, match="more than 100,000 characters"):
        exec(plan.answers["05.3"])
    assert plan.answers["05.4"] == ANSWERS["05.4"] and "05.3" not in plan.untouched


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
    cell_of(nb, "answer_05_1").source += "\n# NBVAL_SKIP\n    # NBVAL_RAISES_EXCEPTION\n\x0c## NBVAL_SKIP"
    plan = planted(nb)
    text = nbformat.writes(plan.notebook)
    assert not [odd for odd in ("NBVAL", "nbval-skip", "raises-exception", "all passed") if odd in text]


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
