"""What a process in the sandbox reports, as typed records: nothing else crosses its wall, and each is decoded once.

A process that ran a learner's code may report anything. What does not decode as these records is the learner's fault
(`Undecodable`); what does is compared with a reference that the process never saw.
"""

import os
import stat
from pathlib import Path
from typing import Annotated

import msgspec

MAX_REPORT = 16 << 20  # bytes of one report

Word = Annotated[str, msgspec.Meta(max_length=300)]
Text = Annotated[str, msgspec.Meta(max_length=2000)]
Numbers = Annotated[list[int], msgspec.Meta(max_length=64)]


class Record(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A record with these fields and no others."""


class Environment(Record):
    """What a process runs on. mode: as instruments.backend.mode() has it."""

    mode: Word
    device: Word
    torch: Word
    triton: Word


class Error(Record):
    """An exception. where: the last line of the learner's cell that it came through. kernel: the one that raised it."""

    type: Word
    text: Text
    where: Text = ""
    kernel: Word = ""


class Array(Record, tag="array"):
    """A tensor that came back: its elements in row-major order in `file`, and its dtype, shape and strides."""

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


Results = Annotated[list[Array | Value | Other], msgspec.Meta(max_length=100)]


class Outcome(Record):
    """What one call gave. returned: None where it raised. after: {argument: file with its storage after the call}."""

    error: Error | None = None
    returned: Results | None = None
    after: dict[str, str] = {}


class Call(Outcome):
    """One case in the learner's process, called twice with other numbers. stub: nothing is written yet. operations:
    {torch operation: elements of its largest operand}. read: operations by which the host read a tensor. changed: what
    the call changed in its arguments, elements of tensors aside. second: what the second call returned. held: whether
    the first result was still the same after it."""

    stub: bool = False
    operations: dict[str, int] = {}
    read: list[Word] = []
    changed: list[str] = []
    second: Results | None = None
    held: bool = True


class Run(Record):
    """A task in the learner's process. finished: every case was tried. launched: whether a kernel was. refused: why the
    launches could not be recorded. timed: the call at the timed size."""

    environment: Environment
    finished: bool = False
    cases: Annotated[list[Call], msgspec.Meta(max_length=200)] = []
    timed: Call | None = None
    launched: bool = False
    refused: Text = ""


class Counts(Record):
    """What happened to one tensor, in bytes. role: the argument's name, or "returned 0"; empty for a tensor between
    kernels. atomics: bytes. unwritten: elements; unwritten_at: the first. stored_by: [program, first and last element]
    of the stores. outside: sentences on accesses outside the tensor; outside_at: the element of the first."""

    name: Word
    role: Word
    shape: Numbers
    read: int
    written: int
    unique_read: int
    unique_written: int
    sectors: int
    unwritten: int
    unwritten_at: list[int]
    stored_by: list[list[int]]
    outside: list[Text]
    outside_at: int = 0
    atomics: int = 0


class Metered(Record):
    """A call's kernels in the interpreter. kernels: the name and the grid of each launch. widest: the largest tiles of
    accesses. races, promises: sentences."""

    tensors: list[Counts]
    kernels: list[tuple[str, list[int]]]
    programs: int
    widest: list[list[int]] = []
    races: list[str] = []
    promises: list[str] = []

    def stored_by(self, role: str) -> list:
        """The stores to the tensors of this role: [program, first and last element]."""
        return [store for t in self.tensors if t.role == role for store in t.stored_by]


class Played(Outcome):
    """The launches of one call, played with numbers that the learner's process never saw. errors: what did not compile.
    again: {condition: the outcome of the same launches under it}; under "gpu" compiled, on this machine's GPU."""

    stale: bool = False  # whether they read what torch made of the numbers of the recorded call
    metered: Metered | None = None
    errors: Annotated[list[Text], msgspec.Meta(max_length=100)] = []
    again: dict[str, Outcome] = {}


class Speed(Outcome):
    """The timed call: seconds, torch's own bytes or FLOPs per second, and sampled rows of inputs and results."""

    seconds: float = 0.0
    roof: float = 0.0
    sampled: dict[str, Array] = {}
    returned: Results = []


class Play(Record):
    """What playing a task gave. refused: why its launches cannot be played. state: the case in which a function does
    around its launches what it must not, and words."""

    refused: Text = ""
    state: tuple[int, Text] | None = None
    cases: dict[int, Played] = {}
    speed: Speed | None = None


class Undecodable(Exception):
    """What a process left is not what the course's own code writes; the text says what is wrong with it."""


def opened(path: Path):
    """A plain file, open for reading; OSError for all else. A link is not followed, a pipe not waited for."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(None, "a link, a pipe or a device: hand in the file itself")
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # it may be swapped by now
    return os.fdopen(os.open(path, flags), "rb")


def inside(folder: Path, path: Path, most: int) -> bytes:
    """The content of a plain file that really lies in `folder`; Undecodable where there is a link, a pipe, a file of
    more than `most` bytes or none."""
    try:
        if not path.parent.resolve().is_relative_to(folder.resolve()):
            raise Undecodable(f"{path.name} does not lie in the run's folder")
        with opened(path) as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise Undecodable(f"{path.name} is not a plain file of at most {most:,} bytes")
        return content
    except (OSError, RuntimeError, ValueError) as error:
        raise Undecodable(f"{path.name!r} cannot be read ({type(error).__name__})") from None


def read(kind: type, folder: Path, path: Path) -> Record | None:
    """The record of this type at `path`; None where there is no file, Undecodable where it holds anything else."""
    if not os.path.lexists(path):
        return None
    try:
        return msgspec.msgpack.decode(inside(folder, path, MAX_REPORT), type=kind)
    except (Undecodable, msgspec.DecodeError, RecursionError, MemoryError, ValueError) as error:
        raise Undecodable(f"{path.name}: {str(error)[:200]}") from None


def write(path: Path, record: Record) -> None:
    """Write a record, whole or not at all."""
    temporary = path.with_suffix(".part")
    temporary.write_bytes(msgspec.msgpack.encode(record))
    os.replace(temporary, path)
