"""What every task declares: slips that can be seen, and cases by property."""

import importlib

import numpy as np
import pytest
from grading_tools import tables

from grading.diagnose import allowed, row_errors
from grading.tasks import Given, Tensor, exercises, expected, guesses
from grading.tasks.properties import MANY

MULTIPROCESSORS = 148  # of the largest GPU that the course names
WIDTHS = (16, 32, 64, 128, 256, 512, 1024)  # of tiles, for slips that depend on them


def known() -> list:
    """The tasks of all lessons that import."""
    found = []
    for name in exercises().values():
        try:
            found += importlib.import_module(f"grading.tasks.{name}").TASKS
        except ImportError:  # not yet declared in the new way
            continue
    return found


TASKS = known()
GIVEN: dict = {}  # {(task id, seed): its inputs, made once for all slips}
SLIPS = [(task, slip) for task in TASKS for slip in task.slips]


def spoils(right, wrong) -> bool:
    """Whether a slip's results are told from the right ones: ([Expected], [Expected])."""
    right = {e.name: e for e in right}
    for e in wrong:
        if not isinstance(e.values, np.ndarray):
            if e.values != right[e.name].values:
                return True
        elif e.values.shape != right[e.name].values.shape:
            return True
        elif e.values.size:
            truth = right[e.name].values
            if (row_errors(e.values, truth) > allowed(truth, e.dtype)).any():
                return True
    return False


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("task, slip", SLIPS, ids=[f"{task.id} {slip.fault}" for task, slip in SLIPS])
def test_every_slip_changes_some_case_beyond_the_tolerance(task, slip, seed):
    given = GIVEN.setdefault((task.id, seed), Given(task, seed))
    for name in {name for name, _ in task.mistaken(slip)}:
        shown = (
            index
            for index in range(len(task.cases))
            if task.function(index) == name
            for guess in guesses(task, slip, name, given.arguments(index), list(WIDTHS))
            if spoils(given.expected(index), guess)
        )
        assert next(shown, None) is not None, f"{name}: no case shows it"


# ---------------------------------------------------------------- cases by property

KERNELS = [(task, name) for task in TASKS if task.kernel for name in task.functions]
IDS = [f"{task.id} {name}" for task, name in KERNELS]


def promised(name: str) -> dict:
    """What the modules test_NN.py say under a name, together."""
    return {key: said for table in tables() for key, said in getattr(table, name, {}).items()}


TILES, NOT_ONE, NOT_FAR = promised("TILES"), promised("NOT_ONE"), promised("NOT_FAR")


def tensors(task, name) -> list:
    """The tensors of each case that calls a function."""
    given = Given(task, 1)
    return [
        [t for t in given.arguments(index).values() if isinstance(t, Tensor)]
        for index in range(len(task.cases))
        if task.function(index) == name
    ]


def contiguous(t) -> bool:
    steps = [int(np.prod(t.shape[axis + 1 :])) for axis in range(len(t.shape))]
    return all(n < 2 or step == right for n, step, right in zip(t.shape, t.stride, steps))


@pytest.mark.parametrize("task, name", KERNELS, ids=IDS)
def test_more_programs_than_a_gpu_has_multiprocessors(task, name):
    assert MANY > MULTIPROCESSORS
    found = [t for case in tensors(task, name) for t in case]
    most = max((t.shape[0] for t in found if len(t.shape) > 1), default=0)
    tiles = max(int(np.prod(t.shape)) // TILES.get(task.id, 4096) for t in found)
    assert max(most, tiles) > MULTIPROCESSORS


@pytest.mark.parametrize("task, name", KERNELS, ids=IDS)
def test_a_single_element(task, name):
    if (task.id, name) in NOT_ONE:
        pytest.skip(NOT_ONE[task.id, name])
    assert any(t.shape[-1:] == (1,) for case in tensors(task, name) for t in case)


@pytest.mark.parametrize("task, name", KERNELS, ids=IDS)
def test_operands_that_are_not_contiguous(task, name):
    if (task.id, name) in NOT_FAR:
        pytest.skip(NOT_FAR[task.id, name])
    found = [t for case in tensors(task, name) for t in case if len(t.shape) == 2]
    assert not found or not all(map(contiguous, found))


def test_exceptions_are_of_tasks_that_exist():
    for table in (NOT_ONE, NOT_FAR):
        assert not set(table) - {(task.id, name) for task, name in KERNELS}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_the_right_results_are_the_same_whoever_asks(task):
    """An oracle draws nothing of its own and changes nothing it is given."""
    oracle = next(iter(task.functions.values()))
    if oracle is None:
        pytest.skip("judged by a verdict")
    one, two = Given(task, 1), Given(task, 1)
    first = expected(oracle, one.arguments(0))
    again = expected(oracle, one.arguments(0))
    for a, b, c in zip(first, again, two.expected(0)):
        assert all(np.array_equal(a.values, other.values) for other in (b, c))
