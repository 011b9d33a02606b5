"""What an instructor adds to a grading: a roster, and remarks with points given by hand. Both are CSV files that are
read, never written; a fault in one is told by its file and line, before anything is graded."""

import re
import unicodedata
from pathlib import Path

import msgspec

from grading.record import Remark, Results, Submission
from grading.tasks import exercise_with, tasks_of
from grading.wording import by_hand, shown
from instruments.files import BadTable, csv_rows

HEAD = {"learner", "learners", "name", "names", "student", "students", "id", "user", "username", "login", "email"}
COLUMNS = ["learner", "on", "points", "comment"]


def same(name: str) -> str:
    """A name as names are compared: without case, and each letter in one of the forms that Unicode has."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def roster(path: Path, learners: list) -> list[str]:
    """The names in a roster: the column that holds most of the learners who handed in, the first where none does.
    BadTable for a line without a name, and for a name that is there twice."""
    table, names, places = csv_rows(path, f"--roster {path}"), set(map(same, learners)), {}
    if table and HEAD & {word for cell in table[0][1] for word in re.findall(r"\w+", cell.casefold())}:
        del table[0]
    if not table:
        raise BadTable(f"--roster {path}: no names in it")
    columns = range(max(len(cells) for _, cells in table))
    column = max(columns, key=lambda i: len(names & {same(cell) for _, cells in table for cell in cells[i : i + 1]}))
    for place, cells in table:
        if not "".join(cells[column : column + 1]):
            raise BadTable(f"{place}: no name in column {column + 1}")
        if (before := places.setdefault(same(cells[column]), place)) != place:
            raise BadTable(f"{place}: {cells[column]!r} is there already, in {before}")
    return [shown(cells[column]) for _, cells in table]


def remarks(path: Path) -> list[Remark]:
    """The remarks of a file, none where there is no file; BadTable for a line that is none."""
    table = csv_rows(path, str(path)) if path.exists() else []
    return [_remark(place, cells) for place, cells in table if list(map(same, cells)) != COLUMNS[: len(cells)]]


def _remark(place: str, cells: list) -> Remark:
    on = re.sub(r"^(?=\d\D)", "0", "".join(cells[1:2]))  # spreadsheets make 5.3 of 05.3
    exercise = exercise_with(on.replace("_", ".", 1))
    if len(cells) > len(COLUMNS):
        raise BadTable(f"{place}: more than {', '.join(COLUMNS)}; a comment with a comma needs quotes")
    if not exercise or on not in {exercise, *(task.id for task in tasks_of(exercise))}:
        raise BadTable(f"{place}: {on!r} is no task and no exercise, expected one such as 05.3 or 05_rmsnorm")
    fields = {name: shown(cell) for name, cell in zip(COLUMNS, cells) if cell}
    try:
        return msgspec.convert(fields | {"on": on}, Remark, strict=False)
    except ValueError as error:
        raise BadTable(f"{place}: expected a learner, and whole points or none ({error})") from None


def results(records: list[Submission], aside: list, roster: list, remarks: list[Remark]) -> Results:
    """The records with these remarks and their points, in place of earlier ones, and who is missing."""
    submissions, rest = [], list(remarks)
    for record in sorted(records, key=lambda record: record.path.casefold()):
        number = record.exercise.partition("_")[0] if record.is_graded else None
        mine = [r for r in remarks if same(r.learner) == same(record.learner) and re.split("[._]", r.on)[0] == number]
        rest = [remark for remark in rest if remark not in mine]
        own = record.points - record.manual_points
        manual = max(sum(remark.points for remark in mine), -own)
        submissions.append(msgspec.structs.replace(record, points=own + manual, manual_points=manual, remarks=mine))
    members, learners = ({same(name): name for name in names} for names in (roster, [r.learner for r in submissions]))
    return Results(
        submissions=submissions,
        left_aside=aside,
        roster=roster,
        handed_in_nothing=[name for key, name in members.items() if key not in learners],
        not_on_the_roster=[name for key, name in learners.items() if members and key not in members],
        remarks_without_a_mark=[f"{remark.learner}, {by_hand(remark)}" for remark in rest],
    )
