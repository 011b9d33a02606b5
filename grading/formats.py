"""Other programs' forms of a result: JUnit XML, Gradescope, GitHub Classroom, a gradebook's CSV. All from the same
records; what is ungraded is an error or a blank there, never a zero."""

import base64
import csv
import io
import json
import math
import re
import sys
from pathlib import Path

import msgspec
from junitparser import Error, Failure, JUnitXml, Skipped
from junitparser.xunit2 import TestCase, TestSuite

from grading.record import Submission, Verdict

WORDS = {
    "passed": "passed",
    "pending": "pending",
    "failed": "failed",
    "not_attempted": "not attempted",
    "ungraded": "not graded",
    "graded": "graded",
    "unreadable": "cannot be read",
}
TEXT = 2000  # characters that a report shows of a text
NAME = 1000  # of a name or path
NOTES = 20  # notes on one submission
#: What terminals obey, what turns text around, and what XML or UTF-8 cannot hold.
CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


# ---------------------------------------------------------------- what learners wrote


def shown(text: str, most: int = TEXT) -> str:
    """Text as reports show it: cut, and with control characters written out."""
    cut = text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
    return CONTROL.sub(lambda found: ascii(found[0])[1:-1], cut)


def line(name: str) -> str:
    """A name or a path as reports and terminals show it: on one line as well."""
    return shown(name, NAME).replace("\t", r"\t").replace("\n", r"\n")


def told(records: list[Submission]) -> list[Submission]:
    """The records as every report tells them: texts as `shown`, no number that JSON lacks. Learners stay apart, even
    where their names come to look alike."""
    found, whose = [], {}
    for record in records:
        name = line(record.learner)
        while whose.setdefault(name, record.learner) != record.learner:
            name += "'"
        more = [f"and {len(record.notes) - NOTES:,} more notes"] if len(record.notes) > NOTES else []
        record = msgspec.structs.replace(
            record, learner=name, path=line(record.path), file=line(record.file), notes=[*record.notes[:NOTES], *more]
        )
        found.append(msgspec.convert(_plain(msgspec.to_builtins(record)), Submission))
    return found


def _plain(value):
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return shown(value) if isinstance(value, str) else value


# ---------------------------------------------------------------- in words


def standing(record: Submission, unit: str = "") -> str:
    """A submission's points, in a few words."""
    if not record.is_graded:
        return WORDS[record.status]
    waits = f", {record.pending_points} pending" if record.pending_points else ""
    return f"{record.points} of {record.max_points}{unit}{waits}"


def reason(record: Submission) -> str:
    """Why a submission has no mark, without its path."""
    ungraded = [task.hint for task in record.tasks if task.status == "ungraded"]
    return shown(" ".join(record.notes or ungraded[:1])).replace(f"{record.path}: ", "") or "see the report"


def waiting(task: Verdict) -> str:
    """What a task still waits for; '' for nothing."""
    points = task.pending_points
    return f"right; {points} point{' waits' if points == 1 else 's wait'} for a GPU" if points else ""


def words(task: Verdict) -> str:
    """All that is said about a task, as lines."""
    return "\n".join(
        filter(
            None,
            [
                task.hint,
                *(f"proved: {sentence}" for sentence in task.proved),
                *(f"not proved here: {sentence}" for sentence in task.unproved),
                waiting(task),
            ],
        )
    )


# ---------------------------------------------------------------- JUnit


def junit(records: list[Submission]) -> str:
    """JUnit XML: a suite for each submission, a case for each task, named by exercise and task."""
    root = JUnitXml("grade")
    for record in records:
        suite = TestSuite(record.path)
        for name in (
            "learner",
            "exercise",
            "status",
            "points",
            "pending_points",
            "max_points",
            "gradable_points",
            "isolation",
        ):
            suite.add_property(name, str(getattr(record, name)))
        whole = Verdict(
            id="",
            title="the submission",
            status="ungraded",
            points=0,
            pending_points=0,
            max_points=0,
            hint=reason(record),
        )
        suite.add_testcases([_case(record.exercise or "unknown", task) for task in record.tasks or [whole]])
        root.append(suite)  # add_testsuite merges suites of one name, and compares each with all others
    root.update_statistics()
    for suite, record in zip(root, records):
        suite.time = record.seconds  # which update_statistics takes from the cases; only the whole is known
    root.time = round(sum(record.seconds for record in records), 1)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + root.tostring().decode() + "\n"


def _case(exercise: str, task: Verdict) -> TestCase:
    case = TestCase(f"{task.id} {task.title}".strip(), exercise, 0)
    for name in ("points", "pending_points", "max_points"):
        case.add_property(name, str(getattr(task, name)))
    outcome = {"failed": Failure, "ungraded": Error, "not_attempted": Skipped}.get(task.status)
    if outcome:
        case.result = outcome(task.hint or WORDS[task.status])
    if outcome in (Failure, Error):  # JUnit has no type and no text of what was skipped
        case.result[0].type, case.result[0].text = task.kind or task.status, words(task)
    case.system_out = words(task)
    return case


# ---------------------------------------------------------------- Gradescope and GitHub Classroom


def gradescope(record: Submission) -> dict | None:
    """Gradescope's results.json of one submission; None where nothing was graded through no fault of the file's.

    Without a results.json Gradescope says that the autograder failed, and gives no score.
    """
    if record.status == "ungraded":
        return None
    tests = [
        {
            "number": task.id,
            "name": f"{task.title}: {WORDS[task.status]}",
            "score": task.points,
            "max_score": task.max_points,
            "status": "passed" if task.status in ("passed", "pending") else "failed",
            "output": words(task) or WORDS[task.status],
            "output_format": "text",
            "visibility": "visible",
            "extra_data": {"status": task.status, "pending_points": task.pending_points},
        }
        for task in record.tasks
    ]
    return {
        "score": record.points,
        "execution_time": round(record.seconds),
        "output": "\n".join(record.notes),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
        "extra_data": {
            "exercise": record.exercise,
            "pending_points": record.pending_points,
            "max_points": record.max_points,
            "isolation": record.isolation,
        },
    }


def gradescope_together(submissions: list) -> dict | None:
    """Gradescope's result of all that one learner uploaded: of the one notebook among it, or why there is no mark; None
    where the grader failed. submissions: records, or as results.json holds them."""
    records = msgspec.convert(submissions, list[Submission])
    readable = [record for record in records if record.status != "unreadable"]
    if len(readable) == 1:
        form = gradescope(readable[0])
        if form:
            aside = [f"left aside: {note}" for record in records if record is not readable[0] for note in record.notes]
            form["output"] = shown("\n".join(filter(None, [form["output"], *aside])))
        return form
    if not readable:
        return gradescope_nothing("\n".join(note for record in records for note in record.notes))
    paths = ", ".join(record.path for record in readable)
    names = sorted({record.exercise for record in readable} - {""})
    if len(names) > 1:
        return gradescope_nothing(
            f"Notebooks of different exercises were handed in ({', '.join(names)}: {paths}). "
            "Hand in the one of this assignment."
        )
    return gradescope_nothing(f"More than one notebook of {''.join(names)} was handed in ({paths}). Hand in one.")


def gradescope_nothing(said: str) -> dict:
    """Gradescope's result where nothing could be graded: a 0 with its reason, and the learner can hand in again."""
    return {"score": 0, "output": shown(said), "output_format": "text", "visibility": "visible", "tests": []}


def classroom(records: list[Submission]) -> dict:
    """The result that GitHub Classroom's grading reporter takes from a runner; a repository's submissions together."""
    tests = []
    for record in records:
        for task in record.tasks:
            status = {"passed": "pass", "pending": "pass", "ungraded": "error"}.get(task.status, "fail")
            tests.append(
                _test(
                    f"{task.id} {task.title}",
                    words(task),
                    status,
                    task.points,
                    f"check {task.id}",
                    record.path,
                    record.seconds,
                )
            )
        if not record.tasks:
            tests.append(_test(record.path, " ".join(record.notes), filename=record.path))
    states = {test["status"] for test in tests}
    return {
        "version": 1,
        "status": "error" if "error" in states else "fail" if "fail" in states else "pass",
        "max_score": sum(record.max_points for record in records),
        "tests": tests,
    }


def classroom_nothing(said: str, points: int) -> dict:
    """The result of a push without anything to grade: 0 of `points`, and why."""
    return {"version": 1, "status": "error", "max_score": points, "tests": [_test("the submission", shown(said))]}


def _test(
    name: str,
    message: str,
    status: str = "error",
    score: int = 0,
    code: str = "",
    filename: str = "",
    seconds: float = 0,
) -> dict:
    return {
        "name": name,
        "status": status,
        "score": score,
        "message": message,
        "test_code": code,
        "filename": filename,
        "line_no": 0,
        "execution_time": f"{seconds:g}s",
    }


def one_line(result: dict) -> str:
    """A result as a runner hands it on to Classroom: base64 of JSON, on one line."""
    return base64.b64encode(json.dumps(result).encode()).decode()


def classroom_step(folder: Path, status: int, points: int, said: str) -> int:
    """Leave folder/classroom.b64 for a workflow's next step; 1 where the grader failed. status: that of `grade`.

    Classroom takes no result of 0 points, so a push without anything that can be read counts 0 of `points`.
    """
    read = json.loads((folder / "results.json").read_bytes())["submissions"] if status != 2 else []
    records = msgspec.convert(read, list[Submission])
    if any(record.status == "ungraded" for record in records):
        return 1
    if not any(record.is_graded for record in records):
        why = "\n".join(note for record in records for note in record.notes) or said
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "classroom.b64").write_text(one_line(classroom_nothing(why, points)) + "\n")
    return 0


# ---------------------------------------------------------------- a gradebook


def gradebook(records: list[Submission]) -> str:
    """CSV with a line for each submission, sorted by learner; a column for each task. A blank is no mark."""
    tasks = sorted({task.id for record in records for task in record.tasks})
    marks = ("points", "pending_points", "max_points", "gradable_points")
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["learner", "exercise", "status", *marks, "file", "notes", *tasks])
    for record in sorted(records, key=lambda r: (r.learner, r.exercise, r.path)):
        by_id = {task.id: task.points for task in record.tasks if task.status != "ungraded"}
        table.writerow(
            [
                _cell(record.learner),
                record.exercise,
                record.status,
                *(getattr(record, name) if record.is_graded else "" for name in marks),
                _cell(record.path),
                _cell("; ".join(record.notes)),
                *(by_id.get(name, "") for name in tasks),
            ]
        )
    return out.getvalue()


def _cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    text = " ".join(shown(text).split())
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


if __name__ == "__main__":  # REPORT STATUS POINTS SAID: a step of deploy/github_classroom.yml
    report, status, points, said = sys.argv[1:]
    sys.exit(classroom_step(Path(report), int(status), int(points), Path(said).read_text(errors="replace")))
