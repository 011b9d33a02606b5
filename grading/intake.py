"""Finds what was handed in (a notebook, a folder or a zip), reads it, and takes the learner's answers from it.

Nothing is unpacked to disk, links are not followed, and reading is bounded. Repairs are noted.
"""

import getpass
import json
import os
import re
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from nbformat import NotebookNode, from_dict

from grading.facts import opened
from grading.tasks import exercise_with, exercises
from instruments.release import ROOT, exercise_id, grade_id, task_id
from instruments.start import lesson_of

MAX_FILE = 16 << 20  # bytes of one notebook
MAX_ANSWER = 100_000  # characters of one answer
MAX_NOTEBOOKS = 20  # of one learner
MAX_DEPTH = 32  # folders in each other
NOTEBOOK = re.compile(r"\.(ipynb|zip)[^/]*$", re.IGNORECASE)  # browsers append .txt or (1)
TOO_LONG = f'raise ValueError("the answer has more than {MAX_ANSWER:,} characters, and so much is not graded")'
PRISTINE = "no answer was changed: this is the exercise as handed out, or a copy of it that is not begun"


class Unreadable(ValueError):
    """The file is at fault: not a notebook, or of no exercise. The text is a sentence for the learner."""


@dataclass(frozen=True)
class Handed:
    """One file. learner: whose it is, by its place. path: for people. file, member: where its bytes are (member: a name
    inside the zip `file`). problem: why it cannot be graded, if that is known already."""

    learner: str
    path: str
    file: Path
    member: str = ""
    problem: str = ""

    @property
    def place(self) -> str:
        """The absolute path, with the place inside a zip."""
        return text(f"{os.path.abspath(self.file)}/{self.member}".rstrip("/"))

    def read(self) -> bytes:
        """Its bytes; Unreadable where that fails."""
        if self.problem:
            raise Unreadable(self.problem)
        try:
            with opened(self.file) as stream:
                stream = zipfile.ZipFile(stream).open(self.member) if self.member else stream
                content = stream.read(MAX_FILE + 1)  # the size that a zip states may be a lie
        except Exception as error:  # zipfile and zlib have errors of their own
            raise Unreadable(f"{self.path}: {getattr(error, 'strerror', '') or error}") from None
        if len(content) > MAX_FILE:
            raise Unreadable(f"{self.path}: larger than {MAX_FILE >> 20} MiB; clear the outputs and hand it in again")
        return content


def text(path: Path | str) -> str:
    """A name as text. Bytes that are no UTF-8, as old zips hold them, are written out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def alone(path: Path, shown: str = "") -> Handed:
    """A notebook that was named on its own; here, whoever grades has chosen what a link leads to."""
    return Handed(text(lesson_of(f"{path.stem}.ipynb")), shown or text(path), Path(os.path.realpath(path)))


def collect(path: Path, leave_out: Path | None = None, label: str | None = None) -> tuple[list, list]:
    """What a notebook, a folder or a zip holds, in the order of the names, and paths beside it that are no submissions.

    Each child of a folder or a zip is one learner's: a notebook, a folder or a zip. But where all notebooks lie
    directly in it and are called as the course's, it is one learner's. A child without a notebook has a problem. The
    folder `leave_out` is skipped (the report's own); `label` is what the path is called for people.
    """
    path = path / "exercises" if path.resolve() == ROOT / "work" else path
    label, folder = text(path) if label is None else label, Path(os.path.realpath(path))
    if folder.is_dir():
        above, children = _of_folder(folder, label, leave_out)
    elif path.suffix.lower() == ".zip":
        above, children = _of_zip(folder, label)
    else:
        return [alone(path, label)], []
    learners = {child: _of_learner(child, files, folder) for child, files in children.items()}
    submissions, aside = sum(learners.values(), []), [child for child, notebooks in learners.items() if not notebooks]
    named = [one for one in submissions if lesson_of(one.path.removeprefix(above)) in exercises()]
    if folder == ROOT / "work" / "exercises":
        aside += [one.path for one in submissions if one not in named]
        submissions = [replace(one, learner=getpass.getuser()) for one in named]
    elif named == submissions or len(submissions) == 1 and not folder.is_dir():
        learner = re.sub(r"\.zip$", "", text(folder.name), flags=re.IGNORECASE)
        submissions = [replace(one, learner=learner) for one in submissions]
    return submissions, sorted(aside)


def _of_folder(folder: Path, label: str, leave_out: Path | None) -> tuple[str, dict]:
    """(what every path begins with, {path of a child: its files}) of a folder."""
    above, skipped = f"{label}/" if label else "", leave_out and leave_out.resolve()
    paths = [path for path in sorted(folder.iterdir()) if not _hidden(path.name) and path != skipped]
    return above, {above + text(path.name): _files(path, above + text(path.name)) for path in paths}


def _of_zip(file: Path, label: str) -> tuple[str, dict]:
    """The same of a zip, which often holds one folder with everything in it."""
    files, children = _files(file, label), {}
    folders = [handed.path.split("/")[:-1] for handed in files if NOTEBOOK.search(handed.path)]
    above = "/".join(os.path.commonprefix(folders) or [label]) + "/"
    for handed in files:
        inside = handed.path.startswith(above)
        child = above + handed.path.removeprefix(above).split("/")[0] if inside else handed.path
        children.setdefault(child, []).append(handed)
    return above, children


def _of_learner(child: str, files: list, folder: Path) -> list:
    """The notebooks of one learner, no more than are graded; without any, why. Empty for a file that is none."""
    learner = re.sub(r"\.(ipynb.*|zip)$", "", child.split("/")[-1], flags=re.IGNORECASE)
    notebooks = [replace(file, learner=learner) for file in files if NOTEBOOK.search(file.path)]
    if not notebooks and [file.path for file in files] != [child]:
        names = ", ".join(file.path.split("/")[-1] for file in files[:5]) or "nothing"
        return [Handed(learner, child, folder, child, f"{child}: no notebook in it (it holds {names})")]
    if len(notebooks) > MAX_NOTEBOOKS:
        why = f"{child}: more than {MAX_NOTEBOOKS} notebooks, of which only the first are graded"
        notebooks[MAX_NOTEBOOKS:] = [replace(notebooks[MAX_NOTEBOOKS], path=child, problem=why)]
    return notebooks


def _files(path: Path, shown: str) -> list:
    """Every file in a folder or a zip, which may be in a folder; a file itself. Links are not followed."""
    if not path.is_dir() or path.is_symlink():
        return _members(path, shown) if path.suffix.lower() == ".zip" else [Handed("", shown, path)]
    files = []
    for place, folders, names in os.walk(path):
        deep = len(Path(place).parts) - len(path.parts) >= MAX_DEPTH
        folders[:] = sorted(name for name in folders if not _hidden(name) and not deep)
        inside = [Path(place, name) for name in sorted(names) if not _hidden(name)]
        files += [handed for file in inside for handed in _files(file, f"{shown}/{text(file.relative_to(path))}")]
    return files


def _members(file: Path, shown: str) -> list:
    """Every file in a zip; where it cannot be read, itself with the reason."""
    try:
        with opened(file) as stream, zipfile.ZipFile(stream) as archive:
            names = sorted(info.filename for info in archive.infolist() if not info.is_dir())
    except Exception as error:  # zipfile fails on strange files in its own ways
        why = f"{shown}: not a zip that can be read ({getattr(error, 'strerror', '') or error})"
        return [Handed("", shown, file, "", why)]
    members = []
    for name in names:
        parts = PurePosixPath(name.replace("\\", "/").lstrip("/")).parts
        if parts and not any(map(_hidden, parts)):
            path = "/".join((shown, *parts))
            inner = f"{path}: a zip inside a zip; unpack the outer one first" * name.lower().endswith(".zip")
            members.append(Handed("", path, file, name, inner))
    return members


def _hidden(name: str) -> bool:
    return name.startswith((".", "~$")) or name in ("__MACOSX", "__pycache__")


def read(handed: Handed) -> tuple[NotebookNode, list]:
    """The notebook (its cells' types, sources and grade ids, and its exercise), and notes on what was odd."""
    content, path, notes = handed.read(), handed.path, []
    try:
        data = json.loads(content)  # in UTF-8, UTF-16 or UTF-32
    except (ValueError, RecursionError):
        conflict = re.search(rb"^<<<<<<< ", content, re.MULTILINE)
        why = "git left the marks of a merge conflict in it" if conflict else "damaged, or not JSON"
        raise Unreadable(f"{path}: not a notebook ({why})") from None
    try:
        if "cells" not in data:
            data["cells"] = [cell for sheet in data["worksheets"] for cell in sheet["cells"]]
            notes.append("the notebook format is older than 4; it was converted")
        cells, exercise = [_cell(cell) for cell in data["cells"]], exercise_id(data)
    except (TypeError, KeyError, AttributeError):
        raise Unreadable(f"{path}: not a notebook (JSON, but without a notebook's cells)") from None
    if None in cells:
        notes.append(f"cells that could not be read and were left out: {cells.count(None)}")
    return from_dict({"metadata": {"bytes_first": {"exercise": exercise}}, "cells": [*filter(None, cells)]}), notes


def _cell(cell) -> dict | None:
    """A cell's type, source and grade id; None where it has no source."""
    source = cell.get("source", cell.get("input")) if isinstance(cell, dict) else None
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        return None
    source = source.replace("\r\n", "\n").encode("utf-8", "replace").decode()  # halves of a character have no bytes
    kind = "code" if cell.get("cell_type") == "code" else "markdown"
    return {"cell_type": kind, "source": source, "metadata": {"nbgrader": {"grade_id": grade_id(cell)}}}


def exercise_of(nb: NotebookNode, path, notes: list) -> str:
    """The exercise of a submission, by its metadata, whatever the file is called; without that, by its cells."""
    exercise = exercise_id(nb)
    if not exercise:
        names = {exercise_with(task_id(grade_id(cell))) for cell in nb.cells} - {""}
        if len(names) != 1:
            raise Unreadable(f"{path}: not an exercise of this course (its metadata names none)")
        (exercise,) = names
        notes.append("the notebook had lost its exercise id; its cells gave it")
    if exercise not in exercises():
        raise Unreadable(f"{path}: exercise {exercise[:40]!r} is unknown, expected one of: {', '.join(exercises())}")
    return exercise


@dataclass
class Answers:
    """What the learner answered. sources: {task: source of its answer}; untouched: tasks whose answer is still the
    stub; notes: what was odd, one sentence each."""

    sources: dict = field(default_factory=dict)
    untouched: set = field(default_factory=set)
    notes: list = field(default_factory=list)


def answers(pristine: NotebookNode, submitted: NotebookNode, functions: dict) -> Answers:
    """The answers of a submission, by grade id; functions: {task: names that its answer defines}.

    Of several cells with one id the last changed one counts. Where none is changed, or the cell is missing, the last
    other code cell that defines all functions of the pristine answer counts as it stands, with a note.
    """
    result, old = Answers(), {normal(cell.source) for cell in pristine.cells} | {""}
    changed = [cell for cell in submitted.cells if normal(cell.source) not in old]
    for cell in pristine.cells:
        if grade_id(cell).startswith("answer_"):
            task = task_id(grade_id(cell))
            own = [name for name in functions.get(task, ()) if defines(cell.source, (name,))]  # others are given
            answer, note = _answer(cell, changed, submitted, own)
            result.notes += [f"{task}: {note}"] if note else []
            result.untouched |= {task} if answer is cell else set()
            result.sources[task] = answer.source if len(answer.source) <= MAX_ANSWER else TOO_LONG
    if result.untouched == set(result.sources) and not result.notes:
        result.notes.append(PRISTINE)
    return result


def _answer(cell: NotebookNode, changed: list, submitted: NotebookNode, names: list) -> tuple[NotebookNode, str]:
    """The cell that answers a task, `cell` itself where none does, and a note on what was odd."""
    own = [c for c in changed if grade_id(c) == grade_id(cell)]
    if own:
        return own[-1], f"{len(own)} cells carry the answer's id; the last one counts" * (len(own) > 1)
    for other in reversed(changed):
        if other.cell_type == "code" and defines(other.source, names):
            where = f"the answer cell of {task_id(grade_id(other))}" if grade_id(other) else "a cell of its own"
            return other, f"the answer was found in {where}, by its functions, and taken as it stands"
    return cell, "the answer cell is missing" * (grade_id(cell) not in map(grade_id, submitted.cells))


def normal(source: str) -> str:
    """A source without trailing blanks, blank lines and lines that are a comment alone: a remark is no answer."""
    return "\n".join(line.rstrip() for line in source.splitlines() if not re.match(r"\s*(#|$)", line))


def defines(source: str, names: list | tuple) -> bool:
    """Whether a source defines all of these names at its left margin."""
    return bool(names) and all(re.search(rf"^(?:def {re.escape(n)}\b|{re.escape(n)} *=)", source, re.M) for n in names)
