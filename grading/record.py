"""What passes between the parts of the grader, typed: what a run left behind, and what a verdict says.

`Run` and `Played` cross the jail's wall: grading/probe.py and grading/replay.py write them, inside, and `read` decodes
them outside, once. What does not decode is the fault of the code that ran there. `Verdict` and `Submission` are the
result: results.json holds them, and every report is made from them. This file imports nothing of the course: the probe
takes a copy of it along.
"""

import os
import stat
from pathlib import Path
from typing import Annotated, Literal

import msgspec

MAX_RECORD = 16 << 20  # bytes of one record that crosses the wall
READ = "read: "  # before the name of what handed numbers of a tensor to Python, among a case's operations
RUN, PLAYED = (0, 1), (2, 3)  # the turns of a case's inputs that a learner's process gets, and that its replay gets


#: Bounds on what a process may tell: beyond them a record does not decode
Word = Annotated[str, msgspec.Meta(max_length=300)]
Text = Annotated[str, msgspec.Meta(max_length=2000)]
Code = Annotated[str, msgspec.Meta(max_length=100_000)]
Numbers = Annotated[list[int], msgspec.Meta(max_length=64)]


class Record(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A record with these fields and no others."""


# ---------------------------------------------------------------- what a learner's process tells


class Environment(Record):
    """What a process runs on. mode: as instruments.backend.mode() says."""

    mode: Word
    device: Word
    torch: Word
    triton: Word


class Error(Record):
    """An exception. where: the line of the learner's cell that it came through last. kernel: the kernel that raised
    it."""

    type: Word
    text: Text
    where: Text = ""
    kernel: Word = ""


class Array(Record, tag="array"):
    """A tensor that came back: its storage in row-major order in `file`, its dtype's name, shape and strides."""

    file: Word
    dtype: Word
    shape: Numbers
    strides: Numbers


class Value(Record, tag="value"):
    """A plain value that came back."""

    value: None | bool | int | float | Text


class Other(Record, tag="other"):
    """Something that is neither: the name of its type."""

    name: Word


class Case(Record):
    """One call as it went. returned: None where it raised. after: {argument: file with its storage as the call left
    it}.

    operations: {torch operation: elements of its largest operand}. changed: arguments that are no tensors and were
    changed, and tensors that ask for a gradient now. stub: nothing is written yet. held: whether what the first call
    returned outlived a second one, with other numbers, that returned `second`.
    """

    error: Error | None = None
    stub: bool = False
    returned: Annotated[list[Array | Value | Other], msgspec.Meta(max_length=100)] | None = None
    after: dict[str, str] = {}
    operations: dict[str, int] = {}
    changed: list[str] = []
    held: bool = True
    second: Annotated[list[Array | Value | Other], msgspec.Meta(max_length=100)] | None = None


class Run(Record):
    """What a task's functions did in the learner's process. finished: all of it was tried. timed: the call at the timed
    size, of which only errors and operations are known here."""

    environment: Environment
    finished: bool = False
    cases: Annotated[list[Case], msgspec.Meta(max_length=200)] = []
    timed: Case | None = None


# ---------------------------------------------------------------- what was launched there, a claim


class View(Record, tag="view"):
    """A tensor: a storage by its number, and how it is seen."""

    storage: int
    dtype: Word
    offset: int
    shape: Numbers
    stride: Numbers


class Number(Record, tag="number"):
    """A plain value, or a constexpr of one."""

    value: None | bool | int | float | Text
    constexpr: bool = False


class DType(Record, tag="dtype"):
    """A dtype: of Triton's language, or torch's."""

    name: Word
    torch: bool = False


class Items(Record, tag="items"):
    """A tuple."""

    items: list["View | Number | DType | Items | Function | Descriptor | Language | Other"]
    constexpr: bool = False


class Function(Record, tag="function"):
    """A function under @triton.jit, by its place in `Trace.functions`."""

    number: int


class Descriptor(Record, tag="descriptor"):
    """A tensor descriptor made on the host."""

    base: View
    shape: Numbers
    strides: Numbers
    block_shape: Numbers


class Language(Record, tag="language"):
    """Something of Triton's language, or the language itself, by its dotted name."""

    name: Word


Given = View | Number | DType | Items | Function | Descriptor | Language | Other


class State(Record):
    """A storage as a launch found it, where something other than a kernel had changed it.

    argument: it is this argument's. fill: every element is these bytes, in hex. file: its content; neither: unknown.
    nbytes, dtype: of the whole storage. first: no launch of the call had it before.
    """

    dtype: Word
    nbytes: int
    first: bool
    argument: Word = ""
    fill: Word = ""
    file: Word = ""


class Launch(Record):
    """One launch. before: {storage: State}. others: the same launch as the other configs of an autotuner would do
    it. restored: arguments that the autotuner puts back after each try; None where hooks of its own see to that."""

    kernel: int
    grid: Numbers
    args: dict[str, Given]
    options: dict[str, None | bool | int | str] = {}
    before: dict[int, State] = {}
    others: list["Launch"] = []
    restored: Annotated[list[Word], msgspec.Meta(max_length=100)] | None = []


class Call(Record):
    """The launches of one call of a function, and what it returned. storages: {number: one that holds across calls}.
    touched: places of returned tensors that something other than a kernel changed after the last launch."""

    launches: list[Launch] = []
    returned: list[Given] = []
    storages: dict[int, int] = {}
    touched: list[int] = []


class Source(Record):
    """A function under @triton.jit: its source, the line of its cell where that begins, and the globals it uses.

    own: it was defined in the notebook. constexpr: it is a triton.constexpr_function.
    """

    name: Word
    source: Code
    line: int
    globals: dict[str, Given] = {}
    own: bool = True
    constexpr: bool = False


class Trace(Record):
    """Which kernels a task launched, on what: {case: its calls}, and the functions that stand for kernels."""

    functions: Annotated[list[Source], msgspec.Meta(max_length=64)] = []
    calls: dict[str, list[Call]] = {}


# ---------------------------------------------------------------- what the kernels alone did


class Stray(Record):
    """An access outside its tensor, as instruments.meter tells it."""

    kind: Word
    program: Numbers
    index: int
    count: int
    text: Text


class Counts(Record):
    """What happened to one tensor, as instruments.meter counts it. role: the argument's name, or "returned 0"."""

    name: Word
    role: Word
    shape: Numbers
    read: int
    written: int
    unique_read: int
    unique_written: int
    sectors: int
    unwritten: int
    first_unwritten: list[int]
    stored_by: list[list[int]]
    strays: list[Stray]


class Metered(Record):
    """A call's kernels in the interpreter. kernels: the name and the grid of each launch. shapes: of the tiles of
    accesses. python: words of Python in them that saw a tile as one value. prepared: something other than a kernel
    had filled a tensor that one got, and not with one number. races, promises: sentences. undefined: a load left masked
    lanes undefined."""

    tensors: list[Counts]
    kernels: list[tuple[str, list[int]]]
    programs: int
    shapes: list[list[int]] = []
    python: list[str] = []
    prepared: bool = False
    races: list[str] = []
    promises: list[str] = []
    undefined: bool = False


class Compile(Record):
    """What did not compile, or compiles to products in TF32 (tf32) or to none of the type that it should (products)."""

    kernel: Word
    arch: int
    text: Text
    tf32: bool = False
    products: Word = ""


class Replayed(Record):
    """One call as its kernels gave it: in the interpreter, after (tuned) its autotuner's tries, with (backwards) its
    programs in the reverse order, with (large) large numbers in lanes that a load left undefined, and (compiled) on a
    GPU. turn: which inputs it got."""

    turn: int = 0
    error: Error | None = None
    returned: Annotated[list[Array | Value | Other], msgspec.Meta(max_length=100)] | None = None
    after: dict[str, str] = {}
    metered: Metered | None = None
    compile: Annotated[list[Compile], msgspec.Meta(max_length=1000)] = []
    tuned: "Replayed | None" = None
    backwards: "Replayed | None" = None
    large: "Replayed | None" = None
    compiled: "Replayed | None" = None


class Speed(Record):
    """The timed call: seconds, the copy's bytes per second in the same process, the inputs' and results' sampled
    rows."""

    error: Error | None = None
    seconds: float = 0.0
    roof: float = 0.0
    sampled: dict[str, Array] = {}
    returned: list[Array | Value | Other] = []
    after: dict[str, str] = {}


class Played(Record):
    """What the replay of a task gave: of each case that launched something, the calls that had to be run. refused: why
    the launches cannot be run by themselves. fault: the case in which the function did around its launches what it must
    not, the kind of failure, and words.
    """

    finished: bool = False
    refused: Text = ""
    fault: tuple[int, str, str] | None = None
    cases: dict[int, list[Replayed]] = {}
    speed: Speed | None = None


# ---------------------------------------------------------------- the wall


class Undecodable(ValueError):
    """What a process left behind is not what the course's own code writes; the text says what is wrong with it."""


def inside(folder: Path, path: Path, most: int) -> bytes:
    """The content of a plain file that really lies in `folder`; Undecodable where learner code left a link, a pipe, a
    file of more than `most` bytes or none."""
    try:
        if not path.parent.resolve().is_relative_to(folder.resolve()):
            raise Undecodable(f"{path.name} does not lie in the run's folder")
        opened = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(opened, "rb") as file:
            status = os.fstat(opened)
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                raise Undecodable(f"{path.name} is not a plain file of at most {most:,} bytes")
            return file.read(most + 1)
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, Undecodable):
            raise
        raise Undecodable(f"{path.name!r} cannot be read ({type(error).__name__})") from None


def read(kind: type, folder: Path, path: Path) -> Record | None:
    """The record of this type at `path`; None where there is no file, Undecodable where it holds anything else."""
    if not os.path.lexists(path):
        return None
    try:
        return msgspec.msgpack.decode(inside(folder, path, MAX_RECORD), type=kind)
    except (msgspec.DecodeError, RecursionError, MemoryError, ValueError) as error:
        raise Undecodable(f"{path.name}: {str(error)[:200]}") from None


def write(path: Path, record: Record) -> None:
    """Write a record, whole or not at all."""
    temporary = path.with_suffix(".part")
    temporary.write_bytes(msgspec.msgpack.encode(record))
    os.replace(temporary, path)


# ---------------------------------------------------------------- verdicts

Status = Literal["passed", "failed", "not_attempted", "pending", "ungraded"]
Points = Annotated[int, msgspec.Meta(ge=0)]


class Place(Record, omit_defaults=True):
    """Where a result is wrong, for the page: the first wrong element, the share of wrong ones, and a map of them; or,
    of a call of plain values, what came and what is right. Of a number that is not finite results.json holds its
    name. case: its name. tensor: where a part of it is wrong, the kernel's name for it, as instruments.meter has
    it."""

    case: str = ""
    tensor: str = ""
    output: str = ""
    first: list[int] = []
    expected: None | float | str = None
    got: None | float | str = None
    wrong: float = 0.0
    error: None | float | str = None
    limit: None | float | str = None
    shape: list[int] = []
    map: list[list[float]] = []
    call: str = ""
    yours: dict[str, None | bool | int | float | str] = {}
    right: dict[str, None | bool | int | float | str] = {}


class Verdict(Record):
    """What is known about one task.

    status: passed (every point earned), pending (nothing wrong, and `pending_points` wait for a GPU), failed (something
    checked is wrong; `points` may be above 0 where only speed is missing), not_attempted, ungraded (the grader's own
    fault, told in `hint`). kind: of the failure, one of diagnose.KINDS. proved, unproved: sentences. likeness: a hash
    equal for answers that differ in names and blanks only; like_solution: whether it is the published answer's, None
    unknown.
    """

    id: str
    title: str
    status: Status
    points: Points
    pending_points: Points
    max_points: Points
    hint: str = ""
    kind: str = ""
    proved: list[str] = []
    unproved: list[str] = []
    place: Place = msgspec.field(default_factory=Place)
    likeness: str = ""
    like_solution: bool | None = None

    def __str__(self):
        points = f"{self.points} of {self.max_points} points"
        if self.pending_points:
            points += f", {self.pending_points} pending"
        lines = [f"{self.id}  {self.title}: {self.status.replace('_', ' ')}, {points}"]
        lines += [f"  proved: {sentence}" for sentence in self.proved]
        lines += [f"  not proved here: {sentence}" for sentence in self.unproved]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class Submission(Record):
    """One submission: a line of results.json, which grading/results.schema.json describes.

    path: as seen from the PATH that was given, with its place inside a zip; file: the same, absolute. learner: the
    child of the class folder, or the file's name. exercise: empty where the file could not be read. status: graded and
    pending (as soon as one task is) have a mark; unreadable (the file's fault) and ungraded (the grader's or its
    machine's) have none, which is not a zero. gradable_points: what can be earned on this machine. isolation: the level
    of the jail that it got. seed: of the inputs, which --seed repeats; as text, for JSON readers that round. seconds:
    it took.
    """

    path: str
    file: str
    learner: str
    exercise: str
    status: Literal["graded", "pending", "unreadable", "ungraded"]
    points: Points = 0
    pending_points: Points = 0
    max_points: Points = 0
    gradable_points: Points = 0
    isolation: str = ""
    notes: list[str] = []
    tasks: list[Verdict] = []
    environment: Environment | None = None
    seed: str = ""
    seconds: float = 0.0

    @property
    def is_graded(self) -> bool:
        """Whether the points are a mark."""
        return self.status in ("graded", "pending")
