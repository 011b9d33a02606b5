"""Writes the report: results.json, which results.schema.json describes, and everything that is made from it.

All files are written beside their places first and put there together, so that a report is the old one or the new one.
`python -m grading.report` writes results.schema.json, after a change of the types.
"""

import json
import os
import shutil
from pathlib import Path

import msgspec

from grading import adapters, pages
from grading.record import Results, stored
from grading.wording import clean, line

SCHEMA = Path(__file__).with_name("results.schema.json")


def schema() -> dict:
    """The schema of results.json, from the types, which their docstrings describe."""
    (top,), parts = msgspec.json.schema_components([Results], ref_template="#/$defs/{name}")
    for name, part in parts.items():
        part["description"] = " ".join(part["description"].split())
        if name != "Place":  # of which only what is known is written
            part["required"] = list(part["properties"])
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "title": "results.json of grade", **top, "$defs": parts}


def earlier(folder: Path) -> Results:
    """The report that `folder` holds; empty where there is none of this version."""
    return stored(folder / "results.json", Results) or Results()


def files(results: Results) -> dict:
    """{path inside the report: text} of a whole report."""
    records, aside = list(map(clean, results.submissions)), list(map(line, results.left_aside))
    results = msgspec.structs.replace(results, submissions=records, left_aside=aside)
    texts = {
        "results.json": _json(msgspec.to_builtins(results)),
        "index.html": pages.class_page(results),
        "junit.xml": adapters.junit(records),
        "grades.csv": "\ufeff" + adapters.gradebook(results),  # by this mark Excel knows UTF-8
    }
    learner_page = pages.PAGES.get_template("learner.html.j2")
    for learner, name in pages.names(records).items():
        theirs = [record for record in records if record.learner == learner]
        texts[f"learners/{name}.html"] = learner_page.render(title=f"Grades of {learner}", records=theirs)
        for record in theirs:
            place = f"gradescope/{name}/{record.exercise or 'unreadable'}"
            number = sum(path.startswith(place) for path in texts)
            if form := adapters.gradescope(record):
                texts[f"{place}{f'-{number + 1}' * (number > 0)}.json"] = _json(form)
    return texts


def _json(content: dict) -> str:
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def write(folder: Path, results: Results) -> None:
    """Write the report into `folder`; OSError where that fails, with nothing half-written."""
    beside = folder / f".report.{os.getpid()}.part"
    try:
        for name, text in files(results).items():
            (beside / name).parent.mkdir(parents=True, exist_ok=True)
            (beside / name).write_text(text, encoding="utf-8", newline="")
        for name in ("gradescope", "learners"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for path in sorted(beside.iterdir(), key=lambda p: p.name == "results.json"):  # what programs read comes last
            os.replace(path, folder / path.name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


if __name__ == "__main__":
    SCHEMA.write_text(_json(schema()), encoding="utf-8")
