"""What a learner has done so far: points by task and guesses, in one small file, work/progress.json, that goes nowhere.

It is kept where there is a `work/` folder (instruments/work.py makes it); elsewhere for this session only. What stands
in a file that cannot be read is put aside under another name, not overwritten.
"""

import os
import threading
from pathlib import Path

import msgspec

from instruments.files import write_whole

#: The tests, and `make lessons`, name a place that is not there: what they lock and check is nobody's progress.
FILE = Path(os.environ.get("BYTES_FIRST_PROGRESS") or Path(__file__).resolve().parents[1] / "work" / "progress.json")


class Points(msgspec.Struct):
    """A task as it was last checked. status: a verdict's: passed, pending, failed, not_attempted or ungraded."""

    status: str
    points: int
    pending: int
    most: int


def score(points: int, pending: int, most: int) -> str:
    """Points in words."""
    return f"{points} of {most} points" + (f", {pending} pending" if pending else "")


class Guess(msgspec.Struct):
    """A locked guess. question: as asked, so that a question that was rewritten is asked anew."""

    question: str
    guess: float
    answer: float
    unit: str = ""
    near: str = ""


class Diary(msgspec.Struct):
    """tasks: {id: Points}. guesses: {key: Guess}, in the order in which they were locked."""

    version: int = 1
    tasks: dict[str, Points] = {}
    guesses: dict[str, Guess] = {}


_session, _lock = Diary(), threading.Lock()


def read() -> Diary:
    """What is kept: the file's, or this session's where there is none."""
    if not FILE.is_file():
        return _session
    try:
        return msgspec.json.decode(FILE.read_bytes(), type=Diary)
    except (OSError, msgspec.DecodeError):
        _put_aside()
        return _session


def keep_task(task: str, points: Points) -> None:
    """Keep how a task was last checked."""
    _change(lambda diary: diary.tasks.update({task: points}))


def keep_guess(key: str, guess: Guess) -> None:
    """Keep a locked guess."""
    _change(lambda diary: diary.guesses.update({key: guess}))


def _change(change) -> None:
    with _lock:
        diary = read()
        change(diary)
        if diary is not _session:
            change(_session)
        if FILE.parent.is_dir():
            try:
                write_whole(FILE, msgspec.json.format(msgspec.json.encode(diary), indent=1))
            except OSError:  # a full or read-only disk must not stop a lesson; the session remembers
                pass


def _put_aside() -> None:
    number = 1
    while (aside := FILE.with_name(f"{FILE.stem} (unreadable {number}){FILE.suffix}")).exists():
        number += 1
    try:
        os.replace(FILE, aside)
    except OSError:
        pass
