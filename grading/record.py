"""The records of a grading: a Verdict per task, a Submission per notebook, and Results, which results.json holds."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from grading.facts import Environment, Record
from instruments.diary import score

Status = Literal["passed", "failed", "not_attempted", "pending", "ungraded"]
Points = Annotated[int, msgspec.Meta(ge=0)]
#: A number; one that is not finite by its name, "nan", "inf" or "-inf", since JSON has none
Number = None | float | Literal["nan", "inf", "-inf"]


class Place(Record, omit_defaults=True):
    """Where a result is wrong: its first wrong element, the values there, and the share of wrong elements. tensor: for
    a result that is wrong in part, its name as instruments.meter has it. error, limit: of the worst row."""

    case: str = ""
    tensor: str = ""
    output: str = ""
    first: list[int] = []
    expected: Number = None
    actual: Number = None
    wrong: float = 0.0
    error: Number = None
    limit: float = 0.0


class Verdict(Record):
    """What is known about one task.

    status: passed (every point earned), pending (nothing wrong, and `pending_points` wait for a GPU), failed (`points`
    may be above 0 where only speed is missing), not_attempted, ungraded (the grader's own fault, which `hint` names).
    diagnosis: of a failure, one of grading.tasks.DIAGNOSES. proved, unproved: sentences.
    """

    id: str
    title: str
    status: Status
    max_points: Points
    points: Points = 0
    pending_points: Points = 0
    hint: str = ""
    diagnosis: str = ""
    proved: list[str] = []
    unproved: list[str] = []
    place: Place = msgspec.field(default_factory=Place)

    def __str__(self):
        points = score(self.points, self.pending_points, self.max_points)
        lines = [f"{self.id}  {self.title}: {self.status.replace('_', ' ')}, {points}"]
        lines += [f"  proved: {sentence}" for sentence in self.proved]
        lines += [f"  not proved here: {sentence}" for sentence in self.unproved]
        lines += [f"  hint: {self.hint}"] if self.hint else []
        return "\n".join(lines)


class Remark(Record):
    """A line of the instructor's remarks.csv. on: a task, or an exercise as a whole."""

    learner: str
    on: str
    points: int = 0
    comment: str = ""


class Submission(Record):
    """One notebook that was handed in: an entry of results.json.

    path: below the PATH of the command, with its place inside a zip. file: the same, absolute. learner: the child of
    the class folder, or the file's name. exercise: empty where the file could not be read. status: graded and pending
    (as soon as one task is) have a mark; unreadable (the file's fault) and ungraded (the grader's) have none, which is
    not a zero. gradable_points: what can be earned on this machine. isolation: of the sandbox. seed: of the inputs, for
    --seed; as text, for JSON readers that round. seconds: the grading took. manual_points: given or taken by remarks,
    and part of the points.
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
    manual_points: int = 0
    remarks: list[Remark] = []

    @property
    def is_graded(self) -> bool:
        """Whether the points are a mark."""
        return self.status in ("graded", "pending")


class Results(Record):
    """results.json of `grade`. left_aside: files beside the submissions that are none. roster: the class, where it is
    known. remarks_without_a_mark: sentences on remarks that no submission takes."""

    schema_version: Literal[6] = 6
    submissions: list[Submission] = []
    left_aside: list[str] = []
    roster: list[str] = []
    handed_in_nothing: list[str] = []
    not_on_the_roster: list[str] = []
    remarks_without_a_mark: list[str] = []


def stored(path: Path, kind: type) -> Record | None:
    """A record that was written before; None where there is none of this version."""
    with suppress(OSError, ValueError):
        return msgspec.json.decode(path.read_bytes(), type=kind)
