"""What is checked, as declarations: one module per lesson with `EXERCISE` and `TASKS`; README.md beside this file says
how.

A task is a function (or a few) that the learner writes. A case is one call of it: inputs from a seeded generator, and
an fp64 oracle, in numpy, of what has to come out. A slip is a mistake: an edit of the oracle's own source, with its
hint. The grader and the notebook's `check` use the same tasks and differ only in the seed. Everything here runs outside
the learner's process.
"""

import importlib
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from grading.arrays import STORAGE, Tensor, decode, encode, rounded, tensor

#: Kinds of failure, the most telling first; `Task.hints` may say for each of them what to do.
KINDS = (
    "not_defined",
    "stopped",
    "left_over",
    "no_kernel",
    "foreign_kernel",
    "refused",
    "readback",
    "out_of_bounds",
    "unwritten",
    "promise",
    "race",
    "exception",
    "compile",
    "tf32",
    "products",
    "count",
    "type",
    "dtype",
    "shape",
    "strides",
    "not_by_kernel",
    "torch_work",
    "kept",
    "slip",
    "overflow",
    "infinite",
    "nan",
    "divisor",
    "sixteen_bit",
    "rounded_output",
    "row_scale",
    "tail",
    "some_rows",
    "wrong",
    "not_read",
    "input_changed",
    "tuned",
    "order",
    "undefined",
    "verdict",
    "tile_too_wide",
    "whole_tensor",
    "bytes",
    "sectors",
    "slow",
)

#: What torch may do with tensors of any size beside a kernel: make new ones.
ALLOCATIONS = (
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "zeros",
    "zeros_like",
    "new_zeros",
    "full",
    "full_like",
    "new_full",
    "ones",
    "ones_like",
    "new_ones",
    "zero_",
    "fill_",
)

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
class RandomTensor:
    """A normal-distributed input of a timed call, made where it is timed: too large to travel."""

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
class Case:
    """One call. make(rng) -> {argument: Tensor, DType or plain value}, in the order of the call.

    `rng` draws numbers, other ones at each turn; `rng.sizes` draws shapes, the same at each turn, which `rng.turn`
    counts from 0. A name that begins with _ is for the oracle alone. function: which of the task's functions; its first
    by default. hint: said when only this case fails, or others with the same hint, and the shape of the failure says
    nothing better. same: the numbers hang together in a way that other ones would spoil, so every turn has the same.
    """

    name: str
    make: Callable[["Draw"], dict]
    function: str = ""
    hint: str = ""
    same: bool = False


class Draw(np.random.Generator):
    """A generator of numbers, and one of sizes."""

    def __init__(self, stream: list, turn: int):
        super().__init__(np.random.PCG64(np.random.SeedSequence([*stream, turn])))
        self.turn = turn
        self.sizes = np.random.Generator(np.random.PCG64(np.random.SeedSequence([*stream, 1 << 20])))


@dataclass(frozen=True, init=False)
class Slip:
    """A mistake: `fault` says what was done, `hint` what to do.

    ways: edits of the oracle's own source, "old -> new", each one way to make the mistake; a tuple of them is one way
    that takes several edits. The edited oracle gives what the mistake gives. It may use TILE, the width of a tile of
    the learner's kernel, and dtype("x"), the dtype of an argument. answer: the same mistake in the published answer's
    text, "old -> new" or a tuple of them, from which the tests make a wrong answer. functions: those of the task whose
    oracles are edited; by default all whose source holds the text. results: the names of the results that the mistake
    spoils, where it says nothing about the others.
    """

    fault: str
    hint: str
    ways: tuple
    answer: tuple
    functions: tuple
    results: tuple

    def __init__(self, fault: str, hint: str, *ways, answer=(), functions=(), results=()):
        set_ = object.__setattr__
        set_(self, "fault", fault)
        set_(self, "hint", hint)
        set_(self, "ways", tuple((way,) if isinstance(way, str) else tuple(way) for way in ways))
        set_(self, "answer", (answer,) if isinstance(answer, str) else tuple(answer))
        set_(self, "functions", tuple(functions))
        set_(self, "results", tuple(results))
        for edit in (*(edit for way in self.ways for edit in way), *self.answer):
            if edit.count(" -> ") != 1:
                raise ValueError(f"slip {fault!r}: expected 'old -> new', got {edit!r}")


def gives(*names: str, in_place: tuple = (), uses: tuple = (), **dtypes: str):
    """Declares what an oracle returns, in order: names of plain values, or tensors with their dtype.

    A dtype is the name of one, or of the argument whose dtype (or whose value) it is. in_place: those that are not
    returned by the learner's function but left in the argument of that name. uses: functions of the same module whose
    source belongs to the oracle's, for slips to edit.
    """

    def declare(oracle):
        oracle.results, oracle.in_place, oracle.uses = (
            {**dict.fromkeys(names, ""), **dtypes},
            tuple(in_place),
            tuple(uses),
        )
        return oracle

    return declare


def called(function: Callable, arguments: dict):
    """`function` with those of the arguments that it names."""
    names = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in names.values()):
        return function(**arguments)
    return function(**{name: value for name, value in arguments.items() if name in names})


def plain(arguments: dict) -> dict:
    """Arguments as an oracle gets them: tensors as float64 arrays, dtypes by their names."""
    return {
        name: value.values if isinstance(value, Tensor) else value.name if isinstance(value, DType) else value
        for name, value in arguments.items()
    }


def expected(oracle: Callable, arguments: dict, results: Callable | None = None) -> list:
    """What `oracle` says has to come out, one Expected per result. results: where they are declared; the oracle itself
    by default."""
    declared = results or oracle
    came = called(oracle, plain(arguments))
    came = came if isinstance(came, (tuple, list)) and len(declared.results) > 1 else (came,)
    if len(came) != len(declared.results):
        raise ValueError(f"oracle {declared.__name__}: {len(came)} results, and {len(declared.results)} are declared")
    return [
        Expected(name, value, _dtype_of(dtype, arguments), name if name in declared.in_place else "")
        for (name, dtype), value in zip(declared.results.items(), came)
    ]


def _dtype_of(name: str, arguments: dict) -> str:
    if not name or name in STORAGE:
        return name
    argument = arguments[name]
    return (
        argument.dtype if isinstance(argument, Tensor) else argument.name if isinstance(argument, DType) else argument
    )


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task of an exercise.

    id: '05.3'. functions: {name that the answer cell defines: its oracle}, in the order in which `check` gets them; the
    oracle(**arguments) is marked by `gives`. verdict(arguments, returned) -> a sentence naming the fault, or '' when
    right: for answers that an oracle cannot foresee. slips: mistakes tried on a wrong result. kernel: Triton kernels of
    the answer do the work. prepared: vectors of the input, such as a weight, of which torch may make something before
    the launch; all else is numbers that the learner's process never saw. contiguous: results lie in memory row by row.
    minimum_bytes(**arguments) -> {role: bytes}, bytes_factor: bytes requested may be at most factor x minimum.
    reads(**arguments) -> {argument: bytes} that the kernels have to read of each matrix; all of it by default.
    sector_factor: the sectors of 32 bytes that the accesses touch may hold at most so many times minimum_bytes.
    max_tile: widest side of a tile that an access may have, or the two sides of a tile of two dimensions.
    any_order: where kernels use atomics, results have to be the same with programs and lanes in the reverse order.
    no_readback: grids and plain arguments may depend on the shapes of tensors, and not on the numbers in them.
    tile_elements(**arguments): largest operand that a torch operation may touch. torch_operations: the aten operations
    that may touch more; views always may. ieee: on fp32 alone, or "always", no kernel may multiply in TF32 when it is
    compiled. architectures: that kernels have to compile for, the oldest first; an older GPU plays them in the
    interpreter alone. products: what the PTX for the oldest has to say of each kernel that takes 8-bit floats, such as
    ".e4m3.e4m3". speed: what a GPU adds. like: the function of the course whose model and records `portrait` puts
    beside a kernel that passed; '' where none moves the same bytes. hints: {kind of failure: what to do}, before
    diagnose.py's own words. success: said with a pass.
    """

    id: str
    title: str
    points: int
    functions: dict
    cases: tuple
    verdict: Callable | None = None
    slips: tuple = ()
    kernel: bool = False
    prepared: tuple = ()
    contiguous: bool = True
    minimum_bytes: Callable | None = None
    bytes_factor: float = 1.05
    reads: Callable | None = None
    sector_factor: float | None = None
    max_tile: int | tuple | None = None
    any_order: bool = False
    no_readback: bool = False
    tile_elements: Callable | None = None
    torch_operations: tuple = ALLOCATIONS
    ieee: bool | str = False
    architectures: tuple = (80, 90)
    products: str = ""
    speed: Speed | None = None
    like: str = ""
    hints: dict = field(default_factory=dict)
    success: str = ""

    def __post_init__(self):
        unknown = set(self.hints) - set(KINDS)
        if unknown:
            raise ValueError(f"task {self.id}: hints for {sorted(unknown)}, expected some of {', '.join(KINDS)}")
        strangers = {case.function for case in self.cases} - {"", *self.functions}
        if strangers or not self.cases:
            raise ValueError(
                f"task {self.id}: cases of {sorted(strangers)}, expected some of {', '.join(self.functions)}"
            )
        for slip in self.slips:
            self.mistaken(slip)

    @property
    def max_points(self) -> int:
        return self.points + (self.speed.points if self.speed else 0)

    def function(self, index: int) -> str:
        """The name of the function that a case calls."""
        return self.cases[index].function or next(iter(self.functions))

    def mistaken(self, slip: Slip) -> list:
        """[(function, edited oracle)], one for each way of a slip and each function that it touches; ValueError where
        an edit fits nothing."""
        return _mistaken(self, slip)


_MISTAKEN: dict = {}


def _mistaken(task: Task, slip: Slip) -> list:
    key = (task.id, slip.fault)
    if key not in _MISTAKEN:
        found = []
        for way in slip.ways:
            pairs = [edit.split(" -> ") for edit in way]
            touched = [
                name
                for name in slip.functions or task.functions
                if task.functions[name] and all(old in source_of(task.functions[name]) for old, _ in pairs)
            ]
            if not touched:
                raise ValueError(f"task {task.id}, slip {slip.fault!r}: {way} fits no oracle")
            found += [(name, edited(task.functions[name], pairs)) for name in touched]
        _MISTAKEN[key] = found
    return _MISTAKEN[key]


@cache
def source_of(oracle: Callable) -> str:
    """The source that slips edit: the oracle's, after that of the functions it uses, without decorators."""
    parts = [*getattr(oracle, "uses", ()), oracle]
    sources = [textwrap.dedent(inspect.getsource(part)) for part in parts]
    return "\n\n".join(source[re.search(r"^def ", source, re.MULTILINE).start() :] for source in sources)


def edited(oracle: Callable, pairs: list) -> Callable:
    """The oracle with each (old, new) replaced in its source."""
    source = source_of(oracle)
    for old, new in pairs:
        source = source.replace(old, new)
    namespace = dict(oracle.__globals__)
    exec(compile(source, f"<slip of {oracle.__name__}>", "exec"), namespace)
    made = namespace[oracle.__name__]
    made.source = source
    return made


def guesses(task: Task, slip: Slip, function: str, arguments: dict, widths: list) -> list:
    """What a slip may give in one case, a list of Expected for each way. widths: of the learner's tiles."""
    oracle, found = task.functions[function], []
    dtypes = {name: value.dtype for name, value in arguments.items() if isinstance(value, Tensor)}
    for name, mistaken in task.mistaken(slip):
        if name != function:
            continue
        mistaken.__globals__["dtype"] = dtypes.get
        for width in widths if "TILE" in mistaken.source else [None]:
            mistaken.__globals__["TILE"] = width
            try:
                with np.errstate(all="ignore"):
                    came = expected(mistaken, arguments, results=oracle)
            except (
                ArithmeticError,
                ValueError,
                IndexError,
                NameError,
                TypeError,
            ):  # a mistake may make no sense of a case
                continue
            found.append([e for e in came if not slip.results or e.name in slip.results])
    return found


class Given:
    """The inputs of a task for one submission, and what has to come out: each made once.

    Turn 0 and 1 are what the learner's process gets, one call each; 2 and 3 what the replay of these calls gets, which
    no learner's code has seen but for the vectors that the task lets it prepare.
    """

    def __init__(self, task: Task, seed: int):
        self.task, self.seed = task, seed
        self._arguments, self._expected = {}, {}

    def arguments(self, index: int, turn: int = 0) -> dict:
        """The inputs of one case at one turn: they depend on the seed, the task, the case and the turn, on nothing
        else."""
        if (index, turn) not in self._arguments:
            case = self.task.cases[index]
            made = case.make(Draw([self.seed, *map(ord, self.task.id), index], 0 if case.same else turn))
            if turn:
                made = self._kept(index, turn, made)
            self._arguments[index, turn] = made
        return self._arguments[index, turn]

    def _kept(self, index: int, turn: int, made: dict) -> dict:
        """`made` with plain values as at the first turn, and, for a replay, vectors as the learner's process had
        them."""
        first = self.arguments(index, 0)
        before = self.arguments(index, turn - 2) if turn >= 2 else {}
        kept = {}
        for name, value in made.items():
            if not isinstance(value, Tensor):
                value = first[name]
            elif name in self.task.prepared and name in before:
                value = before[name]
            elif (value.shape, value.stride, value.dtype) != (first[name].shape, first[name].stride, first[name].dtype):
                raise ValueError(
                    f"task {self.task.id}, case {self.task.cases[index].name!r}: {name} has another form at "
                    "each turn; draw sizes from rng.sizes"
                )
            kept[name] = value
        return kept

    def expected(self, index: int, turn: int = 0) -> list:
        """What has to come out of a case."""
        if (index, turn) not in self._expected:
            oracle = self.task.functions[self.task.function(index)]
            self._expected[index, turn] = expected(oracle, self.arguments(index, turn))
        return self._expected[index, turn]


# ---------------------------------------------------------------- which there are


def module_of(exercise: str) -> Path | None:
    """The file that declares an exercise's tasks, found without importing any; None for no such exercise."""
    for path in sorted(Path(__file__).parent.glob("lesson_*.py")):
        if re.search(rf'^EXERCISE = "{re.escape(exercise)}"$', path.read_text(encoding="utf-8"), re.MULTILINE):
            return path
    return None


@cache
def exercises() -> dict:
    """{exercise id: the name of the module that declares its tasks}, known without importing any."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("lesson_*.py")):
        named = re.search(r'^EXERCISE = "(\w+)"$', path.read_text(encoding="utf-8"), re.MULTILINE)
        if not named:
            raise ValueError(f'{path.name}: no line EXERCISE = "..."')
        found[named[1]] = path.stem
    return found


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
    "ALLOCATIONS",
    "Case",
    "DType",
    "Draw",
    "Expected",
    "Given",
    "KINDS",
    "PUBLIC_SEED",
    "RandomTensor",
    "Slip",
    "Speed",
    "Task",
    "Tensor",
    "decode",
    "encode",
    "exercises",
    "gives",
    "module_of",
    "plain",
    "rounded",
    "task",
    "tasks_of",
    "tensor",
]
