"""Writes the results: results.json, versioned, and a page. Each file appears whole or not at all."""

import html
import json
import os
from pathlib import Path

SCHEMA_VERSION = 1

WORDS = {"passed": "passed", "pending": "right so far", "failed": "failed", "not_attempted": "not attempted",
         "ungraded": "not graded"}

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2.5rem; border-top: 1px solid #ccc; padding-top: 1rem }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .3rem .8rem .3rem 0; vertical-align: top }
th { border-bottom: 2px solid #ccc } td { border-bottom: 1px solid #eee } .number { text-align: right; white-space: nowrap }
.task { border-left: .4rem solid #999; padding: .1rem 1rem; margin: 1rem 0 } .task h3 { font-size: 1rem; margin: .4rem 0 }
.passed { border-color: #009e73 } .pending { border-color: #0072b2 } .failed { border-color: #d55e00 }
.hint { background: #fff4e5; padding: .4rem .8rem } .quiet { color: #555 } ul { margin: .3rem 0 }
"""


def summary(records: list) -> dict:
    """The content of results.json."""
    return {"schema_version": SCHEMA_VERSION, "submissions": records}


def write(folder: Path, records: list) -> None:
    """Write results.json and index.html into `folder`; OSError where that fails, with nothing half-written."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"results.json": json.dumps(summary(records), indent=1) + "\n", "index.html": page(records)}
    parts = {name: folder / f".{name}.{os.getpid()}.part" for name in files}
    try:
        for name, text in files.items():
            with open(parts[name], "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        for name in files:
            os.replace(parts[name], folder / name)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def page(records: list) -> str:
    """All submissions on one page: a table, and each one's tasks with hints."""
    rows = "".join(
        f"<tr><td><a href='#s{i}'>{_e(r['path'])}</a></td><td>{_e(r['exercise'])}</td>"
        f"<td class=number>{r['points']}</td><td class=number>{r['pending_points']}</td>"
        f"<td class=number>{r['max_points']}</td><td>{_e(_states(r))}</td></tr>" for i, r in enumerate(records))
    return (f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
            f"<title>Grades</title><style>{STYLE}</style><h1>Grades</h1>"
            f"<table><tr><th>submission<th>exercise<th class=number>points<th class=number>pending<th class=number>of"
            f"<th>tasks</tr>{rows}</table>"
            f"<p class=quiet>Pending points need a GPU: grade the same file on a machine that has one.</p>"
            + "".join(_submission(i, r) for i, r in enumerate(records)) + "</html>\n")


def _e(text) -> str:
    return html.escape(str(text))


def _states(record: dict) -> str:
    states = [task["status"] for task in record["tasks"]]
    return ", ".join(f"{states.count(s)} {WORDS[s]}" for s in WORDS if s in states) or "none"


def _submission(number: int, record: dict) -> str:
    place = record.get("environment") or {}
    where = (f"{place['mode']} on {place['device']}, torch {place['torch']}, triton {place['triton']}; "
             if {"mode", "device", "torch", "triton"} <= set(place) else "")
    notes = "".join(f"<li>{_e(note)}" for note in record["notes"])
    return (f"<h2 id=s{number}>{_e(record['path'])}</h2><p>{record['points']} of {record['max_points']} points"
            + (f", {record['pending_points']} pending" if record["pending_points"] else "")
            + f".</p><p class=quiet>{_e(where)}isolation: {_e(record['isolation'])}; {record['seconds']} s</p>"
            + (f"<ul class=quiet>{notes}</ul>" if notes else "") + "".join(map(_task, record["tasks"])))


def _task(task: dict) -> str:
    points = f"{task['points']} of {task['max_points']} points"
    if task["pending_points"]:
        points += f", {task['pending_points']} pending"
    lines = "".join(f"<li>proved: {_e(s)}" for s in task["proved"])
    lines += "".join(f"<li>not proved here: {_e(s)}" for s in task["unproved"])
    return (f"<div class='task {task['status']}'><h3>{_e(task['id'])} {_e(task['title'])}: {WORDS[task['status']]}, {points}"
            f"</h3>" + (f"<p class=hint>{_e(task['hint'])}</p>" if task["hint"] else "")
            + (f"<ul class=quiet>{lines}</ul>" if lines else "") + "</div>")
