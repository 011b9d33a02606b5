"""What every task declares: slips that can be seen, and cases by property."""

import importlib

import numpy as np
import pytest

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
SLIPS = [(task, slip) for task in TASKS for slip in task.slips]


def spoils(task, right, wrong) -> bool:
    """Whether a slip's results are told from the right ones: ([Expected], [Expected])."""
    right = {e.name: e for e in right}
    for e in wrong:
        if not isinstance(e.values, np.ndarray):
            if e.values != right[e.name].values:
                return True
        elif e.values.shape != right[e.name].values.shape:
            return True
        elif e.values.size and row_errors(e.values, right[e.name].values).max() > allowed(right[e.name].values, e.dtype):
            return True
    return False


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("task, slip", SLIPS, ids=[f"{task.id} {slip.fault}" for task, slip in SLIPS])
def test_every_slip_changes_some_case_beyond_the_tolerance(task, slip, seed):
    given = Given(task, seed)
    for way in range(len(slip.ways)):
        mistakes = [(name, mistaken) for name, mistaken in task.mistaken(slip)]
        assert mistakes, way
    for name in {name for name, _ in task.mistaken(slip)}:
        shown = (guess for index in range(len(task.cases)) if task.function(index) == name
                 for guess in guesses(task, slip, name, given.arguments(index), list(WIDTHS))
                 if spoils(task, given.expected(index), guess))
        assert next(shown, None) is not None, f"{name}: no case shows it"


# ---------------------------------------------------------------- cases by property

KERNELS = [(task, name) for task in TASKS if task.kernel for name in task.functions]
IDS = [f"{task.id} {name}" for task, name in KERNELS]
NOT_MANY: dict = {}  # {(task, function): why no case has more rows or tiles than a GPU has multiprocessors}
NOT_ONE: dict = {}  # {(task, function): why no case has a single column or element}
NOT_FAR: dict = {}  # {(task, function): why no operand is padded or transposed}


def tensors(task, name) -> list:
    """The tensors of each case that calls a function."""
    given = Given(task, 1)
    return [[t for t in given.arguments(index).values() if isinstance(t, Tensor)] for index in range(len(task.cases))
            if task.function(index) == name]


def contiguous(t) -> bool:
    return all(n < 2 or step == int(np.prod(t.shape[axis + 1:])) for axis, (n, step) in enumerate(zip(t.shape, t.stride)))


@pytest.mark.parametrize("task, name", KERNELS, ids=IDS)
def test_more_programs_than_a_gpu_has_multiprocessors(task, name):
    if (task.id, name) in NOT_MANY:
        pytest.skip(NOT_MANY[task.id, name])
    assert MANY > MULTIPROCESSORS
    most = max(max((t.shape[0] for t in case if len(t.shape) > 1), default=0) for case in tensors(task, name))
    tiles = max(max((int(np.prod(t.shape)) // 4096 for t in case), default=0) for case in tensors(task, name))
    assert max(most, tiles) > MULTIPROCESSORS


@pytest.mark.parametrize("task, name", KERNELS, ids=IDS)
def test_a_single_element(task, name):
    if (task.id, name) in NOT_ONE:
        pytest.skip(NOT_ONE[task.id, name])
    assert any(t.shape and (t.shape[-1] == 1 or int(np.prod(t.shape)) == 1) for case in tensors(task, name) for t in case)


@pytest.mark.parametrize("task, name", KERNELS, ids=IDS)
def test_operands_that_are_not_contiguous(task, name):
    if (task.id, name) in NOT_FAR:
        pytest.skip(NOT_FAR[task.id, name])
    found = [t for case in tensors(task, name) for t in case if len(t.shape) == 2]
    assert not found or not all(map(contiguous, found))


def test_exceptions_are_of_tasks_that_exist():
    for table in (NOT_MANY, NOT_ONE, NOT_FAR):
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
        assert np.array_equal(a.values, b.values, equal_nan=True) if isinstance(a.values, np.ndarray) else a.values == b.values
        assert np.array_equal(a.values, c.values, equal_nan=True) if isinstance(a.values, np.ndarray) else a.values == c.values
