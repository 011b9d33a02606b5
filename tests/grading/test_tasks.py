"""What every task declares holds: its references take its cases, and its mistakes are no right answers."""

import nbformat
import numpy as np
import pytest

from grading.compare import Result, matches
from grading.tasks import (
    PLAYED,
    RECORDED,
    TILE,
    Case,
    Inputs,
    Mistake,
    RandomTensor,
    Task,
    Tensor,
    exercises,
    expected,
    mistaken,
    returns,
    takes,
    tasks_of,
    tensor,
)
from grading.tasks import task as find_task
from instruments.release import ROOT, grade_id
from instruments.start import notebook_of

pytestmark = pytest.mark.each  # every set takes milliseconds, and most say something of their own

TASKS = [task for exercise in sorted(exercises()) for task in tasks_of(exercise)]
MISTAKES = [(task, mistake) for task in TASKS for mistake in task.mistakes]
WIDTHS = [16, 32, 64, 128, 256, 512, 1024, 2048]  # of tiles, for mistakes that depend on one
SEED = 3


@pytest.fixture(scope="module")
def inputs():
    """inputs(task): its inputs, made once."""
    known: dict = {}
    return lambda task: known.setdefault(task.id, Inputs(task, SEED))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_each_case_can_be_called_and_judged(task, inputs):
    for index, case in enumerate(task.cases):
        arguments = inputs(task).arguments(index)
        if task.verdict:
            continue
        for turn in (RECORDED[0], PLAYED[0]):
            for e in inputs(task).expected(index, turn):
                right = Result(e.values, e.dtype) if isinstance(e.values, np.ndarray) else Result(e.values)
                assert matches(right, e), f"{case.name}: {e.name}"
                assert not e.argument or isinstance(arguments[e.argument], Tensor)
        if task.minimum_bytes:
            assert min(task.minimum_bytes(**arguments).values()) >= 0 < sum(task.minimum_bytes(**arguments).values())


@pytest.mark.parametrize("task, mistake", MISTAKES, ids=[f"{task.id} {mistake.fault}" for task, mistake in MISTAKES])
def test_a_mistake_is_no_right_answer(task, mistake, inputs):
    """In some case each way of it gives something else."""
    for way in mistake.ways:
        assert any(differs(inputs(task), index, way) for index in range(len(task.cases))), way


def differs(inputs: Inputs, index: int, way: dict) -> bool:
    reference = inputs.task.functions[inputs.task.function(index)]
    if not takes(reference, way):
        return False
    right = {e.name: e for e in inputs.expected(index)}
    return any(
        not matches(Result(e.values, right[e.name].dtype) if right[e.name].dtype else Result(e.values), right[e.name])
        for candidate in mistaken(reference, way, inputs.arguments(index), WIDTHS)
        for e in candidate
    )


@pytest.mark.parametrize("exercise", sorted(exercises()))
def test_check_cells_hold_the_tasks_in_their_order_with_their_points(exercise):
    cells = nbformat.read(ROOT / notebook_of(exercise, "solutions"), as_version=4).cells
    points = {grade_id(c): c.metadata.nbgrader["points"] for c in cells if grade_id(c).startswith("check_")}
    assert [*points.items()] == [(f"check_{t.id.replace('.', '_')}", t.max_points) for t in tasks_of(exercise)]


@pytest.mark.parametrize("task", [task for task in TASKS if task.speed], ids=lambda task: task.id)
def test_a_timed_call_is_the_cases_call_at_another_size(task, inputs):
    arguments = task.speed.make()
    assert [*arguments] == [name for name in inputs(task).arguments(0) if name[0] != "_"]
    sizes = [np.prod(value.shape) for value in arguments.values() if isinstance(value, RandomTensor)]
    assert max(sizes) > 1 << 22 and task.speed.bytes > 1 << 24 and 0 < task.speed.share < 1


def test_inputs_depend_on_seed_task_case_and_turn_alone():
    task = find_task("05.3")
    one, again, other = (Inputs(task, seed).arguments(1)["x"] for seed in (1, 1, 2))
    assert np.array_equal(one.storage, again.storage) and not np.array_equal(one.storage, other.storage)
    made = Inputs(task, 1)
    turns = [made.arguments(1, turn) for turn in (*RECORDED, *PLAYED)]
    assert len({t["x"].storage.tobytes() for t in turns}) == 3
    assert len({(t["x"].shape, t["x"].stride, t["x"].dtype) for t in turns}) == 1 == len({t["eps"] for t in turns})
    assert not np.array_equal(one.storage, Inputs(find_task("05.4"), 1).arguments(1)["x"].storage)


@returns("n")
def count(n, *, once=False):
    return n


def test_what_is_declared_wrong_is_refused():
    case = Case("one", lambda rng: {"n": 1})
    fields = {"id": "98.1", "title": "", "points": 1, "functions": {"count": count}, "cases": (case,)}
    Task(**fields, mistakes=(Mistake("once", "", once=True),))
    for wrong in (
        {"cases": (Case("one", dict, function="other"),)},
        {"cases": ()},
        {"hints": {"wrong": "?"}},
        {"mistakes": (Mistake("twice", "", twice=TILE),)},
    ):
        with pytest.raises(ValueError, match=r"98\.1"):
            Task(**{**fields, **wrong})
    with pytest.raises(ValueError, match="expected at least one"):
        Mistake("nothing", "")
    with pytest.raises(ValueError, match="1 results, and 2 are declared"):
        expected(returns("a", "b")(lambda n: (n,)), {"n": 1})
    moving = Case("two", lambda rng: {"x": tensor(np.zeros(rng.integers(1, 9) + rng.turn))})
    with pytest.raises(ValueError, match="another form at each turn"):
        Inputs(Task(**{**fields, "cases": (moving,)}), 1).arguments(0, 3)
