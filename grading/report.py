"""Writes the results: results.json, which results.schema.json describes, and all that is made from the same records.

All files are written beside their places first and put there together, so that a report is the old one or the new one.
`python -m grading.report` writes results.schema.json, after a change of the types.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Literal

import msgspec

from grading import formats, pages
from grading.record import Record, Submission

SCHEMA_VERSION = 4
SCHEMA = Path(__file__).with_name("results.schema.json")
OURS = ("gradescope", "learners")  # folders of a report that hold nothing else


class Results(Record):
    """results.json of `grade`. left_aside: files beside the submissions that are none."""

    schema_version: Literal[4]
    submissions: list[Submission]
    left_aside: list[str]


def schema() -> dict:
    """The schema of results.json, from the types, which their docstrings describe."""
    (top,), parts = msgspec.json.schema_components([Results], ref_template="#/$defs/{name}")
    for name, part in parts.items():
        part["description"] = " ".join(part["description"].split())
        if name != "Place":  # of which only what is known is written
            part["required"] = list(part["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "results.json of grade",
        **top,
        "$defs": parts,
    }


def summary(records: list[Submission], aside: list[str] = ()) -> dict:
    """The content of results.json. aside: files beside the submissions that are none."""
    return msgspec.to_builtins(Results(schema_version=SCHEMA_VERSION, submissions=records, left_aside=list(aside)))


def others(folder: Path, handed: list) -> tuple[list, int]:
    """The learners of the report in `folder` whom `handed` lacks, and how many submissions that report holds."""
    try:
        old = json.loads((folder / "results.json").read_bytes())["submissions"]
        known = {formats.line(name) for h in handed for name in (h.learner, h.place)}
        return [s["learner"] for s in old if not known & {s["learner"], s["file"]}], len(old)
    except (OSError, ValueError, KeyError, TypeError):
        return [], 0


def files(records: list[Submission], aside: list[str] = ()) -> dict:
    """{path inside the report: text} of a whole report."""
    records, aside = formats.told(records), [formats.line(path) for path in aside]
    names = pages.slugs(records)
    found = {
        "results.json": _json(summary(records, aside)),
        "index.html": pages.class_page(records, aside),
        "junit.xml": formats.junit(records),
        "grades.csv": "\ufeff" + formats.gradebook(records),  # by this mark Excel knows UTF-8
        "classroom.json": _json(formats.classroom(records)),
        "classroom.b64": formats.one_line(formats.classroom(records)) + "\n",
    }
    for learner, theirs in pages.by_learner(records).items():
        name = names[learner]
        found[f"learners/{name}.html"] = pages.learner_page(learner, theirs)
        for number, record in enumerate(theirs, 1):
            form = formats.gradescope(record)
            if form:  # no learner's page has a + in its name
                place = "" if len(records) == 1 else f"{name}/" if number == 1 else f"{name}+{number}/"
                found[f"gradescope/{place}results.json"] = _json(form)
    return found


def _json(content: dict) -> str:
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def write(folder: Path, records: list[Submission], aside: list[str] = ()) -> None:
    """Write the report into `folder`; OSError where that fails, with nothing half-written."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f".report.{os.getpid()}.part"
    try:
        for name, text in files(records, aside).items():
            path = beside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        for name in OURS:
            shutil.rmtree(folder / name, ignore_errors=True)
        for path in sorted(beside.iterdir(), key=lambda p: p.name == "results.json"):  # what programs read comes last
            os.replace(path, folder / path.name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


if __name__ == "__main__":
    SCHEMA.write_text(_json(schema()), encoding="utf-8")
