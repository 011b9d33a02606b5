"""The trace: every access to memory by the programs of a call, in order.

`trace(function, ...)` calls a public function under the meter and keeps, beside the meter's report, every access of the
first programs of each launch: its line of source, the elements of its lanes, and which lanes are masked off, lie
outside the tensor, or touch an element again. Elements are placed by the tensor's own indices, whatever its strides.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from instruments.meter import Report, metered

PROGRAMS = 256  # recorded per launch
LAUNCH_BYTES = 1 << 24  # limit for the recorded programs of a launch
LAUNCHES = 8  # whose programs are recorded
NEVER = np.iinfo(np.int32).max  # the ordinal of no program
STEP_BYTES = 500  # that a step takes beside its arrays
FAR = 1 << 30  # limit for rows and columns

#: What a lane of an access does. AGAIN: it is inside, and its element was read before (for a store: written before).
MASKED, INSIDE, AGAIN, OUTSIDE, ELSEWHERE = range(5)


@dataclass(frozen=True, eq=False)
class Step:
    """One access to one tensor by one program.

    Attributes:
        kind: 'read', 'write' or 'atomic'.
        tensor: its name in the report.
        where: the elements as indices, in words.
        lanes: what each lane does, uint8 in the shape of the tile; ELSEWHERE is a lane that is at another tensor.
        rows, cols: where each lane is, int32 in the shape of the tile, as `as_grid` makes them of indices; lanes that
            are not performed may be beyond the tensor.
        own_again: how many lanes of AGAIN touch an element that their own program touched before.
        file, line: of the source.
        read, written: bytes requested by the whole call up to and with this access.
    """

    kind: str
    tensor: str
    where: str
    lanes: np.ndarray
    rows: np.ndarray
    cols: np.ndarray
    own_again: int
    file: str
    line: int
    read: int
    written: int

    def count(self, what: int) -> int:
        """How many lanes do that: MASKED, INSIDE (those of AGAIN left out), AGAIN or OUTSIDE."""
        return int((self.lanes == what).sum())


@dataclass(eq=False)
class Program:
    """One program and its steps.

    Attributes:
        launch: which of the call, from 0.
        number: its place in the order of the grid.
        whole: false where its steps exceed LAUNCH_BYTES, and the last accesses are missing.
    """

    kernel: str
    launch: int
    grid: tuple
    number: int
    steps: list = field(default_factory=list)
    whole: bool = True

    @property
    def index(self) -> tuple:
        """tl.program_id of each of the grid's axes."""
        return tuple(int(i) for i in np.unravel_index(self.number, self.grid))


@dataclass(frozen=True)
class Place:
    """A tensor as rows by columns.

    Attributes:
        first: int32 [rows, cols], the ordinal of the program that first touched each element, the programs of all
            launches counted together; NEVER for none.
    """

    shape: tuple
    dtype: torch.dtype
    first: np.ndarray


@dataclass(frozen=True)
class Trace:
    """The accesses of a call.

    Attributes:
        report: the meter's.
        tensors: {name: Place}.
        programs: the recorded ones, in order.
        sizes: how many programs each launch has.
    """

    report: Report
    tensors: dict
    programs: list
    sizes: list

    @property
    def complete(self) -> bool:
        """Whether every access of every program was recorded."""
        return len(self.programs) == sum(self.sizes) and all(program.whole for program in self.programs)

    def ordinal(self, program: Program) -> int:
        """The place of a program among those of all launches."""
        return sum(self.sizes[: program.launch]) + program.number

    def nearest(self, name: str, index: tuple) -> tuple:
        """The store that comes nearest to an element.

        Returns:
            (place in `programs`, place in the program's steps, how near). How near is INSIDE where it stores the
            element, MASKED where it has it but masked off, ELSEWHERE where it stores others. (0, 0, None) where no
            store to the tensor was recorded.
        """
        row, col = (int(i) for i in as_grid(self.tensors[name].shape, index))
        best, nearest = np.inf, (0, 0, None)
        for place, program in enumerate(self.programs):
            score, step = _nearness(program, name, row, col)
            if score <= best and score < np.inf:
                best, nearest = score, (place, step, (INSIDE, MASKED)[score] if score < 2 else ELSEWHERE)
        return nearest

    def leaving(self) -> tuple | None:
        """The first access with a lane outside its tensor: (place in `programs`, place in the program's steps)."""
        for place, program in enumerate(self.programs):
            if (step := _leaves(program)) is not None:
                return place, step
        return None


def trace(function: Callable, args: tuple = (), kwargs: dict | None = None, at: tuple | str | None = None) -> Trace:
    """Call `function(*args, **kwargs)` once, interpreted, and record what its programs access.

    Args:
        function: a public function of kernels/, or your own.
        args, kwargs: its arguments.
        at: (name, index) of an element; the program whose store comes nearest to it is recorded too, however late it
            runs. Or "outside": then the first program that leaves a tensor is.

    Raises:
        ValueError: where no kernel is launched, or none with a tensor.
    """
    recorder = _Recorder(at)
    report = metered(function, args, kwargs or {}, recorder)
    name = getattr(function, "__name__", "function")
    if not report.kernels:
        raise ValueError(f"function: {name} launched no Triton kernel, expected one launch at least")
    if not report.tensors:
        raise ValueError(
            f"function: {name} launched {', '.join(report.kernels)} without a tensor, expected one at least"
        )
    return recorder.finish(report)


class _Recorder:
    """Listens to a metered call."""

    def __init__(self, at):
        self.outside = at == "outside"
        self.at = None if self.outside else at
        self.kernels, self.grids, self.sizes = [], [], []  # of each launch; sizes: how many programs
        self.programs = []  # of each launch: {number: Program}
        self.limits = []  # of each launch: the programs before this number are recorded
        self.nearest, self.nearness = None, np.inf  # the program that `at` asks for
        self.arguments = {}  # {name: a tensor's argument}
        self.marks = {}  # {(storage, itemsize): what happened to its elements}
        self.program = None
        self.total = {"read": 0, "written": 0}

    def begin(self, launch, names):
        self._close()
        self.launch, self.names, self.spent = launch, names, 0
        self.kernels.append(launch.kernel.fn.__name__)
        self.grids.append(launch.grid)
        self.sizes.append(int(np.prod(launch.grid)))
        self.limits.append(min(PROGRAMS, self.sizes[-1]) if len(self.sizes) <= LAUNCHES else 0)
        self.programs.append({})
        for name, argument in zip(names, launch.arguments):
            self.arguments.setdefault(name, argument)
            if self.at and name == self.at[0]:
                _check_index(name, argument.device_tensor.shape, self.at[1])

    def lanes(self, kind, tags, tagged, size, mask, allowed):
        number = int(np.ravel_multi_index(self.launch.program, self.launch.grid))
        if self.program is None or self.program.number != number:
            self._close()
            self.program = self._program(len(self.sizes) - 1, number)
            self.nbytes = 0
        for tag in np.unique(tags):
            if 0 <= tag < len(self.launch.arguments):
                here = tags == tag
                self._access(kind, tag, here, tagged, size, mask, allowed & here)

    def _program(self, launch: int, number: int) -> Program:
        return Program(self.kernels[launch], launch, self.grids[launch], number)

    def _marks(self, tensor) -> dict:
        """By element of the tensor's storage, 1 + the ordinal of the program that touched it first, that read it last
        and that wrote it last; 0 for none. Views of one storage share them."""
        storage = tensor.untyped_storage()
        key = storage.data_ptr(), tensor.element_size()
        if key not in self.marks:
            count = storage.nbytes() // tensor.element_size()
            self.marks[key] = {what: np.zeros(count, np.int32) for what in ("first", "read", "written")}
        return self.marks[key]

    def _access(self, kind, tag, here, tagged, size, mask, allowed):
        argument, name = self.launch.arguments[tag], self.names[tag]
        tensor, marks = argument.device_tensor, self._marks(argument.device_tensor)
        offsets = argument.byte_offsets(tagged) // argument.itemsize
        at = offsets[allowed] + tensor.storage_offset()
        me = sum(self.sizes[:-1]) + self.program.number + 1
        touched = {"read": ("read",), "write": ("written",), "atomic": ("read", "written")}[kind]
        before = marks[touched[-1]][at]
        for what in touched:
            self.total[what] += at.size * size
            marks[what][at] = me
        first = marks["first"][at]
        marks["first"][at] = np.where(first == 0, me, first)
        if not self.program.whole or not (self.program.number < self.limits[-1] or self.at or self.outside):
            return
        lanes = np.where(here, np.where(mask, OUTSIDE, MASKED), ELSEWHERE).astype(np.uint8)
        lanes[allowed] = np.where(before, AGAIN, INSIDE)
        indices = _indices(tensor.shape, tensor.stride(), offsets, allowed)
        arrays = [_small(array) for array in (lanes, *as_grid(tensor.shape, indices))]
        words = _words(name, [index[here] for index in indices])
        own = int((before == me).sum())
        self.program.steps.append(Step(kind, name, words, *arrays, own, *_line(), *self.total.values()))
        self.nbytes += STEP_BYTES + sum(array.base.nbytes for array in arrays)
        self.program.whole = self.nbytes < LAUNCH_BYTES

    def _close(self):
        """Record the program that has ended, or not."""
        program, self.program = self.program, None
        if program is None:
            return
        programs, launch = self.programs[-1], program.launch
        if program.number < self.limits[launch]:
            if not programs or self.spent + self.nbytes <= LAUNCH_BYTES:
                programs[program.number] = program
                self.spent += self.nbytes
                return
            self.limits[launch] = program.number
        if self.outside and self.nearest is None and _leaves(program) is not None:
            self.nearest = program
        if self.at and self.at[0] in self.names:
            name, index = self.at
            shape = self.arguments[name].device_tensor.shape
            nearness, _ = _nearness(program, name, *(int(i) for i in as_grid(shape, index)))
            if nearness <= self.nearness:
                self.nearest, self.nearness = program, nearness

    def finish(self, report: Report) -> Trace:
        self._close()
        if self.at and self.at[0] not in self.arguments:
            raise ValueError(
                f"at: got {self.at[0]!r}, expected a tensor that is launched with: {', '.join(self.arguments)}"
            )
        programs = []
        for launch, (limit, by_number) in enumerate(zip(self.limits, self.programs)):
            programs += [by_number.get(number) or self._program(launch, number) for number in range(limit)]
            if self.nearest and self.nearest.launch == launch:
                programs.append(self.nearest)
        tensors = {}
        for name, argument in self.arguments.items():
            tensor = argument.device_tensor
            first = self._marks(tensor)["first"][argument.offsets() + tensor.storage_offset()] - 1
            grid = int(np.prod(tensor.shape[:-1])), tensor.shape[-1] if tensor.dim() else 1
            first = np.where(first < 0, NEVER, first).reshape(grid)
            tensors[name] = Place(tuple(tensor.shape), tensor.dtype, first)
        return Trace(report, tensors, programs, self.sizes)


def _line() -> tuple[str, int]:
    from instruments import interpreter  # it needs triton, this module does not

    return interpreter.line()


def _check_index(name: str, shape: tuple, index: tuple):
    if len(index) != len(shape) or not all(0 <= i < n for i, n in zip(index, shape)):
        raise ValueError(f"at: got the index {index} of {name}, expected one within its shape {tuple(shape)}")


def as_grid(shape: tuple, indices) -> tuple:
    """(rows, cols) of elements given by their indices: the last one, and the number that the others make together."""
    rows, cols = np.int64(0), np.int64(0)
    for n, index in zip(shape[:-1], indices[:-1]):
        rows = rows * n + index
    if len(shape):
        cols = indices[-1]
    rows, cols = np.broadcast_arrays(rows, cols)
    return tuple(np.clip(place, -FAR, FAR).astype(np.int32) for place in (rows, cols))


def _indices(shape: tuple, strides: tuple, offsets: np.ndarray, inside: np.ndarray) -> list:
    """The tensor's indices at so many elements from its first one, an array for each dimension.

    A lane that is not inside has no element. Where the tile is regular, it gets the indices that continue those of the
    first lane that is: at the end of a row beyond the last column, although the address is that of the next row.
    """
    dims = [d for d in range(len(shape)) if shape[d] > 1] or [*range(len(shape))][-1:]
    dims = sorted((d for d in dims if strides[d]), key=lambda d: -strides[d])
    indices, rest = [np.zeros_like(offsets) for _ in shape], offsets
    for d in dims:
        index = rest // strides[d]
        indices[d] = np.where(inside, np.minimum(index, shape[d] - 1), index)
        rest = rest - indices[d] * strides[d]
    if inside.all() or not dims:
        return indices
    anchor = np.unravel_index(int(np.argmax(inside)), offsets.shape)
    regular, steps = offsets[anchor], []
    for axis in range(offsets.ndim):
        if offsets.shape[axis] > 1:
            ends = [list(anchor), list(anchor)]
            ends[0][axis], ends[1][axis] = 0, 1
            step = int(offsets[tuple(ends[1])] - offsets[tuple(ends[0])])
            away = np.arange(offsets.shape[axis]) - anchor[axis]
            away = away.reshape([-1 if a == axis else 1 for a in range(offsets.ndim)])
            regular = regular + step * away
            steps.append((step, away))
    if np.any(regular != offsets):
        return indices
    continued = [np.full_like(offsets, index[anchor]) for index in indices]
    for step, away in steps:
        along = [d for d in dims if step % strides[d] == 0 and strides[d] <= abs(step)]
        if step and not along:
            return indices
        if step:
            continued[along[0]] += step // strides[along[0]] * away
    return [np.where(inside, own, beyond) for own, beyond in zip(indices, continued)]


def _words(name: str, indices: list) -> str:
    """Elements by their indices, 'x[3, 0:1024]', or from the first to the last where they are no block of a tensor."""
    if not indices:
        return name
    elements = np.unique(np.stack([np.asarray(index).reshape(-1) for index in indices]), axis=1)
    parts, block = [], 1
    for index in elements:
        values = np.unique(index)
        steps = np.unique(np.diff(values))
        block *= values.size if steps.size < 2 else 0
        if values.size == 1:
            parts.append(f"{values[0]}")
        else:
            parts.append(f"{values[0]}:{values[-1] + 1}" + (f":{steps[0]}" if steps[0] != 1 else ""))
    if block == elements.shape[1]:
        return f"{name}[{', '.join(parts)}]"
    first, last = (", ".join(map(str, element)) for element in (elements[:, 0], elements[:, -1]))
    return f"{elements.shape[1]:,} elements from {name}[{first}] to {name}[{last}]"


def _small(array: np.ndarray) -> np.ndarray:
    """The same array, in the memory of what differs in it."""
    shape = array.shape
    for axis in range(array.ndim):
        first = np.take(array, [0], axis)
        array = first if (array == first).all() else array
    return np.broadcast_to(array.copy(), shape)


def _leaves(program: Program) -> int | None:
    """The first step of a program that has a lane outside its tensor."""
    return next((place for place, step in enumerate(program.steps) if step.count(OUTSIDE)), None)


def _nearness(program: Program, name: str, row: int, col: int) -> tuple:
    """How near the stores of a program come to an element, and the step that does.

    0 where it stores it, 1 where it has it masked off, 2 + the way where it stores others, infinity if it stores none.
    """
    best = np.inf, 0
    for place, step in enumerate(program.steps):
        if step.kind == "read" or step.tensor != name:
            continue
        here = (step.rows == row) & (step.cols == col)
        stored = (step.lanes == INSIDE) | (step.lanes == AGAIN)
        if (here & stored).any():
            score = 0
        elif here.any():
            score = 1
        elif stored.any():
            away = np.abs(step.rows[stored] - row) * (FAR / 2**15) + np.abs(step.cols[stored] - col)
            score = 2 + float(away.min())
        else:
            continue
        if score <= best[0]:
            best = score, place
    return best
