"""Records in words, and untrusted text made fit to show: hints, notes and names quote learners."""

import math
import re

import msgspec

from grading.record import Remark, Submission
from instruments.diary import score

WORDS = {
    "passed": "passed",
    "pending": "pending",
    "failed": "failed",
    "not_attempted": "not attempted",
    "ungraded": "not graded",
    "unreadable": "cannot be read",
}
TEXT = 2000  # characters that a report shows of a text
NAME = 500  # of a name or a path
NOTES = 20  # notes on one submission
#: What terminals obey, what turns text around, and what XML or UTF-8 cannot hold.
CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def shown(text: str, most: int = TEXT) -> str:
    """Text as reports show it: cut, and with control characters written out."""
    cut = text if len(text) <= most + 50 else f"{text[:most]}… ({len(text):,} characters)"
    return CONTROL.sub(lambda match: ascii(match[0])[1:-1], cut)


def line(name: str) -> str:
    """A name or a path as reports show it: on one line as well."""
    return shown(name, NAME).replace("\t", r"\t").replace("\n", r"\n")


def clean(record: Submission) -> Submission:
    """A record whose texts can be shown and whose numbers JSON can hold."""
    notes = record.notes[:NOTES] + [f"and {len(record.notes) - NOTES:,} more notes"] * (len(record.notes) > NOTES)
    names = {name: line(getattr(record, name)) for name in ("learner", "path", "file")}
    plain = _plain(msgspec.to_builtins(record)) | names | {"notes": list(map(shown, notes))}
    return msgspec.convert(plain, Submission)


def _plain(value):
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # "nan", "inf" or "-inf": record.Number
    return shown(value) if isinstance(value, str) else value


def who(record: Submission) -> str:
    """A submission by its learner and its notebook, where that has a name of its own."""
    return ", ".join(dict.fromkeys((record.learner, record.exercise or record.path)))


def standing(record: Submission) -> str:
    """A submission's points, in a few words."""
    points = score(record.points, record.pending_points, record.max_points)
    points += f", {record.manual_points:+} by hand included" if record.manual_points else ""
    return points if record.is_graded else WORDS[record.status]


def by_hand(remark: Remark) -> str:
    """A remark in one line: on what, points, comment."""
    points = f"{remark.points:+} point{'s' * (abs(remark.points) != 1)}" if remark.points else ""
    return f"{remark.on}: {'. '.join(filter(None, (points, remark.comment)))}"


def reason(record: Submission) -> str:
    """Why a submission has no mark, without its path."""
    ungraded = [task.hint for task in record.tasks if task.status == "ungraded"]
    words = " ".join(record.notes or ungraded[:1]).replace(f"{record.path}: ", "").split()
    return " ".join(words) or "see the report"
