"""Other programs' forms of a result: JUnit XML, Gradescope, GitHub Classroom, a gradebook's CSV. All from the records of
results.json; what is ungraded is an error or a blank there, never a zero."""

import base64
import csv
import io
import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

WORDS = {"passed": "passed", "pending": "pending", "failed": "failed", "not_attempted": "not attempted",
         "ungraded": "not graded", "graded": "graded", "unreadable": "cannot be read"}
ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML, however it is written


def is_graded(record: dict) -> bool:
    """Whether the points of a submission are a mark."""
    return record["status"] in ("graded", "pending")


def standing(record: dict, unit: str = "") -> str:
    """A submission's points, in a few words."""
    if not is_graded(record):
        return WORDS[record["status"]]
    waits = f", {record['pending_points']} pending" if record["pending_points"] else ""
    return f"{record['points']} of {record['max_points']}{unit}{waits}"


def reason(record: dict) -> str:
    """Why a submission has no mark, without its path."""
    ungraded = [task["hint"] for task in record["tasks"] if task["status"] == "ungraded"]
    told = " ".join(record["notes"] or ungraded[:1])
    return told.replace(f"{record['path']}: ", "") or "see the report"


def waiting(task: dict) -> str:
    """What a task still waits for; '' for nothing."""
    points = task["pending_points"]
    return f"right; {points} point{' waits' if points == 1 else 's wait'} for a GPU" if points else ""


def words(task: dict) -> str:
    """All that is said about a task, as lines."""
    lines = [task["hint"]] if task["hint"] else []
    lines += [f"proved: {sentence}" for sentence in task["proved"]]
    lines += [f"not proved here: {sentence}" for sentence in task["unproved"]]
    if task["pending_points"]:
        lines.append(waiting(task))
    return "\n".join(lines)


# ---------------------------------------------------------------- JUnit


def junit(records: list) -> str:
    """JUnit XML: a suite for each submission, a case for each task, named by exercise and task."""
    root = ElementTree.Element("testsuites", name="grade")
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for record in records:
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(record["path"]))
        counts = dict.fromkeys(totals, 0)
        properties = ElementTree.SubElement(suite, "properties")
        for name in ("learner", "exercise", "status", "points", "pending_points", "max_points", "gradable_points",
                     "isolation"):
            ElementTree.SubElement(properties, "property", name=name, value=_xml(record[name]))
        for task in record["tasks"]:
            _case(suite, counts, f"{task['id']} {task['title']}", record["exercise"], task)
        if not record["tasks"]:
            _case(suite, counts, "the submission", record["exercise"] or "unknown", {
                "status": "ungraded", "hint": " ".join(record["notes"]), "proved": [], "unproved": [], "points": 0,
                "pending_points": 0, "max_points": 0})
        for name, count in counts.items():
            suite.set(name, str(count))
            totals[name] += count
        suite.set("time", f"{record['seconds']:g}")
    for name, count in totals.items():
        root.set(name, str(count))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite, counts: dict, name: str, exercise: str, task: dict) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=_xml(exercise), name=_xml(name), time="0")
    counts["tests"] += 1
    properties = ElementTree.SubElement(case, "properties")
    for field in ("points", "pending_points", "max_points"):
        ElementTree.SubElement(properties, "property", name=field, value=str(task[field]))
    outcome = {"failed": "failure", "ungraded": "error", "not_attempted": "skipped"}.get(task["status"])
    if outcome:
        counts[{"failure": "failures", "error": "errors", "skipped": "skipped"}[outcome]] += 1
        told = ElementTree.SubElement(case, outcome, message=_xml(task["hint"] or WORDS[task["status"]]))
        if outcome != "skipped":
            told.set("type", task.get("kind") or task["status"])
            told.text = _xml(words(task))
    ElementTree.SubElement(case, "system-out").text = _xml(words(task))


def _xml(text) -> str:
    return ILLEGAL.sub("\ufffd", str(text))


# ---------------------------------------------------------------- Gradescope and GitHub Classroom


def gradescope(record: dict) -> dict | None:
    """Gradescope's results.json of one submission; None where nothing was graded through no fault of the file's.

    Without a results.json Gradescope says that the autograder failed, and gives no score.
    """
    if record["status"] == "ungraded":
        return None
    told = "\n".join(record["notes"])
    found = {"score": record["points"], "execution_time": round(record["seconds"]), "output": told, "output_format": "text",
             "visibility": "visible", "stdout_visibility": "hidden", "tests": [],
             "extra_data": {"exercise": record["exercise"], "pending_points": record["pending_points"],
                            "max_points": record["max_points"], "isolation": record["isolation"]}}
    for task in record["tasks"]:
        found["tests"].append({
            "number": task["id"], "name": f"{task['title']}: {WORDS[task['status']]}", "score": task["points"],
            "max_score": task["max_points"], "status": "passed" if task["status"] in ("passed", "pending") else "failed",
            "output": words(task) or WORDS[task["status"]], "output_format": "text", "visibility": "visible",
            "extra_data": {"status": task["status"], "pending_points": task["pending_points"]}})
    return found


def gradescope_together(records: list) -> dict | None:
    """Gradescope's result of all that one learner uploaded: of the one notebook among it, or why there is no mark; None
    where the grader failed."""
    readable = [record for record in records if record["status"] != "unreadable"]
    if len(readable) == 1:
        form = gradescope(readable[0])
        if form:
            aside = [f"left aside: {note}" for record in records if record not in readable for note in record["notes"]]
            form["output"] = "\n".join(filter(None, [form["output"], *aside]))
        return form
    if not readable:
        return gradescope_nothing("\n".join(note for record in records for note in record["notes"]))
    paths = ", ".join(record["path"] for record in readable)
    names = sorted({record["exercise"] for record in readable} - {""})
    if len(names) > 1:
        return gradescope_nothing(f"Notebooks of different exercises were handed in ({', '.join(names)}: {paths}). "
                                  "Hand in the one of this assignment.")
    return gradescope_nothing(f"More than one notebook of {''.join(names)} was handed in ({paths}). Hand in one.")


def gradescope_nothing(said: str) -> dict:
    """Gradescope's result where nothing could be graded: a 0 with its reason, and the learner can hand in again."""
    return {"score": 0, "output": said, "output_format": "text", "visibility": "visible", "tests": []}


def classroom(records: list) -> dict:
    """The result that GitHub Classroom's grading reporter takes from a runner; one repository's submissions together."""
    tests = []
    for record in records:
        for task in record["tasks"]:
            status = {"passed": "pass", "pending": "pass", "ungraded": "error"}.get(task["status"], "fail")
            tests.append({"name": f"{task['id']} {task['title']}", "status": status, "score": task["points"],
                          "message": words(task), "test_code": f"check {task['id']}", "filename": record["path"], "line_no": 0,
                          "execution_time": f"{record['seconds']:g}s"})
        if not record["tasks"]:
            tests.append({"name": record["path"], "status": "error", "score": 0, "message": " ".join(record["notes"]),
                          "test_code": "", "filename": record["path"], "line_no": 0, "execution_time": "0s"})
    states = {test["status"] for test in tests}
    return {"version": 1, "status": "error" if "error" in states else "fail" if "fail" in states else "pass",
            "max_score": sum(record["max_points"] for record in records), "tests": tests}


def classroom_nothing(said: str, points: int) -> dict:
    """The result of a push without anything to grade: 0 of `points`, and why."""
    return {"version": 1, "status": "error", "max_score": points, "tests": [
        {"name": "the submission", "status": "error", "score": 0, "message": said, "test_code": "", "filename": "",
         "line_no": 0, "execution_time": "0s"}]}


def one_line(result: dict) -> str:
    """A result as a runner hands it on to Classroom: base64 of JSON, on one line."""
    return base64.b64encode(json.dumps(result).encode()).decode()


def classroom_step(folder: Path, status: int, points: int, said: str) -> int:
    """Leave folder/classroom.b64 for a workflow's next step; 1 where the grader failed. status: what `grade` ended with.

    Classroom takes no result of 0 points, so a push without anything that can be read counts 0 of `points`.
    """
    path = folder / "results.json"
    records = json.loads(path.read_text(encoding="utf-8"))["submissions"] if status != 2 else []
    if any(record["status"] == "ungraded" for record in records):
        return 1
    if not any(map(is_graded, records)):
        told = "\n".join(note for record in records for note in record["notes"]) or said
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "classroom.b64").write_text(one_line(classroom_nothing(told, points)) + "\n")
    return 0


# ---------------------------------------------------------------- a gradebook


def gradebook(records: list) -> str:
    """CSV with a line for each submission, sorted by learner; a column for each task. A blank is no mark."""
    tasks = sorted({task["id"] for record in records for task in record["tasks"]})
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["learner", "exercise", "status", "points", "pending_points", "max_points", "gradable_points",
                    "file", "notes", *tasks])
    for record in sorted(records, key=lambda r: (r["learner"], r["exercise"], r["path"])):
        mark = is_graded(record)
        by_id = {task["id"]: task["points"] for task in record["tasks"] if task["status"] != "ungraded"}
        table.writerow([_cell(record["learner"]), record["exercise"], record["status"], record["points"] if mark else "",
                        record["pending_points"] if mark else "", record["max_points"] if mark else "",
                        record["gradable_points"] if mark else "",
                        _cell(record["path"]), _cell("; ".join(record["notes"])), *(by_id.get(name, "") for name in tasks)])
    return out.getvalue()


def _cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    text = " ".join(str(text).split())
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


if __name__ == "__main__":  # REPORT STATUS POINTS SAID: a step of deploy/github_classroom.yml
    report, status, points, said = sys.argv[1:]
    sys.exit(classroom_step(Path(report), int(status), int(points), Path(said).read_text(errors="replace")))
