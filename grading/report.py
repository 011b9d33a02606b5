"""Writes the results: results.json, which results.schema.json describes, and everything that is made from it.

All files are written beside their places first and put there together, so that a report is the old one or the new one.
"""

import json
import os
import shutil
from pathlib import Path

from grading import formats, pages

SCHEMA_VERSION = 3
SCHEMA = Path(__file__).with_name("results.schema.json")
OURS = ("gradescope", "learners")  # folders of a report that hold nothing else


def summary(records: list, aside: list = ()) -> dict:
    """The content of results.json. aside: files beside the submissions that are none."""
    return {"schema_version": SCHEMA_VERSION, "submissions": records, "left_aside": list(aside)}


def others(folder: Path, handed: list) -> tuple[list, int]:
    """The learners of the report in `folder` whom `handed` lacks, and how many submissions that report holds."""
    try:
        old = json.loads((folder / "results.json").read_text(encoding="utf-8"))["submissions"]
        known = {h.learner for h in handed} | {h.place for h in handed}
        lacking = [s["learner"] for s in old if not known & {s["learner"], s.get("file") or os.path.abspath(s["path"])}]
    except (OSError, ValueError, KeyError, TypeError):
        return [], 0
    return lacking, len(old)


def files(records: list, aside: list = ()) -> dict:
    """{path inside the report: text} of a whole report."""
    names = pages.slugs(records)
    found = {
        "results.json": json.dumps(summary(records, aside), indent=1, allow_nan=False) + "\n",
        "index.html": pages.class_page(records, aside),
        "junit.xml": formats.junit(records),
        "grades.csv": "\ufeff" + formats.gradebook(records),  # by this mark Excel knows UTF-8
        "classroom.json": json.dumps(formats.classroom(records), indent=1) + "\n",
        "classroom.b64": formats.one_line(formats.classroom(records)) + "\n",
    }
    for learner, name in names.items():
        theirs = [record for record in records if record["learner"] == learner]
        found[f"learners/{name}.html"] = pages.learner_page(learner, theirs)
        for number, record in enumerate(theirs):
            form = formats.gradescope(record)
            if form:
                place = "" if len(records) == 1 else f"{name}/" if number == 0 else f"{name}.{number + 1}/"
                found[f"gradescope/{place}results.json"] = json.dumps(form, indent=1) + "\n"
    return found


def write(folder: Path, records: list, aside: list = ()) -> None:
    """Write the report into `folder`; OSError where that fails, with nothing half-written."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f".report.{os.getpid()}.part"
    try:
        for name, text in files(records, aside).items():
            path = beside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "w", encoding="utf-8", errors="replace", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        for name in OURS:
            shutil.rmtree(folder / name, ignore_errors=True)
        for path in sorted(beside.iterdir(), key=lambda p: p.name == "results.json"):  # what programs read comes last
            os.replace(path, folder / path.name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
