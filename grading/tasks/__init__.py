"""What is checked, as data: one module per lesson with `EXERCISE` and `TASKS`; README.md beside this file says how.

A task is a function (or a few) that the learner writes. A case is one call of it: inputs from a seeded generator, and
an fp64 oracle, in numpy, of what has to come out. The grader and the notebook's `check` use the same tasks and differ
only in the seed. Everything here runs outside the learner's process.
"""

import importlib
import pkgutil
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Callable

import numpy as np

from grading.arrays import Tensor, decode, encode, rounded, tensor

#: What torch may do with tensors of any size beside a kernel: make new ones.
ALLOCATIONS = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like", "new_zeros",
               "full", "full_like", "new_full", "ones", "ones_like", "new_ones")

#: The seed of the notebook's own `check`; `grade` draws a secret one.
PUBLIC_SEED = 20260


@dataclass(frozen=True)
class Expected:
    """One thing that has to come out of a call.

    values: float64 array for a tensor; int, float or str for a plain value (integers and strings exact).
    dtype: the tensor's dtype name. argument: name of the argument that has to hold the values after the call, for what
    is updated in place; empty for what is returned.
    """

    name: str
    values: Any
    dtype: str = ""
    argument: str = ""


@dataclass(frozen=True)
class DType:
    """An argument that is a dtype: the learner's function gets torch's."""

    name: str


@dataclass(frozen=True)
class Case:
    """One call. make(rng) -> {argument: Tensor, DType or plain value}, in the order of the call.

    A name that begins with _ is for the oracle alone: the learner's function does not get it.
    function: which of the task's functions; its first by default. hint: said when only this case fails and the shape
    of the failure says nothing better.
    """

    name: str
    make: Callable[[np.random.Generator], dict]
    function: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Suspect:
    """A plausible mistake: oracle(**arguments) gives a list of what it may return; where one matches, `hint` is given.

    Each guess is a list of Expected; results that it leaves out have to be right.
    """

    name: str
    oracle: Callable
    hint: str


@dataclass(frozen=True)
class RandomTensor:
    """A normal-distributed input of a timed call, made in the learner's process: too large to travel."""

    shape: tuple
    dtype: str
    mean: float = 0.0
    std: float = 1.0


@dataclass(frozen=True)
class Speed:
    """Points that only a GPU can give: `bytes` over the measured time, as a share of the copy roof of the same run.

    make(): {argument: RandomTensor, DType or plain value}, in the order of the call.
    """

    points: int
    share: float
    bytes: int
    shape: str
    make: Callable[[], dict]


@dataclass(frozen=True)
class Task:
    """One task of an exercise.

    id: '05.3'. functions: names that the answer cell defines, in the order in which `check` gets them.
    oracle(**arguments) -> [Expected, ...]; tensors arrive as float64 arrays, dtypes as DType. verdict(arguments,
    returned) -> a sentence naming the fault, or '' when right; for answers that an oracle cannot foresee.
    suspects: mistakes tried on a wrong result. kernel: a Triton kernel of the answer must store every element.
    contiguous: results must lie in memory row by row; a transposed view of the right values does not pass.
    minimum_bytes(**arguments), bytes_factor: bytes requested may be at most factor x minimum.
    sector_factor: the sectors of 32 bytes that the accesses touch may hold at most so many times minimum_bytes.
    max_tile: widest tile, read off the powers of two among a launch's constexprs. tile_elements(**arguments): largest
    operand that a torch operation may touch. torch_operations: the aten operations that may touch more; views always may.
    ieee: on fp32 alone, no kernel may multiply in TF32 when it is compiled.
    speed: what a GPU adds. hints: {kind of failure: what to do}, before diagnose.py's own words. success: said with a
    pass.
    """

    id: str
    title: str
    points: int
    functions: tuple
    cases: tuple
    oracle: Callable | None = None
    verdict: Callable | None = None
    suspects: tuple = ()
    kernel: bool = False
    contiguous: bool = False
    minimum_bytes: Callable | None = None
    bytes_factor: float = 1.05
    sector_factor: float | None = None
    max_tile: int | None = None
    tile_elements: Callable | None = None
    torch_operations: tuple = ALLOCATIONS
    ieee: bool = False
    speed: Speed | None = None
    hints: dict = field(default_factory=dict)
    success: str = ""

    @property
    def max_points(self) -> int:
        return self.points + (self.speed.points if self.speed else 0)

    def arguments(self, index: int, seed: int) -> dict:
        """The inputs of one case: they depend on the seed, the task and the case, on nothing else."""
        stream = [seed, *map(ord, self.id), index]
        return self.cases[index].make(np.random.Generator(np.random.PCG64(np.random.SeedSequence(stream))))


def plain(arguments: dict) -> dict:
    """Arguments as an oracle gets them: tensors as float64 arrays."""
    return {name: value.values if isinstance(value, Tensor) else value for name, value in arguments.items()}


@cache
def exercises() -> dict:
    """{exercise id: its tasks}, of every lesson module in this folder."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("lesson_"):
            lesson = importlib.import_module(f"{__name__}.{module.name}")
            found[lesson.EXERCISE] = tuple(lesson.TASKS)
    return found


def tasks_of(exercise: str) -> tuple:
    """The tasks of an exercise, by its id in the notebook's metadata."""
    if exercise not in exercises():
        raise ValueError(f"exercise: no checks for {exercise!r}, expected one of: {', '.join(sorted(exercises()))}")
    return exercises()[exercise]


def task(task_id: str) -> Task:
    """A task by its id."""
    known = {task.id: task for tasks in exercises().values() for task in tasks}
    if task_id not in known:
        raise ValueError(f"task: no task {task_id!r}, expected one of: {', '.join(sorted(known))}")
    return known[task_id]


__all__ = ["Case", "DType", "Expected", "RandomTensor", "Speed", "Suspect", "Task", "Tensor", "decode", "encode",
           "exercises", "plain", "rounded", "task", "tasks_of", "tensor"]
