"""What is checked, as declarations: one module per exercise, with `EXERCISE` and `TASKS`. README.md here says how.

A task is a function (or a few) that the learner writes. A case is one call of it: inputs from a seeded generator, and a
reference, in NumPy and fp64, that says what the call has to give. A common mistake is the reference called with a flag.
`grade` and the notebook's `check` use the same tasks and differ only in the seed. Nothing of this is in the learner's
process.
"""

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from grading.tasks.arrays import STORAGE, Tensor, decode, encode, rounded

#: What can be wrong with an answer, the most telling first, and what to do about it where a task says nothing better.
DIAGNOSES = {
    "missing": "Define it in the answer cell of this task, and take the line `raise NotImplementedError()` out.",
    "stopped": "Look for a loop that never ends, or for a call that ends the process.",
    "no_kernel": "Write a Triton kernel in the answer cell and launch it.",
    "out_of_bounds": "Check the mask of this load or store; where it has one, check its offsets: the strides, the "
    "start of the tile, the order of the grid's axes.",
    "unwritten": "The kernel has to store every element of a result: check the grid, the loop and the mask.",
    "race": "Programs run at the same time, in any order: let one program write each element, add with tl.atomic_add, "
    "or use a second launch.",
    "exception": "",
    "compile": "The interpreter is more lenient than the compiler: on a GPU this kernel would not run.",
    "form": "Return exactly what the task asks for, in its order, shapes and dtypes.",
    "torch_work": "Allocate with torch.empty and let the kernel do the rest: what torch does is HBM traffic too.",
    "state": "Allocate results anew in each call, leave inputs as they are, and take the grid from shapes alone.",
    "mistake": "",
    "values": "Compare with the formula, step by step, on a small input.",
    "traffic": "Read each element once and keep it in registers until its last use.",
    "slow": "Check the width of the tile, num_warps, and that each load is contiguous.",
}

#: As a flag of a mistake: the width of a tile of the learner's kernel.
TILE = "the width of a tile"

#: The seed of the notebook's own `check`; `grade` draws a secret one.
PUBLIC_SEED = 20260

#: Turns of a case's inputs: each has other numbers. The learner's process gets two, the player the last one.
RECORDED, PLAYED = (0, 1), (3,)


def tensor(values, dtype: str = "fp32", row_stride: int | None = None, fill: float = float("nan")) -> Tensor:
    """A tensor of `values` rounded to `dtype`.

    row_stride: elements from one row to the next, for a matrix whose rows are padded; the padding holds `fill`, so that
    a kernel that reads it shows.
    """
    values = np.asarray(values)
    stride = tuple(int(np.prod(values.shape[axis + 1 :])) for axis in range(values.ndim))
    padded = values
    if row_stride is not None:
        if values.ndim != 2 or row_stride < values.shape[1]:
            raise ValueError(f"row_stride: got {row_stride} for shape {values.shape}, expected a matrix whose rows fit")
        stride = (row_stride, 1)
        padded = np.full((values.shape[0], row_stride), fill)
        padded[:, : values.shape[1]] = values
    return Tensor(encode(padded, dtype).reshape(-1), dtype, values.shape, stride)


def spread(values, dtype: str, *stride: int, fill: float = float("nan")) -> Tensor:
    """A tensor of `values` rounded to `dtype` with these strides, as a transposed view or one with steps has them; what
    lies between its elements holds `fill`."""
    values = np.asarray(values)
    storage = np.full(1 + sum((n - 1) * step for n, step in zip(values.shape, stride)), fill)
    np.lib.stride_tricks.as_strided(storage, values.shape, [step * storage.itemsize for step in stride])[...] = values
    return Tensor(encode(storage, dtype), dtype, values.shape, stride)


def one_of(rng, *choices) -> int:
    """One of these whole numbers, at random."""
    return int(rng.choice(choices))


def ceil(n: int, block: int) -> int:
    """Blocks that cover n."""
    return -(-n // block)


@dataclass(frozen=True)
class Expected:
    """One thing that has to come out of a call.

    values: float64 array for a tensor; int, float or str for a plain value (integers and strings exact).
    dtype: the tensor's dtype name. argument: name of the argument that has to hold the values after the call, for what
    is updated in place; empty for what is returned. contiguous: it has to be.
    """

    name: str
    values: Any
    dtype: str = ""
    argument: str = ""
    contiguous: bool = False


@dataclass(frozen=True)
class DType:
    """An argument that is a dtype: the learner's function gets torch's."""

    name: str


@dataclass(frozen=True)
class RandomTensor:
    """An input of a timed call, made where it is timed: too large to travel. Floats are normal-distributed, int32 a
    permutation of 0, 1, 2 and so on.

    whole: the reference gets all of it, not the sampled rows alone, as it needs a matmul's other operand. A vector
    beside matrices, such as a weight, is always whole; where all inputs are vectors, elements are sampled.
    """

    shape: tuple
    dtype: str
    mean: float = 0.0
    std: float = 1.0
    whole: bool = False


@dataclass(frozen=True)
class Speed:
    """Points that only a GPU can give: `bytes` over the measured time, as a share of the copy bandwidth of the same
    run; or `flops` over the time, where they are given, as a share of the throughput of torch's own matmul.

    make(): {argument: RandomTensor, DType or plain value}, in the order of the call. block: rows of the input that
    a row of a result may belong to; whole blocks are judged then.
    """

    points: int
    share: float
    bytes: int
    shape: str
    make: Callable[[], dict]
    flops: int = 0
    block: int = 1

    @property
    def yardstick(self) -> str:
        """What the share is of, in words."""
        return "the throughput of torch's matmul" if self.flops else "copy bandwidth"

    @property
    def unit(self) -> str:
        """Of the work per nanosecond."""
        return "GFLOP/s" if self.flops else "GB/s of minimum traffic"

    @property
    def work(self) -> int:
        """What is divided by the time."""
        return self.flops or self.bytes


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes:
        name: what is special about it, for people.
        make: make(rng) -> {argument: Tensor, DType or plain value}, in the order of the call. `rng` draws other numbers
            at each turn, `rng.sizes` the same, `rng.paired` the same for a recorded call and its play. A name that
            begins with _ is for the reference alone.
        function: which of the task's functions; its first by default.
        hint: said where only this case fails, or others with the same hint.
        same: every turn has the same numbers, which hang together in a way that other ones would spoil.
    """

    name: str
    make: Callable[["Draw"], dict]
    function: str = ""
    hint: str = ""
    same: bool = False


class Draw(np.random.Generator):
    """A generator of numbers: other ones at each turn.

    sizes draws the same at every turn, so shapes come from it. paired draws the same when a call is recorded and when
    its launches are played again: for a vector, such as a weight, of which torch may prepare something before the
    launch.
    """

    def __init__(self, stream: list, turn: int):
        super().__init__(np.random.PCG64(np.random.SeedSequence([*stream, turn])))
        self.turn = turn
        self.paired = np.random.Generator(np.random.PCG64(np.random.SeedSequence([*stream, turn % 2, 1 << 21])))
        self.sizes = np.random.Generator(np.random.PCG64(np.random.SeedSequence([*stream, 1 << 20])))


@dataclass(frozen=True, init=False)
class Mistake:
    """A common mistake: `fault` says what was done, `hint` what to do instead.

    The reference makes it when it is called with flags, keyword-only parameters whose defaults are right:
    `Mistake("eps was added outside the square root", "Add it to the mean of the squares.", eps_outside=True)`. Several
    ways to make it are several dictionaries of flags in place of the keywords. A flag whose value is TILE stands for
    the width of a tile of the learner's kernel. results: the results that the mistake spoils, by name, where it says
    nothing about the others; all by default.
    """

    fault: str
    hint: str
    ways: tuple
    results: tuple

    def __init__(self, fault: str, hint: str, *ways: dict, results: tuple = (), **flags):
        for name, value in {"fault": fault, "hint": hint, "results": tuple(results)}.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "ways", (*ways, *([flags] if flags else [])))
        if not self.ways:
            raise ValueError(f"mistake {fault!r}: no flags, expected at least one")


def returns(*names: str, in_place: tuple = (), contiguous: bool = False, **dtypes: str):
    """Declares what a reference returns, in order: names of plain values, or tensors with their dtype.

    A dtype is the name of one, or of the argument whose dtype (or whose value) it is. in_place: those that the
    learner's function does not return but leaves in the argument of that name. contiguous: results have to be, as a
    kernel's always have.
    """

    def declare(reference):
        reference.results, reference.in_place = {**dict.fromkeys(names, ""), **dtypes}, tuple(in_place)
        reference.contiguous = contiguous
        return reference

    return declare


def called(function: Callable, arguments: dict):
    """`function` with those of the arguments that it names."""
    names = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in names.values()):
        return function(**arguments)
    return function(**{name: value for name, value in arguments.items() if name in names})


def plain(arguments: dict) -> dict:
    """Arguments as a reference gets them: tensors as float64 arrays, dtypes by their names."""
    return {
        name: value.values if isinstance(value, Tensor) else value.name if isinstance(value, DType) else value
        for name, value in arguments.items()
    }


def expected(reference: Callable, arguments: dict) -> list:
    """What `reference` says a call with these arguments has to give, one Expected per result."""
    dtypes = {name: value.dtype for name, value in arguments.items() if isinstance(value, Tensor)}
    results = called(reference, {**plain(arguments), "dtypes": dtypes})
    results = results if isinstance(results, (tuple, list)) and len(reference.results) > 1 else (results,)
    if len(results) != len(reference.results):
        raise ValueError(
            f"reference {reference.__name__}: {len(results)} results, and {len(reference.results)} are declared"
        )
    return [
        Expected(name, value, _dtype_of(dtype, arguments), name * (name in reference.in_place), reference.contiguous)
        for (name, dtype), value in zip(reference.results.items(), results)
    ]


def _dtype_of(name: str, arguments: dict) -> str:
    if not name or name in STORAGE:
        return name
    argument = arguments[name]
    return argument.dtype if isinstance(argument, Tensor) else getattr(argument, "name", argument)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task of an exercise.

    Attributes:
        id: such as "05.3".
        title: a few words.
        points: for a right answer, without those for speed.
        functions: {name that the answer cell defines: its reference}, in the order in which `check` gets them. A
            reference takes the case's arguments by name and is declared with `returns`.
        cases: the calls.
        mistakes: common mistakes, tried where values are wrong.
        verdict: verdict(arguments, results) -> a sentence that names the fault, '' where there is none; for answers
            that a reference cannot foresee. `_dtypes` among the arguments lists the results' dtypes, `_metered` has
            what the kernels did (facts.Metered), None where none was played.
        kernel: Triton kernels of the answer have to do the work.
        minimum_bytes: minimum_bytes(**arguments) -> {role: bytes}, roles being arguments and "returned 0"; the kernels
            may request BYTES_FACTOR times as much.
        max_tile: of a kernel, the widest side that a tile of an access may have, or the two sides of a tile; of an
            answer in PyTorch, max_tile(**arguments) -> elements that one operation may work on.
        coalesced: the sectors of 32 bytes that the accesses touch hold at most twice minimum_bytes.
        instruction: (N of sm_N, {demand: what to do where it is not met}) of kernels that are compiled for it. A demand
            is a part of the PTX, "no loads through pointers" or "a loop without a mask".
        speed: points that only a GPU can give.
        hints: {diagnosis: what to do, or {function: what to do}}, in place of DIAGNOSES; "passed": said with a pass.
    """

    id: str
    title: str
    points: int
    functions: dict
    cases: tuple
    mistakes: tuple = ()
    verdict: Callable | None = None
    kernel: bool = False
    minimum_bytes: Callable | None = None
    max_tile: int | tuple | Callable | None = None
    coalesced: bool = False
    instruction: tuple | None = None
    speed: Speed | None = None
    hints: dict = field(default_factory=dict)

    def __post_init__(self):
        unknown = set(self.hints) - {*DIAGNOSES, "passed"}
        if unknown:
            raise ValueError(f"task {self.id}: hints for {sorted(unknown)}, expected some of {', '.join(DIAGNOSES)}")
        others = {case.function for case in self.cases} - {"", *self.functions}
        if others or not self.cases:
            raise ValueError(f"task {self.id}: cases of {sorted(others)}, expected some of {', '.join(self.functions)}")
        for mistake in self.mistakes:
            for way in mistake.ways:
                if not any(takes(reference, way) for reference in self.functions.values()):
                    raise ValueError(f"task {self.id}, mistake {mistake.fault!r}: no reference takes {sorted(way)}")

    @property
    def max_points(self) -> int:
        return self.points + (self.speed.points if self.speed else 0)

    def function(self, index: int) -> str:
        """The name of the function that a case calls."""
        return self.cases[index].function or next(iter(self.functions))


#: Bytes that kernels may request, as a multiple of minimum_bytes.
BYTES_FACTOR = 1.05


def takes(reference: Callable | None, way: dict) -> bool:
    """Whether a reference takes these flags."""
    return reference is not None and set(way) <= set(inspect.signature(reference).parameters)


def mistaken(reference: Callable, way: dict, arguments: dict, widths: list) -> list:
    """What a mistake gives in one case, a list of Expected for each width of a tile that it may depend on; [] where it
    makes no sense of the case."""
    candidates = []
    for width in widths if TILE in way.values() else [None]:
        flags = {name: width if value is TILE else value for name, value in way.items()}
        try:
            with np.errstate(all="ignore"):
                candidates.append(expected(reference, {**arguments, **flags}))
        except (ArithmeticError, ValueError, IndexError, TypeError, KeyError):
            continue
    return candidates


class Inputs:
    """The inputs of a task for one submission, and what has to come out: each made once."""

    def __init__(self, task: Task, seed: int):
        self.task, self.seed = task, seed
        self._arguments, self._expected = {}, {}

    def arguments(self, index: int, turn: int = 0) -> dict:
        """The inputs of one case at one turn: they depend on the seed, the task, the case and the turn, on nothing
        else."""
        if (index, turn) not in self._arguments:
            case = self.task.cases[index]
            arguments = case.make(Draw([self.seed, *map(ord, self.task.id), index], 0 if case.same else turn))
            if turn:
                first = self.arguments(index, 0)
                for name, value in arguments.items():
                    if not isinstance(value, Tensor):
                        arguments[name] = first[name]
                    elif any(
                        getattr(value, form) != getattr(first[name], form) for form in ("shape", "stride", "dtype")
                    ):
                        raise ValueError(
                            f"task {self.task.id}, case {case.name!r}: {name} has another form at each turn; draw "
                            "sizes from rng.sizes"
                        )
            self._arguments[index, turn] = arguments
        return self._arguments[index, turn]

    def expected(self, index: int, turn: int = 0) -> list:
        """What has to come out of a case."""
        if (index, turn) not in self._expected:
            reference = self.task.functions[self.task.function(index)]
            self._expected[index, turn] = expected(reference, self.arguments(index, turn))
        return self._expected[index, turn]


# ---------------------------------------------------------------- which there are


@cache
def exercises() -> dict:
    """{exercise id: the name of the module that declares its tasks}, known without importing any."""
    modules = {}
    for path in sorted(Path(__file__).parent.glob("lesson_*.py")):
        named = re.search(r'^EXERCISE = "(\w+)"$', path.read_text(encoding="utf-8"), re.MULTILINE)
        if not named:
            raise ValueError(f'{path.name}: no line EXERCISE = "..."')
        modules[named[1]] = path.stem
    return modules


def modules_of(exercise: str) -> set[Path]:
    """The files that declare an exercise's tasks: its own, and those of other exercises that it imports from."""
    files, names = set(), [exercises()[exercise]] if exercise in exercises() else []
    for name in names:  # which grows
        path = Path(__file__).parent / f"{name}.py"
        if path not in files:
            files.add(path)
            text = path.read_text(encoding="utf-8")
            names += re.findall(r"^from grading\.tasks(?:\.| import )(lesson_\w+)", text, re.MULTILINE)
    return files


@cache
def tasks_of(exercise: str) -> tuple:
    """The tasks of an exercise, by its id in the notebook's metadata."""
    if exercise not in exercises():
        raise ValueError(f"exercise: no tasks for {exercise!r}, expected one of: {', '.join(sorted(exercises()))}")
    return tuple(importlib.import_module(f"{__name__}.{exercises()[exercise]}").TASKS)


def exercise_with(task_id: str) -> str:
    """The exercise that a task's id belongs to by its number; '' for none."""
    number = task_id.partition(".")[0]
    return next((name for name in exercises() if name.partition("_")[0] == number), "")


def task(task_id: str) -> Task:
    """A task by its id."""
    lesson = exercise_with(task_id)
    known = {task.id: task for name in ([lesson] if lesson else exercises()) for task in tasks_of(name)}
    if task_id not in known:
        raise ValueError(f"task: no task {task_id!r}, expected one of: {', '.join(sorted(known))}")
    return known[task_id]


__all__ = [
    "Case",
    "DType",
    "Draw",
    "Expected",
    "Inputs",
    "Mistake",
    "PUBLIC_SEED",
    "RandomTensor",
    "Speed",
    "TILE",
    "Task",
    "Tensor",
    "ceil",
    "decode",
    "encode",
    "exercises",
    "one_of",
    "plain",
    "returns",
    "rounded",
    "spread",
    "task",
    "tasks_of",
    "tensor",
]
