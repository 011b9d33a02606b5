"""Other programs' forms of a result: JUnit XML, Gradescope, GitHub Classroom, a gradebook's CSV. All from the same
records; what is ungraded is an error or a blank there, never a zero.

    python -m grading.adapters gradescope REPORT PRINTED        Gradescope's results.json for what one learner uploaded
    python -m grading.adapters classroom REPORT PRINTED POINTS  the line that GitHub Classroom's reporter takes

PRINTED is a file with what `grade` printed. Exit status 1: the grader failed; there is no result.
"""

import base64
import csv
import io
import json
import sys
from pathlib import Path

import msgspec
from junitparser import Error, Failure, JUnitXml, Skipped
from junitparser.xunit2 import TestCase, TestSuite

from grading.record import Results, Submission, Verdict
from grading.wording import WORDS, by_hand, reason, shown

MARKS = ("points", "manual_points", "pending_points", "max_points", "gradable_points")


def junit(records: list[Submission]) -> str:
    """JUnit XML: a suite for each submission, a case for each task."""
    root = JUnitXml("grade")
    for record in records:
        suite = TestSuite(record.path)
        for name in ("learner", "exercise", "status", *MARKS, "isolation"):
            suite.add_property(name, str(getattr(record, name)))
        whole = Verdict(id="", title="the submission", status="ungraded", max_points=0, hint=reason(record))
        for task in record.tasks or [whole]:
            case = TestCase(f"{task.id} {task.title}".strip(), record.exercise or "unknown", 0)
            case.system_out = str(task)
            if task.status == "not_attempted":
                case.result = Skipped(task.hint or WORDS[task.status])
            elif task.status in ("failed", "ungraded"):
                outcome = Failure if task.status == "failed" else Error
                case.result = outcome(task.hint or WORDS[task.status], task.diagnosis or task.status)
            suite.add_testcase(case)
        root.append(suite)
    root.update_statistics()
    return '<?xml version="1.0" encoding="utf-8"?>\n' + root.tostring().decode() + "\n"


def gradescope(record: Submission) -> dict | None:
    """Gradescope's results.json of one submission; None where nothing was graded through no fault of the file's.

    Without a results.json Gradescope says that the autograder failed, and gives no score.
    """
    if record.status == "ungraded":
        return None
    text = {"output_format": "text", "visibility": "visible"}
    tests = [
        {
            "number": task.id,
            "name": f"{task.title}: {WORDS[task.status]}",
            "score": task.points,
            "max_score": task.max_points,
            "status": "passed" if task.status in ("passed", "pending") else "failed",
            "output": str(task),
            **text,
        }
        for task in record.tasks
    ]
    return {"score": record.points, "output": shown("\n".join(record.notes)), "tests": tests, **text}


def uploaded(records: list[Submission], printed: str) -> Submission:
    """The one notebook of an upload, with notes on the rest; without one, or of several, why there is no mark."""
    readable = [record for record in records if record.status != "unreadable"]
    rest = [note for record in records if record.status == "unreadable" for note in record.notes]
    if len(readable) == 1:
        return msgspec.structs.replace(readable[0], notes=readable[0].notes + [f"left aside: {note}" for note in rest])
    paths = ", ".join(f"{record.path} ({record.exercise})" for record in readable)
    why = f"More than one notebook was handed in: {paths}. Hand in one." if readable else "\n".join(rest) or printed
    return Submission(path="", file="", learner="", exercise="", status="unreadable", notes=[why])


def classroom(records: list[Submission], printed: str, points: int) -> dict | None:
    """The result that GitHub Classroom's grading reporter takes; None where the grader failed.

    Classroom takes no result of 0 points, so a push without anything that can be read counts 0 of `points`.
    """
    if any(record.status == "ungraded" for record in records):
        return None
    tests = [
        {
            "name": f"{task.id} {task.title}",
            "status": "pass" if task.status in ("passed", "pending") else "fail",
            "score": task.points,
            "message": str(task),
            "filename": record.path,
        }
        for record in records
        for task in record.tasks
    ]
    why = shown("\n".join(note for record in records for note in record.notes) or printed)
    tests = tests or [{"name": "the submission", "status": "error", "score": 0, "message": why, "filename": ""}]
    worst = min(test["status"] for test in tests)  # error, fail, pass
    most = sum(record.max_points for record in records) or points
    rest = {"test_code": "", "line_no": 0, "execution_time": "0s"}
    return {"version": 1, "status": worst, "max_score": most, "tests": [test | rest for test in tests]}


def gradebook(results: Results) -> str:
    """CSV with a line for each submission, and for each learner who handed in nothing, and a column for each task. A
    blank is no mark."""
    records, outside = results.submissions, set(results.not_on_the_roster)
    tasks = sorted({task.id for record in records for task in record.tasks})
    out, columns = io.StringIO(), ("learner", "exercise", "status", *MARKS, "file", "notes", *tasks)
    table = csv.DictWriter(out, columns, lineterminator="\n")
    table.writeheader()
    for record in sorted(records, key=lambda r: (r.learner.casefold(), r.exercise, r.path)):
        row = {"learner": _cell(record.learner), "exercise": record.exercise, "status": record.status}
        notes = ["not on the roster"] * (record.learner in outside) + record.notes + list(map(by_hand, record.remarks))
        row |= {"file": _cell(record.path), "notes": _cell("; ".join(notes))}
        row |= {name: getattr(record, name) for name in MARKS if record.is_graded}
        row |= {task.id: task.points for task in record.tasks if task.status != "ungraded"}
        table.writerow(row)
    table.writerows({"learner": _cell(name), "status": "missing"} for name in results.handed_in_nothing)
    return out.getvalue()


def _cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    text = " ".join(text.split())
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def main(form: str, report: str, printed: str, points: str = "0") -> int:
    results, printed = Path(report, "results.json"), Path(printed).read_text(errors="replace")
    records = msgspec.json.decode(results.read_bytes(), type=Results).submissions if results.exists() else []
    if form == "gradescope":
        result = gradescope(uploaded(records, printed))
        print(json.dumps(result, indent=1))
    else:
        result = classroom(records, printed, int(points))
        print(base64.b64encode(json.dumps(result).encode()).decode())
    return 0 if result else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
